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
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.queries" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.results" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.calibration" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.calibration-trial" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.routers" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.dead-letters" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.feedback" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Read \
  --group "${PREFIX}-router" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Describe \
  --group "${PREFIX}-router-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$ROUTER" --operation Write \
  --transactional-id "${PREFIX}-router-" --resource-pattern-type prefixed

# recalibrator
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.results" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.feedback" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.join-repartition" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.observations" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.calibration" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.calibration-history" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.calibration-trial" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.status" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.routers" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.recalibrators" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.label-requests" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.happenings" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read --operation Write --operation DescribeConfigs \
  --topic "${PREFIX}.dead-letters" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read \
  --group "${PREFIX}-join" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Read \
  --group "${PREFIX}-fit" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Describe \
  --group "${PREFIX}-versions-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Describe \
  --group "${PREFIX}-view-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Describe \
  --group "${PREFIX}-dead-letters-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Describe \
  --group "${PREFIX}-results-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Write \
  --transactional-id "${PREFIX}-join-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$RECALIBRATOR" --operation Write \
  --transactional-id "${PREFIX}-fit-" --resource-pattern-type prefixed

# operator
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.queries" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.results" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.feedback" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.status" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs --operation Describe \
  --topic "${PREFIX}.label-requests" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.join-repartition" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs --operation Write \
  --topic "${PREFIX}.observations" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.calibration" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe --operation DescribeConfigs \
  --topic "${PREFIX}.calibration-history" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe --operation DescribeConfigs \
  --topic "${PREFIX}.calibration-trial" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.routers" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read --operation DescribeConfigs \
  --topic "${PREFIX}.recalibrators" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe --operation DescribeConfigs \
  --topic "${PREFIX}.happenings" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe --operation DescribeConfigs --operation Read \
  --topic "${PREFIX}.dead-letters" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation DescribeConfigs --operation Create --operation Describe \
  --topic "${PREFIX}." --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-ask-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-label-queue" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-label-tool-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-router" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-join" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-fit" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Describe \
  --group "${PREFIX}-doctor" --resource-pattern-type literal
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Read \
  --group "${PREFIX}-" --resource-pattern-type prefixed
$KAFKA_ACLS --add --allow-principal "$OPERATOR" --operation Write \
  --transactional-id "${PREFIX}-bootstrap-" --resource-pattern-type prefixed
