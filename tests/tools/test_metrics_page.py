"""One table names every metric, and every metric is named as Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterable
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
ROUTER, RECALIBRATOR, STATUSES = router_metrics.SPECS, recalibrator_metrics.SPECS, recalibrator_metrics.STATUS_SPECS
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
def test_what_is_scraped_is_what_the_table_says(registry: CollectorRegistry, table: Iterable[MetricSpec]) -> None:
    assert exposed(registry) == {spec.exposed: (spec.kind, spec.help) for spec in table}


@pytest.mark.parametrize("spec", [*ROUTER, *RECALIBRATOR, *STATUSES], ids=lambda spec: spec.exposed)
def test_names_follow_the_conventions(spec: MetricSpec) -> None:
    name = spec.exposed
    assert name.startswith(("ucci_router_", "ucci_recalibrator_", "ucci_workload_", "ucci_backlog_", "ucci_kafka_"))
    assert name.endswith("_total") is (spec.kind == "counter")
    assert ("second" in spec.unit) is ("_seconds" in name)
    assert not name.removesuffix("_total").endswith(NOT_BASE_UNITS)
    assert spec.help.endswith(".")
    assert not {"le", "quantile", "instance", "job"} & set(spec.labels)
