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

{{/* The same for the pod of `renderhub pull-secrets`: another component, so that nothing that selects the hub's pods selects it. */}}
{{- define "renderhub.pullSecretsSelectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: pull-secrets
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

{{/* Name of the program that copies the pull Secrets of OLM's catalogs; the hub itself has a Role of this name. */}}
{{- define "renderhub.pullSecretsName" -}}
{{- printf "%s-pull-secrets" (include "renderhub.fullname" .) -}}
{{- end -}}

{{/* That program, as the subject of a binding. */}}
{{- define "renderhub.pullSecretsSubject" -}}
- kind: ServiceAccount
  name: {{ include "renderhub.pullSecretsName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/*
Refuses lists of namespaces with which that program would do nothing, or have rights to the platform's credentials. The schema does
not look for what is twice, because it tells of it by its position and not by its name.
*/}}
{{- define "renderhub.pullSecretsNamespaces" -}}
{{- $rendering := include "renderhub.renderingNamespace" . -}}
{{- range $list := list "namespaces" "catalogNamespaces" -}}
{{- $names := get $.Values.pullSecrets.olm $list | default list -}}
{{- if not $names -}}
{{- fail (printf "pullSecrets.olm.enabled needs pullSecrets.olm.%s: rights to Secrets are given by namespace, never in the whole cluster" $list) -}}
{{- end -}}
{{- if has $rendering $names -}}
{{- fail (printf "pullSecrets.olm.%s must not contain the rendering namespace: the program could read the platform's credentials" $list) -}}
{{- end -}}
{{- range $own := list (include "renderhub.clusterNamespace" $) (include "renderhub.pullSecretNamespace" $) -}}
{{- if has $own $names -}}
{{- fail (printf "pullSecrets.olm.%s must not contain %s, where kubeconfigs or pull Secrets of the platform are: the program could read them" $list $own) -}}
{{- end -}}
{{- end -}}
{{- range $i, $name := $names -}}
{{- if has $name (slice $names 0 $i) -}}
{{- fail (printf "pullSecrets.olm.%s names %s twice: each namespace gets one Role, so name it once" $list $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Refuses to roll from one hub to another. One of another name would find the old one in its way, and one with its Lease elsewhere would
not see it, and work beside it; so the old one ends first. Where Helm has no cluster to ask, as with `helm template`, nothing is refused.
*/}}
{{- define "renderhub.sameHub" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "renderhub.fullname" .) -}}
{{- if gt (int (dig "status" "replicas" 0 $live)) 0 -}}
{{- $args := dig "spec" "template" "spec" "containers" list $live | first | dig "args" list -}}
{{- $is := dict "shard-name" "" "rendering-namespace" "" "lease-namespace" "" -}}
{{- range $args -}}
{{- $parts := splitn "=" 2 (trimPrefix "--" .) -}}
{{- if hasKey $is $parts._0 -}}{{- $_ := set $is $parts._0 $parts._1 -}}{{- end -}}
{{- end -}}
{{- $_ := set $is "lease-namespace" (default (get $is "rendering-namespace") (get $is "lease-namespace")) -}}
{{- $wanted := dict "shard-name" .Values.controller.shardName "rendering-namespace" (include "renderhub.renderingNamespace" .) "lease-namespace" (include "renderhub.leaseNamespace" .) -}}
{{- range $flag, $value := $is -}}
{{- if and $value (ne $value (get $wanted $flag)) -}}
{{- fail (printf "the hub runs with --%s=%s and would run with %s: scale the Deployment to 0 first, because the two would not start beside each other, or not see each other" $flag $value (get $wanted $flag)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Refuses the values of an earlier chart, which lack what came later, or ask for what is gone; a nil where a template looks for it would
tell nothing.
*/}}
{{- define "renderhub.ownValues" -}}
{{- with .Values.controller.shardCount -}}
{{- if gt (int .) 1 -}}
{{- fail (printf "controller.shardCount is %d, and instances of one release do not divide the namespaces any more: set it to 1 or leave it out, and either let the others stand by (replicaCount), or install several releases with a list each (controller.watchNamespaces)" (int .)) -}}
{{- end -}}
{{- end -}}
{{- if not (and (hasKey .Values.tenancy "ownRegistries") (hasKey .Values "pipeline")) -}}
{{- fail "these values are those of an earlier chart, as helm upgrade --reuse-values takes them: use --reset-then-reuse-values, which keeps what you set and takes this chart's defaults for the rest" -}}
{{- end -}}
{{- end -}}

{{/* Whether the hub that runs is one of this version, by a flag that none of before has: "true" or nothing. */}}
{{- define "renderhub.runsThisVersion" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "renderhub.fullname" .) -}}
{{- range (dig "spec" "template" "spec" "containers" list $live) -}}
{{- range (dig "args" list .) -}}
{{- if hasPrefix "--preflight-interval=" . -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
How the pods are spread, as JSON. Each update is spread by itself: the pods that it replaces do not count.
*/}}
{{- define "renderhub.topologySpreadConstraints" -}}
{{- $all := .Values.topologySpreadConstraints -}}
{{- if and (not $all) (gt (int .Values.replicaCount) 1) -}}
{{- $all = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) -}}
{{- end -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "renderhub.selectorLabels" . | fromYaml)) -}}
{{- $spread := list -}}
{{- range $all -}}
{{- $own := dict -}}
{{- if not (hasKey . "labelSelector") -}}{{- $own = deepCopy $selector -}}{{- end -}}
{{- $spread = append $spread (merge $own (deepCopy .)) -}}
{{- end -}}
{{- toJson $spread -}}
{{- end -}}

