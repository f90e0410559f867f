{{- define "ucci.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ucci.labels" -}}
{{ include "ucci.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: ucci-stream
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "ucci.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "ucci.image" -}}
{{- $tag := default .root.Chart.AppVersion .root.Values.image.tag -}}
{{- $separator := ternary "@" ":" (hasPrefix "sha256:" $tag) -}}
{{- printf "%s/%s%s%s" .root.Values.image.registry .name $separator $tag -}}
{{- end -}}

{{- define "ucci.config" -}}
{{- required "config: is empty; give ucci.toml with --set-file config=ucci.toml" .Values.config -}}
{{- end -}}

{{- /* A pod starts anew when its configuration changes. */ -}}
{{- define "ucci.podMetadata" -}}
labels:
  {{- include "ucci.labels" . | nindent 2 }}
  {{- with .pod.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include "ucci.config" .root | sha256sum }}
  {{- with .pod.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "ucci.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "ucci.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{- define "ucci.placement" -}}
{{- with .pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .pod.topologySpreadConstraints }}
  {{- toYaml .pod.topologySpreadConstraints | nindent 2 }}
{{- else }}
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "ucci.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Prometheus calls a job as its Service: a release whose name does not say "ucci" is asked for as well. */ -}}
{{- define "ucci.ownJobs" -}}
{{- $known := ".*(ucci|router|recalibrator).*" -}}
{{- .text | replace $known (printf "%s-(router|gateway|join|fit|api)|%s" (include "ucci.fullname" .root) $known) -}}
{{- end -}}

{{- /* Who a component is for Kafka, as JSON: what the values say, else the user that Strimzi makes for it. */ -}}
{{- define "ucci.kafkaUser" -}}
{{- $given := index .root.Values.kafka.users .user -}}
{{- $strimzi := .root.Values.strimzi.users -}}
{{- $made := ternary (printf "%s-%s" (include "ucci.fullname" .root) .user) "" $strimzi.enabled -}}
{{- $isTls := eq $strimzi.authentication "tls" -}}
{{- dict "username" (default $made $given.username) "passwordKey" $given.passwordKey
      "passwordSecret" (default (ternary "" $made $isTls) $given.passwordSecret)
      "certificateSecret" (default (ternary $made "" $isTls) $given.certificateSecret) | toJson -}}
{{- end -}}

{{- /* Kafka's settings as variables: what is secret comes from Secrets, what is mounted from files. */ -}}
{{- define "ucci.kafkaEnv" -}}
{{- $kafka := .root.Values.kafka -}}
{{- $user := include "ucci.kafkaUser" . | fromJson -}}
{{- $protocol := $kafka.securityProtocol -}}
- { name: UCCI_KAFKA__BOOTSTRAP_SERVERS, value: {{ $kafka.bootstrapServers | quote }} }
- { name: UCCI_TOPICS__PREFIX, value: {{ .root.Values.topics.prefix | quote }} }
{{- if ne $protocol "PLAINTEXT" }}
- { name: UCCI_KAFKA__SECURITY_PROTOCOL, value: {{ $protocol }} }
{{- end }}
{{- if hasPrefix "SASL_" $protocol }}
- { name: UCCI_KAFKA__SASL_MECHANISM, value: {{ $kafka.saslMechanism }} }
- { name: UCCI_KAFKA__SASL_USERNAME, value: {{ required (printf "kafka.users.%s.username: needed with %s" .user $protocol) $user.username | quote }} }
- name: UCCI_KAFKA__SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ required (printf "kafka.users.%s.passwordSecret: needed with %s" .user $protocol) $user.passwordSecret }}
      key: {{ $user.passwordKey }}
{{- end }}
{{- if $kafka.caSecret }}
- { name: UCCI_KAFKA__SSL_CA_LOCATION, value: /etc/ucci-kafka/ca/ca.crt }
{{- end }}
{{- if $user.certificateSecret }}
- { name: UCCI_KAFKA__SSL_CERTIFICATE_LOCATION, value: /etc/ucci-kafka/user/user.crt }
- { name: UCCI_KAFKA__SSL_KEY_LOCATION, value: /etc/ucci-kafka/user/user.key }
{{- end }}
{{- end -}}

{{- define "ucci.kafkaMounts" -}}
{{- if .root.Values.kafka.caSecret }}
- { name: kafka-ca, mountPath: /etc/ucci-kafka/ca, readOnly: true }
{{- end }}
{{- if (include "ucci.kafkaUser" . | fromJson).certificateSecret }}
- { name: kafka-user, mountPath: /etc/ucci-kafka/user, readOnly: true }
{{- end }}
{{- end -}}

{{- define "ucci.kafkaVolumes" -}}
{{- with .root.Values.kafka.caSecret }}
- name: kafka-ca
  secret: { secretName: {{ . }}, items: [{ key: ca.crt, path: ca.crt }] }
{{- end }}
{{- with (include "ucci.kafkaUser" . | fromJson).certificateSecret }}
- name: kafka-user
  secret:
    secretName: {{ . }}
    defaultMode: 288
    items: [{ key: user.crt, path: user.crt }, { key: user.key, path: user.key }]
{{- end }}
{{- end -}}

{{- /* The pod's name for the broker. Namespace and release are in it: releases on one Kafka do not fence each other. */ -}}
{{- define "ucci.instanceEnv" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
- { name: {{ . }}, value: $(POD_NAMESPACE).$(POD_NAME) }
{{- end -}}

{{- define "ucci.envFrom" -}}
{{- with . }}
envFrom:
  {{- range . }}
  - secretRef: { name: {{ . }} }
  {{- end }}
{{- end }}
{{- end -}}

{{- define "ucci.mounts" -}}
- { name: config, mountPath: /etc/ucci, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- with include "ucci.kafkaMounts" . }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "ucci.volumes" -}}
- name: config
  configMap: { name: {{ .configMap }} }
- name: tmp
  emptyDir: { medium: Memory, sizeLimit: 64Mi }
{{- with include "ucci.kafkaVolumes" . }}
{{ . }}
{{- end }}
{{- end -}}

{{- /* Wait before SIGTERM, which ends listening at once: it takes a while until no proxy leads new connections here. */ -}}
{{- define "ucci.preStop" -}}
{{- if . -}}
lifecycle:
  preStop:
    exec:
      command: [python3, -c, import time; time.sleep({{ . }})]
{{- end -}}
{{- end -}}

{{- /* The start may wait for brokers and for a rebuilt state: two minutes before a restart. */ -}}
{{- define "ucci.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: http }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: http }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /readyz, port: http }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}
