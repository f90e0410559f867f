#!/bin/sh
# Written by `python -m tools.ops.generated` from schemas/topics.py; change that instead.
#
# Give the users of ucci-stream their rights, with Kafka's own tool:
#   KAFKA_ACLS="kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties" PREFIX=ucci \
#     ROUTER=User:ucci-router RECALIBRATOR=User:ucci-recalibrator OPERATOR=User:ucci-operator sh acls.sh
# Safe to repeat. `Read` and `Write` bring `Describe` with them.
set -eu
: "${KAFKA_ACLS:=kafka-acls.sh --bootstrap-server localhost:9092}" "${PREFIX:=ucci}"
: "${ROUTER:=User:ucci-router}" "${RECALIBRATOR:=User:ucci-recalibrator}" "${OPERATOR:=User:ucci-operator}"

# router
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read --operation Describe \
  --topic "${PREFIX}.queries" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation Describe \
  --topic "${PREFIX}.results" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read --operation Describe \
  --topic "${PREFIX}.calibration" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read --operation Describe \
  --topic "${PREFIX}.calibration-trial" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation Describe \
  --topic "${PREFIX}.routers" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation Describe \
  --topic "${PREFIX}.dead-letters" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation DescribeConfigs \
  --topic "${PREFIX}." --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read \
  --group "${PREFIX}-router" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation Describe \
  --transactional-id "${PREFIX}-router-" --resource-pattern-type prefixed

# recalibrator
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.results" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.feedback" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.observations" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.calibration" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.calibration-history" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.calibration-trial" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.status" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.routers" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.recalibrators" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.label-requests" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Describe --operation Write \
  --topic "${PREFIX}.dead-letters" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation DescribeConfigs \
  --topic "${PREFIX}." --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read \
  --group "${PREFIX}-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Write --operation Describe \
  --transactional-id "${PREFIX}-join-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Write --operation Describe \
  --transactional-id "${PREFIX}-fit-" --resource-pattern-type prefixed

# operator
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write --operation Describe \
  --topic "${PREFIX}.queries" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.results" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write --operation Describe \
  --topic "${PREFIX}.feedback" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write --operation Describe \
  --topic "${PREFIX}.observations" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.calibration" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.status" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.label-requests" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation Describe \
  --topic "${PREFIX}.dead-letters" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation DescribeConfigs --operation Create --operation Describe \
  --topic "${PREFIX}." --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read \
  --group "${PREFIX}-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write --operation Describe \
  --transactional-id "${PREFIX}-bootstrap-" --resource-pattern-type prefixed