{{/* Whether this release looks after the rendering namespace: "true", or nothing where another one does. */}}
{{- define "renderhub.ownsRenderingNamespace" -}}
{{- if .Values.renderingNamespace.shared -}}
{{- if not .Values.controller.watchNamespaces -}}
{{- fail "renderingNamespace.shared needs controller.watchNamespaces: a hub without a list serves all namespaces, and no other can run beside it" -}}
{{- end -}}
{{- if eq .Values.controller.shardName "main" -}}
{{- fail "renderingNamespace.shared needs a controller.shardName other than main: by the same name this hub would only stand by for the other release's" -}}
{{- end -}}
{{- else -}}
true
{{- end -}}
{{- end -}}

{{/* Jobs that may run at the same time in the rendering namespace. */}}
{{- define "renderhub.activeJobs" -}}
{{- $own := int .Values.controller.maxActiveJobs -}}
{{- $all := default $own (int .Values.quota.activeJobs) -}}
{{- if lt $all $own -}}
{{- fail (printf "quota.activeJobs is %d, less than controller.maxActiveJobs, which is %d: it is the sum over all hubs in the rendering namespace" $all $own) -}}
{{- end -}}
{{- $all -}}
{{- end -}}

{{/* Where hubs of one cluster find each other. */}}
{{- define "renderhub.leaseNamespace" -}}
{{- default (include "renderhub.renderingNamespace" .) .Values.controller.leaseNamespace -}}
{{- end -}}

{{/* Where the pull Secrets of RendererClasses are: nowhere that a tenant looks after. */}}
{{- define "renderhub.pullSecretNamespace" -}}
{{- $name := default .Release.Namespace .Values.renderer.pullSecretNamespace -}}
{{- $isNamed := and (ne $name .Release.Namespace) (hasKey .Values.tenancy.serviceAccounts $name) -}}
{{- if or $isNamed (has $name .Values.controller.watchNamespaces) -}}
{{- fail (printf "renderer.pullSecretNamespace must be no namespace of tenants, and %s is one: they could read the pull Secrets" $name) -}}
{{- end -}}
{{- if hasPrefix "kube-" $name -}}
{{- fail "renderer.pullSecretNamespace must be a namespace of the platform's own: the hub may read every Secret there" -}}
{{- end -}}
{{- $name -}}
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

