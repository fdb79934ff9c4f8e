{{/* Name of every object of the release: a DNS label, short enough for what is put behind it. */}}
{{- define "renderhub.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $release := replace "." "-" .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name $release -}}
{{- $release | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the hub's pod; they never change, or an upgrade would fail. */}}
{{- define "renderhub.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: hub
{{- end -}}

{{/*
Labels of every object of the release. Not those that the hub gives to what it makes: app.kubernetes.io/managed-by is
Helm here, so that the hub's own sweep can never meet an object of the chart.
*/}}
{{- define "renderhub.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: renderhub
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Full name of an image: takes {image, appVersion}. */}}
{{- define "renderhub.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .appVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "renderhub.serviceAccountName" -}}
{{- default (include "renderhub.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/*
The rendering namespace. It holds the platform's credentials, so it is never the namespace of the release, where people who
only look after the hub work, and never one of the system's.
*/}}
{{- define "renderhub.renderingNamespace" -}}
{{- $name := .Values.renderingNamespace.name -}}
{{- if eq $name .Release.Namespace -}}
{{- fail "renderingNamespace.name must differ from the release's namespace: the platform's credentials are kept apart from the hub" -}}
{{- end -}}
{{- if or (eq $name "default") (hasPrefix "kube-" $name) -}}
{{- fail "renderingNamespace.name must be a namespace of its own: every right in it is a right to the platform's credentials" -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "renderhub.rendererServiceAccountName" -}}
{{- printf "%s-renderer" (include "renderhub.fullname" .) -}}
{{- end -}}

{{/* The hub, as the subject of a binding. */}}
{{- define "renderhub.hubSubject" -}}
- kind: ServiceAccount
  name: {{ include "renderhub.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* Where hubs of one cluster find each other. */}}
{{- define "renderhub.leaseNamespace" -}}
{{- default (include "renderhub.renderingNamespace" .) .Values.controller.leaseNamespace -}}
{{- end -}}

{{/* Where the kubeconfigs of RenderClusters are: nowhere that a tenant looks after. */}}
{{- define "renderhub.clusterNamespace" -}}
{{- $name := default .Release.Namespace .Values.clusters.namespace -}}
{{- $isNamed := and (ne $name .Release.Namespace) (hasKey .Values.tenancy.serviceAccounts $name) -}}
{{- if or $isNamed (has $name .Values.controller.watchNamespaces) -}}
{{- fail (printf "clusters.namespace must be no namespace of tenants, and %s is one: they could read the kubeconfigs" $name) -}}
{{- end -}}
{{- if hasPrefix "kube-" $name -}}
{{- fail "clusters.namespace must be a namespace of the platform's own: every right to Secrets in it is a right to the clusters" -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Feature gates as the hub takes them. */}}
{{- define "renderhub.featureGates" -}}
{{- $all := list -}}
{{- range $name, $isOpen := .Values.featureGates -}}
{{- $all = append $all (printf "%s=%t" $name $isOpen) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{/*
The ServiceAccounts of tenants that the hub may become, as JSON: names by namespace. The default one is among them wherever
a namespace is known by name.
*/}}
{{- define "renderhub.identities" -}}
{{- $watched := .Values.controller.watchNamespaces -}}
{{- $default := .Values.tenancy.defaultServiceAccount -}}
{{- $named := .Values.tenancy.serviceAccounts -}}
{{- range $namespace, $_ := $named -}}
{{- if and $watched (not (has $namespace $watched)) -}}
{{- fail (printf "tenancy.serviceAccounts names %s, which controller.watchNamespaces does not: the hub would never use that right" $namespace) -}}
{{- end -}}
{{- end -}}
{{- $all := dict -}}
{{- range $namespace := (ternary (concat (keys $named) $watched) (keys $named) (not (empty $default))) -}}
{{- if or (eq $namespace (include "renderhub.renderingNamespace" $)) (eq $namespace $.Release.Namespace) (hasPrefix "kube-" $namespace) -}}
{{- fail (printf "no ServiceAccount of %s can be given to tasks: whoever makes one could act as the platform" $namespace) -}}
{{- end -}}
{{- $accounts := append (default list (get $named $namespace)) $default | compact | uniq | sortAlpha -}}
{{- if not $accounts -}}
{{- fail (printf "tenancy.serviceAccounts names no ServiceAccount for %s; a Role without names would give them all" $namespace) -}}
{{- end -}}
{{- $_ := set $all $namespace $accounts -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* Addresses of this host, and of the clouds' metadata services, as JSON. */}}
{{- define "renderhub.localCIDRs" -}}
{{- list "127.0.0.0/8" "169.254.0.0/16" "100.100.100.200/32" "::1/128" "fe80::/10" "fd00:ec2::254/128" | toJson -}}
{{- end -}}

{{/*
Addresses that no registry has, as JSON: this host, link-local ones and others of the clouds' metadata services, and the API
server, by its Service and its endpoints where Helm has a cluster to ask.
*/}}
{{- define "renderhub.blockedCIDRs" -}}
{{- $all := include "renderhub.localCIDRs" . | fromJsonArray -}}
{{- $service := lookup "v1" "Service" "default" "kubernetes" -}}
{{- range (dig "spec" "clusterIPs" list $service) -}}
{{- $all = append $all (printf "%s/%s" . (ternary "128" "32" (contains ":" .))) -}}
{{- end -}}
{{- range (dig "items" list (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "")) -}}
{{- if eq (dig "metadata" "labels" "kubernetes.io/service-name" "" .) "kubernetes" -}}
{{- range .endpoints -}}{{- range .addresses -}}
{{- $all = append $all (printf "%s/%s" . (ternary "128" "32" (contains ":" .))) -}}
{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- concat $all .Values.networkPolicy.blockedCIDRs | uniq | toJson -}}
{{- end -}}

{{/* Every address but those of a JSON list of CIDRs, as NetworkPolicyPeers. */}}
{{- define "renderhub.everywhereBut" -}}
{{- $v4 := list -}}
{{- $v6 := list -}}
{{- range (fromJsonArray .) -}}
{{- if contains ":" . -}}{{- $v6 = append $v6 . -}}{{- else -}}{{- $v4 = append $v4 . -}}{{- end -}}
{{- end -}}
- ipBlock:
    cidr: 0.0.0.0/0
    except:
      {{- toYaml $v4 | nindent 6 }}
- ipBlock:
    cidr: ::/0
    except:
      {{- toYaml $v6 | nindent 6 }}
{{- end -}}

{{/* What these values take back of the chart's protection, a line each; nothing with the default values. */}}
{{- define "renderhub.relaxations" -}}
{{- with .Values -}}
{{- if .rbac.clusterAdmin }}
- rbac.clusterAdmin: the hub may do everything in this cluster, and reads what tasks name as itself unless they name a ServiceAccount.
{{- end -}}
{{- if not .controller.noCrossNamespaceRefs }}
- controller.noCrossNamespaceRefs=false: a ReferenceGrant lets tasks of one namespace use registries of another.
{{- end -}}
{{- if eq .tenancy.identity "impersonate" }}
- tenancy.identity=impersonate: the hub's own token is enough to act as the ServiceAccounts that it may impersonate.
{{- end -}}
{{- with .controller.skipPreflight }}
- controller.skipPreflight: these checks do not keep the hub from starting: {{ join ", " . }}.
{{- end -}}
{{- range $name, $isOpen := .featureGates }}{{- if $isOpen }}
- featureGates.{{ $name }}: an alpha feature; tasks may name a kubeconfig of their own, and the hub connects to where it leads.
{{- end }}{{- end -}}
{{- with .clusters.allowCidrs }}
- clusters.allowCidrs: clusters may be where the hub connects to nothing otherwise: {{ join ", " . }}.
{{- end -}}
{{- if not .policies.install }}
- policies.install=false: unless another release installs them, nothing but the hub itself refuses a changed spec or a forged status.
{{- end -}}
{{- if not .networkPolicy.enabled }}
- networkPolicy.enabled=false: renderers reach whatever the cluster's network lets them, the API server included.
{{- end -}}
{{- if not .quota.enabled }}
- quota.enabled=false: nothing bounds what all renderers together take of the cluster.
{{- end -}}
{{- if not .limitRange.enabled }}
- limitRange.enabled=false: nothing bounds what a RendererClass can ask for.
{{- end -}}
{{- if not .renderingNamespace.create }}
- renderingNamespace.create=false: you label the namespace yourself; without Pod Security `restricted` the hub does not start.
{{- end -}}
{{- if not .tests.networkPolicy }}
- tests.networkPolicy=false: `helm test` does not show whether NetworkPolicy is enforced.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the pods of `helm test` have in common. */}}
{{- define "renderhub.testPod" -}}
restartPolicy: Never
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "renderhub.testContainer" -}}
name: test
image: {{ include "renderhub.image" (dict "image" .Values.image "appVersion" .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  requests:
    cpu: 10m
    memory: 16Mi
  limits:
    cpu: 100m
    memory: 64Mi
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}
