"""One table names every metric, and every metric is named as Prometheus asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from recalibrator import metrics as recalibrator_metrics
from recalibrator.prometheus_metrics import Metrics as RecalibratorMetrics
from stream_router import prometheus_metrics as router_metrics
from stream_router.prometheus_metrics import Metrics as RouterMetrics
from tools.docs.metrics_page import PATH, page
from ucci_runtime.metrics import MetricSpec

ROOT = Path(__file__).parents[2]
ROUTER = {spec.name: spec for spec in router_metrics.SPECS}
RECALIBRATOR = {recalibrator_metrics.exposed_name(spec): spec for spec in recalibrator_metrics.SPECS}
STATUSES = recalibrator_metrics.status_metrics()
NOT_BASE_UNITS = ("milliseconds", "_ms", "minutes", "hours", "kilobytes", "_kb", "_mb", "percent")


def exposed(registry: CollectorRegistry) -> dict[str, tuple[str, str]]:
    """Return kind and help by the name under which a metric is scraped."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, family.documentation)
        for family in registry.collect()
    }


def test_the_page_in_the_repository_is_that_of_the_code() -> None:
    assert (ROOT / PATH).read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize(
    ("registry", "table"),
    [(RouterMetrics().registry, ROUTER), (RecalibratorMetrics().registry, RECALIBRATOR)],
    ids=["router", "recalibrator"],
)
def test_what_is_scraped_is_what_the_table_says(registry: CollectorRegistry, table: dict[str, MetricSpec]) -> None:
    assert exposed(registry) == {name: (spec.kind, spec.help) for name, spec in table.items()}


@pytest.mark.parametrize(("name", "spec"), [*ROUTER.items(), *RECALIBRATOR.items(), *STATUSES.items()])
def test_names_follow_the_conventions(name: str, spec: MetricSpec) -> None:
    assert name.startswith(("ucci_router_", "ucci_recalibrator_", "ucci_workload_", "ucci_backlog_", "ucci_kafka_"))
    assert name.endswith("_total") is (spec.kind == "counter")
    assert ("second" in spec.unit) is ("_seconds" in name)
    assert not name.removesuffix("_total").endswith(NOT_BASE_UNITS)
    assert spec.help.endswith(".")
    assert not {"le", "quantile", "instance", "job"} & set(spec.labels)