{{/* Namespaces of catalogs that are read and not served, as JSON. */}}
{{- define "renderhub.catalogNamespaces" -}}
{{- $watched := .Values.controller.watchNamespaces -}}
{{- $catalogs := list -}}
{{- with .Values.controller.catalogNamespaces -}}
{{- if not $watched -}}
{{- fail "controller.catalogNamespaces needs controller.watchNamespaces: a hub without a list serves all namespaces, and sees every catalog already" -}}
{{- end -}}
{{- if not ($.Values.pipeline).enabled -}}
{{- fail "controller.catalogNamespaces needs pipeline.enabled=true: only Targets and their Releases use a catalog" -}}
{{- end -}}
{{- if $.Values.controller.noCrossNamespaceRefs -}}
{{- fail "controller.catalogNamespaces needs controller.noCrossNamespaceRefs=false: while no reference leaves its namespace, nothing of a catalog can be used" -}}
{{- end -}}
{{- if has (include "renderhub.renderingNamespace" $) . -}}
{{- fail "controller.catalogNamespaces must not contain the rendering namespace: who writes a catalog there could read the platform's credentials" -}}
{{- end -}}
{{- range . -}}
{{- if not (has . $watched) -}}{{- $catalogs = append $catalogs . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $catalogs -}}
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
{{- fail (printf "no ServiceAccount of %s can be given to tasks: a tenant who makes one could act as the platform" $namespace) -}}
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

