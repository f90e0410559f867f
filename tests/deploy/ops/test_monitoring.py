"""Alerts and dashboard: each query asks for metrics that exist, with labels that they have, and has a way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from recalibrator import metrics as recalibrator_metrics
from stream_router import prometheus_metrics as router_metrics
from tools.ops.dashboard import queries
from tools.ops.render import CHART

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
RUNBOOKS = ROOT / "docs" / "operations.md"
FOREIGN = {"up", "certmanager_certificate_expiration_timestamp_seconds", "strimzi_certificate_expiration_timestamp_ms"}
OF_THE_SCRAPE = {"job", "instance", "namespace", "pod", "le"}
SUFFIXES = ("_bucket", "_sum", "_count")


def known() -> dict[str, set[str]]:
    """Return the labels of each metric of ours, by exposed name."""
    specs = (*router_metrics.SPECS, *recalibrator_metrics.SPECS, *recalibrator_metrics.STATUS_SPECS)
    return {spec.exposed: set(spec.labels) for spec in specs}


def selectors(node: Any) -> Iterator[Any]:
    """Return every vector selector of a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    inner = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param", "vector_selector", "vs")]
    for child in (*inner, *(getattr(node, "args", None) or ())):
        if child is not None and not isinstance(child, str):
            yield from selectors(child)


def parsed(query: str) -> list[Any]:
    found = list(selectors(promql_parser.parse(query.replace("$__rate_interval", "5m").replace("$workload", ".*"))))
    assert found, query
    return found


def unknown(query: str) -> list[str]:
    """Return the metrics, and labels of metrics, that a query names and nothing exposes."""
    tables = known()
    faults = []
    for selector in parsed(query):
        name = str(selector.name)
        base = next((name.removesuffix(end) for end in SUFFIXES if name.removesuffix(end) in tables), name)
        if base not in tables and name not in FOREIGN:
            faults.append(name)
            continue
        labels = {matcher.name for matcher in selector.matchers.matchers}
        faults += [f"{name}{{{label}}}" for label in labels - tables.get(base, labels) - OF_THE_SCRAPE]
    return faults


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


ALERTS = [str(rule["alert"]) for rule in rules()]


@pytest.mark.parametrize("query", [*(rule["expr"] for rule in rules()), *queries()])
def test_alert_or_panel_asks_for_what_is_exposed(query: str) -> None:
    assert unknown(query) == []


def test_query_for_what_nothing_exposes_is_found() -> None:
    """Autoscaling asks for what is exposed, too."""
    assert unknown("sum(rate(ucci_router_answers_total[5m]))") == ["ucci_router_answers_total"]
    assert unknown('ucci_router_ready{workload="a"}') == ["ucci_router_ready{workload}"]
    assert unknown("sum(ucci_router_backlog)") == []
    text = (CHART / "templates" / "router.yaml").read_text(encoding="utf-8")
    assert re.findall(r"ucci_\w+", text.partition("query:")[2].partition("\n")[0]) == ["ucci_router_backlog"]


def test_every_alert_has_its_runbook_and_no_other_has() -> None:
    found = re.findall(r"^### (Ucci\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(found) == sorted(ALERTS)
    assert {rule["alert"]: rule["annotations"]["runbook"] for rule in rules()} == {
        name: f"docs/operations.md#{name.lower()}" for name in ALERTS
    }


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    """`make test-ops` runs these tests with promtool."""
    cases = yaml.safe_load((MONITORING / "rules_test.yml").read_text(encoding="utf-8"))["tests"]
    fires = {one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]}
    assert fires == set(ALERTS)


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_summary_names_labels_that_the_query_keeps(rule: dict[str, Any]) -> None:
    """A label that an aggregation drops would be an empty place in the message."""
    wanted = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    for found in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
        labels = set(found.split(", "))
        assert wanted <= labels | ({"job"} if "job" in labels else set())


def test_dashboard_shows_every_alerts_subject() -> None:
    """Whoever is paged finds the metric on the dashboard, but for what other systems expose."""
    shown = {str(selector.name) for query in queries() for selector in parsed(query)}
    asked = {str(selector.name) for rule in rules() for selector in parsed(rule["expr"])} - FOREIGN
    assert asked - shown == set()


def test_compose_scrapes_what_compose_starts() -> None:
    scraped = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    targets = {target for job in scraped for one in job.get("static_configs", ()) for target in one["targets"]}
    looked_up = {name for job in scraped for one in job.get("dns_sd_configs", ()) for name in one["names"]}
    services = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    named = {target.partition(":")[0] for target in targets}
    assert named | looked_up <= services.keys()
    # What a profile may leave out is looked up: a fixed target would be down, and page somebody.
    assert looked_up == {"gateway"}
    assert "gateway" not in named
