"""The dashboard and the alerts as an operator has them: scraped from the demo's stack by a real Prometheus."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.deploy.ops.live_monitoring import live, lose_the_large_model

pytestmark = [pytest.mark.ops_tools, pytest.mark.timeout(600)]

#: Panels, with the legend, of gateways, of which the demo has none, and of faults that nothing in it has to have.
QUIET = {
    ("Requests by HTTP status", "{{job}} {{status}}"),
    ("Time to an answer, p50 and p99", "p50 {{workload}}"),
    ("Time to an answer, p50 and p99", "p99 {{workload}}"),
    ("Escalated", "{{limit}} binds, {{workload}}"),
    ("Calls not answered", "{{role}} {{outcome}}"),
    ("Versions refused", "{{reason}}"),
    ("Rebalances and client errors", "error {{code}}"),
    ("Dead letters, and records lost, an hour", "router {{reason}}"),
    ("Dead letters, and records lost, an hour", "{{stage}} {{reason}}"),
    ("Dead letters, and records lost, an hour", "lost by {{stage}}"),
}


def test_every_panel_shows_the_demo_and_an_alert_is_delivered(tmp_path: Path) -> None:
    """No query of the dashboard is empty, and a killed model server reaches somebody."""
    with live(tmp_path) as running:
        answers = running.prometheus.panels()
        empty = {(one.panel, one.legend) for one in answers if not one.series}
        assert empty <= QUIET
        micro_f1 = [value for one in answers if one.panel == "micro-F1" for _, value in one.series]
        assert all(math.isfinite(value) and 0.8 < value <= 1.0 for value in micro_f1)
        alert, _ = lose_the_large_model(running)
        assert alert["labels"]["role"] == "large"
        assert "large model of photo-search" in alert["annotations"]["summary"]