{{/* What a program that works with an API server sends out, as rules of a NetworkPolicy: to who answers DNS. */}}
{{- define "renderhub.egressToDNS" -}}
{{- with .Values.networkPolicy.dns -}}
{{- /* An empty list would mean every address. */}}
{{- if .to -}}
- to:
    {{- toYaml .to | nindent 4 }}
  ports:
    {{- range .ports }}
    - protocol: UDP
      port: {{ . }}
    - protocol: TCP
      port: {{ . }}
    {{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The same to API servers, that of the hub's own cluster among them. */}}
{{- define "renderhub.egressToAPIServers" -}}
- to:
    {{- if .Values.clusters.egress.to }}
    {{- toYaml .Values.clusters.egress.to | nindent 4 }}
    {{- else }}
    {{- include "renderhub.everywhereBut" (include "renderhub.localCIDRs" .) | nindent 4 }}
    {{- end }}
  ports:
    {{- range .Values.clusters.egress.ports }}
    - protocol: TCP
      port: {{ . }}
    {{- end }}
{{- end -}}

{{/* Environment of a program that lasts, by which it fits into its memory limit. */}}
{{- define "renderhub.memoryEnv" -}}
# One arena: the C library would keep one for each thread, and what is free in one is of no use to the others.
- name: MALLOC_ARENA_MAX
  value: "1"
# What takes 128 KiB or more is given back as soon as it is free: the C library would raise this bound to the largest
# that it ever gave back, and keep large holes between what is small and lasts.
- name: MALLOC_MMAP_THRESHOLD_
  value: "131072"
{{- end -}}

{{/* What these values take back of the chart's protection, a line each; nothing with the default values. */}}
{{- define "renderhub.relaxations" -}}
{{- include "renderhub.ownValues" . -}}
{{- with .Values -}}
{{- if .rbac.clusterAdmin }}
- rbac.clusterAdmin: the hub may do everything in this cluster, and reads what tasks name as itself unless they name a ServiceAccount.
{{- end -}}
{{- if not .controller.noCrossNamespaceRefs }}
- controller.noCrossNamespaceRefs=false: a ReferenceGrant lets tasks of one namespace use registries of another{{ if (.pipeline).enabled }}, and Releases, Profiles and bindings reach what is granted to them there{{ end }}.
{{- end -}}
{{- if eq .tenancy.identity "impersonate" }}
- tenancy.identity=impersonate: the hub's own token is enough to act as the ServiceAccounts that it may impersonate.
{{- end -}}
{{- with .tenancy.defaultServiceAccount }}
- tenancy.defaultServiceAccount={{ . }}: a task that names no ServiceAccount reads with the rights of this one in its namespace.
{{- end -}}
{{- with .tenancy.platformReaders }}
- tenancy.platformReaders: every ClusterRegistry, RendererClass and RenderCluster, also what others use, can be read by: {{ range $i, $subject := . }}{{ if $i }}, {{ end }}{{ $subject.kind }} {{ $subject.name }}{{ end }}.
{{- end -}}
{{- if not .rbac.clusterAdmin }}{{- with .tenancy.ownRegistries.hosts }}
- tenancy.ownRegistries.hosts: tenants make pods of the rendering namespace connect to: {{ join ", " . }}.
{{- end }}{{- end -}}
{{- if .metrics.byNamespace }}
- metrics.byNamespace=true: whatever reaches the admin port reads names of tenants' namespaces.
{{- end -}}
{{- with .controller.skipPreflight }}
- controller.skipPreflight: these checks do not keep the hub from starting: {{ join ", " . }}.
{{- end -}}
{{- range $name, $isOpen := .featureGates }}{{- if $isOpen }}
{{- if eq $name "ExternalClusterReferenceCrossNamespace" }}
- featureGates.{{ $name }}: an alpha feature; tasks may name a kubeconfig of another namespace too, where a ReferenceGrant there allows it.
{{- else }}
- featureGates.{{ $name }}: an alpha feature; tasks may name a kubeconfig of their own namespace, and the hub connects to where it leads.
{{- end }}
{{- end }}{{- end -}}
{{- with .clusters.allowCidrs }}
- clusters.allowCidrs: clusters may be where the hub connects to nothing otherwise: {{ join ", " . }}.
{{- end -}}
{{- with (.pullSecrets).olm }}{{- if .enabled }}
- pullSecrets.olm.enabled: who reads Secrets in {{ join ", " .namespaces }} reads copies of the pull Secrets of catalogs in {{ join ", " .catalogNamespaces }}, and the program that makes them may read every Secret of all these namespaces.
{{- end }}{{- end -}}
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
{{- if not (or .renderingNamespace.create .renderingNamespace.shared) }}
- renderingNamespace.create=false: you label the namespace yourself; without Pod Security `restricted` the hub does not start.
{{- end -}}
{{- if not .tests.networkPolicy }}
- tests.networkPolicy=false: `helm test` does not show whether NetworkPolicy is enforced.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the pods beside the hub's own have in common: those of `helm test`, and of an uninstall. */}}
{{- define "renderhub.helperPod" -}}
restartPolicy: Never
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

{{/* With everything that a ResourceQuota can ask for, since not every namespace has a LimitRange. */}}
{{- define "renderhub.helperContainer" -}}
image: {{ include "renderhub.image" (dict "image" .Values.image "appVersion" .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  requests:
    cpu: 10m
    memory: 16Mi
    ephemeral-storage: 16Mi
  limits:
    cpu: 100m
    memory: 64Mi
    ephemeral-storage: 16Mi
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The Job by which the pod of `helm test` looks from the rendering namespace. */}}
{{- define "renderhub.networkTest" -}}
apiVersion: batch/v1
kind: Job
metadata:
  generateName: {{ include "renderhub.fullname" . }}-test-
  namespace: {{ include "renderhub.renderingNamespace" . }}
  labels:
    {{- include "renderhub.labels" . | nindent 4 }}
    app.kubernetes.io/component: test
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 120
  # The pod of the test removes it; this is for one that does not live to do so.
  ttlSecondsAfterFinished: 60
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .Chart.Name }}
        app.kubernetes.io/instance: {{ .Release.Name }}
        app.kubernetes.io/part-of: renderhub
        app.kubernetes.io/component: test
        # As on a renderer's pod, so that the same policies hold. The hub looks for more than this one.
        app.kubernetes.io/managed-by: renderhub
    spec:
      {{- include "renderhub.helperPod" . | nindent 6 }}
      serviceAccountName: {{ include "renderhub.rendererServiceAccountName" . }}
      automountServiceAccountToken: false
      {{- with .Values.renderer.imagePullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      containers:
        - name: test
          {{- include "renderhub.helperContainer" . | nindent 10 }}
{{- end -}}

{{/* Annotations of what an uninstall makes before everything else, and removes whatever comes of it: takes the weight. */}}
{{- define "renderhub.beforeUninstall" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end -}}
