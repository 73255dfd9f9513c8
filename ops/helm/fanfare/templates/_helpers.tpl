{{/* Name of all objects. */}}
{{- define "fanfare.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 55 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What finds the pods. It must never change: the selector of a Deployment is immutable. */}}
{{- define "fanfare.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "fanfare.labels" -}}
{{ include "fanfare.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "fanfare.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "fanfare.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "fanfare.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A drain may take this long after SIGTERM: its delay, the window, and 15 s for its other steps. */}}
{{- define "fanfare.drainSeconds" -}}
{{- with .Values.drain -}}
{{- add .delaySeconds .windowSeconds 15 -}}
{{- end -}}
{{- end -}}

{{/* Refuses values that would make a fleet of strangers, an open server, or a published secret. */}}
{{- define "fanfare.check" -}}
{{- if not (toString .Values.trustProxy) -}}
{{- fail "trustProxy is required: the addresses of your ingress controller as CIDRs, or 1 if only it can reach the pods" -}}
{{- end -}}
{{- range $name := keys .Values.settings | sortAlpha -}}
{{- if has $name (list "PORT" "METRICS_PORT" "METRICS_HOST" "WORKERS" "SERVER_ID" "TRUST_PROXY" "FANFARE_DRAIN_DELAY_MS" "FANFARE_RECONNECT_WINDOW_MS" "FANFARE_SHUTDOWN_TIMEOUT_MS") -}}
{{- fail (printf "settings.%s: the chart sets it, from workers, trustProxy or drain" $name) -}}
{{- end -}}
{{- $value := get $.Values.settings $name | toString -}}
{{- if and (has $name (splitList " " (include "fanfare.secretNames" $))) (or (contains "@" $value) (not (hasSuffix "_URL" $name))) -}}
{{- fail (printf "settings.%s is a secret: name the Secret that has it in secrets.%s" $name $name) -}}
{{- end -}}
{{- if hasKey $.Values.secrets (trimSuffix "_FILE" $name) -}}
{{- fail (printf "settings.%s: secrets.%s says where it is" $name (trimSuffix "_FILE" $name)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $from := .Values.secrets -}}
{{- if $from -}}
{{- if not (has $name (splitList " " (include "fanfare.secretNames" $))) -}}
{{- fail (printf "secrets.%s: Fanfare has no secret setting of this name" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $pods := int .Values.replicas -}}
{{- if .Values.autoscaling.enabled -}}{{- $pods = int .Values.autoscaling.maxReplicas -}}{{- end -}}
{{- $redis := .Values.secrets.REDIS_URL -}}
{{- range list "REDIS_URL" "REDIS_HOST" "REDIS_SENTINELS" "REDIS_CLUSTER" -}}
{{- $redis = or $redis (get $.Values.settings .) -}}
{{- end -}}
{{- if and (gt $pods 1) (not $redis) -}}
{{- fail "more than one pod needs Redis: name the Secret with its URL in secrets.REDIS_URL, or set replicas to 1 and autoscaling.enabled to false" -}}
{{- end -}}
{{- end -}}

{{/* Settings with secrets, which the server reads from files. A URL is one if it has a password. A test
     compares the list with the server's. */}}
{{- define "fanfare.secretNames" -}}
TLS_KEY_PASSPHRASE REDIS_URL REDIS_SUBSCRIBE_URL REDIS_PASSWORD REDIS_SENTINEL_PASSWORD API_KEYS JWT_SECRET JWT_SECRET_PREVIOUS JWT_JWKS_URL FANFARE_HOOKS_SECRET FANFARE_PUSHER_APP_SECRET FANFARE_CENTRIFUGO_API_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
{{- end -}}

{{/* A value of YAML as a setting. There `on` and `off` are booleans, and 16777216 would print as 1.6777216e+07. */}}
{{- define "fanfare.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if kindIs "bool" . }}{{ ternary "on" "off" . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* Is there a secret setting? Empty: no. */}}
{{- define "fanfare.hasSecrets" -}}
{{- range $name, $from := .Values.secrets }}{{ if $from }}yes{{ end }}{{ end -}}
{{- end -}}
