"""Metrics made from a table are counted by their names in it, and scraped with the service's prefix."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from ucci_runtime.metrics import metric_table
from ucci_runtime.prometheus_registry import MetricRegistry

SPECS = metric_table(
    "shop_",
    """
sales[kind] counter sale: Sales.
returns counter sale: Returns.
visits[shop,day] counter visit: Visits.
open gauge bool: 1 while open.
wait_seconds histogram second: Waits.
""",
)


@pytest.fixture
def metrics() -> MetricRegistry:
    return MetricRegistry(SPECS, (1.0, 5.0))


def test_metrics_are_scraped_under_the_prefix(metrics: MetricRegistry) -> None:
    metrics.count("sales", 2, kind="book")
    metrics.count("wait_seconds", 3.0)
    metrics.gauge("open", 1.0)
    buckets = {'shop_wait_seconds_bucket{le="1.0"} 0.0', 'shop_wait_seconds_bucket{le="5.0"} 1.0'}
    counts = {'shop_sales_total{kind="book"} 2.0', "shop_returns_total 0.0", "shop_open 1.0"}
    assert buckets | counts <= set(generate_latest(metrics.registry).decode().splitlines())
    # Labels are added up, and gauges left out.
    metrics.count("sales", kind="map")
    assert metrics.totals() == {"sales": 3, "returns": 0}


def test_a_name_that_the_table_lacks_is_an_error(metrics: MetricRegistry) -> None:
    with pytest.raises(KeyError, match="refunds"):
        metrics.count("refunds")


def test_counts_by_a_label_are_those_of_the_others_given(metrics: MetricRegistry) -> None:
    metrics.count("visits", 2, shop="a", day="monday")
    metrics.count("visits", shop="a", day="friday")
    metrics.count("visits", shop="b", day="friday")
    assert metrics.counts_by("day", "visits", shop="a") == {"monday": 2, "friday": 1}
