{{- define "headrace.name" -}}
{{- if contains "headrace" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-headrace" (.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "headrace.domain" -}}
{{ include "headrace.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "headrace.voters" -}}
{{- $name := include "headrace.name" . -}}
{{- $domain := include "headrace.domain" . -}}
{{- $voters := list -}}
{{- range $index := until (int .Values.replicas) -}}
{{- $voters = append $voters (printf "%d@%s-%d.%s:9093" $index $name $index $domain) -}}
{{- end -}}
{{- join "," $voters -}}
{{- end -}}

{{- define "headrace.properties" -}}
{{- $inside := ternary (ternary "SASL_SSL" "SSL" .Values.scram.enabled) (ternary "SASL_PLAINTEXT" "PLAINTEXT" .Values.scram.enabled) .Values.tls.enabled -}}
process.roles=broker,controller
controller.quorum.voters={{ include "headrace.voters" . }}
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
listeners=CLIENTS://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093,INTERNAL://0.0.0.0:9094
listener.security.protocol.map=CLIENTS:{{ $inside }},CONTROLLER:{{ $inside }},INTERNAL:{{ $inside }}
log.dirs=/var/lib/headrace/data
metrics.listener=0.0.0.0:9404
{{- if .Values.tls.enabled }}
ssl.keystore.type=PEM
ssl.keystore.location=/etc/headrace/tls/{{ .Values.tls.keystoreKey }}
ssl.truststore.type=PEM
ssl.truststore.location=/etc/headrace/tls/{{ .Values.tls.truststoreKey }}
{{- if not .Values.scram.enabled }}
listener.name.controller.ssl.client.auth=required
listener.name.internal.ssl.client.auth=required
{{- end }}
{{- end }}
{{- if .Values.scram.enabled }}
listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.internal.sasl.enabled.mechanisms=PLAIN
sasl.mechanism.controller.protocol=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:node{{ range .Values.scram.superUsers }};User:{{ . }}{{ end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{ $name }}={{ $value }}
{{- end }}
{{- end -}}
