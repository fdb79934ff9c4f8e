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
