"""The table of states as a page and as JSON; a run of some states leaves the rows of the others as they were."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults.report import commit, machine_class
from tests.support.checkout import ROOT

_RULES = (ROOT / "deploy" / "monitoring" / "rules.yml").read_text(encoding="utf-8")
#: How long an expression must hold before its alert fires.
FIRES_AFTER = {
    name: found.group(1)
    for name, text in re.findall(r"- alert: (\w+)(.*?)(?=- alert:|\Z)", _RULES, re.DOTALL)
    if (found := re.search(r"for: (\w+)", text))
}


def _is(wanted: float) -> Callable[[float, float], bool]:
    return lambda value, _now: value == wanted


#: Alert, the gauge behind it, labels, and whether the expression holds for a value now.
ALERTS: tuple[tuple[str, str, dict[str, str], Callable[[float, float], bool]], ...] = (
    ("UcciKafkaAway", "ucci_kafka_contact_timestamp_seconds", {}, lambda value, now: now - value > 30.0),
    ("UcciTargetDown", "up", {}, _is(0.0)),
    ("UcciRouterNotReady", "ucci_router_ready", {}, _is(0.0)),
    ("UcciModelDown", "ucci_router_model_up", {}, _is(0.0)),
    ("UcciModelOverloaded", "ucci_router_model_overloaded", {}, _is(1.0)),
    ("UcciStageNotReady", "ucci_recalibrator_ready", {}, _is(0.0)),
    ("UcciDiskNearlyFull", "ucci_recalibrator_disk_free_bytes", {}, lambda value, _: value < 1e9),
    ("UcciFitSilent", "ucci_workload_status_timestamp_seconds", {}, lambda value, now: now - value > 900.0),
    ("UcciDrift", "ucci_workload_drift_state", {"state": "drifted"}, _is(1.0)),
    ("UcciTargetInfeasible", "ucci_workload_state", {"state": "infeasible"}, _is(1.0)),
    ("UcciBadLabels", "ucci_workload_state", {"state": "bad_labels_suspected"}, _is(1.0)),
    ("UcciLabelStarvation", "ucci_workload_state", {"state": "label_starved"}, _is(1.0)),
    ("UcciLabelStarvation", "ucci_workload_state", {"state": "labels_one_sided"}, _is(1.0)),
    ("UcciLabelStarvation", "ucci_workload_state", {"state": "stale"}, _is(1.0)),
)
#: Of the machine alone: ports, and the folder that was made for a run.
_OWN = re.compile(r"(127\.0\.0\.1(?::|', )\d+|/[^ ]*/ucci-states-\w+/(?:hard|soft))")


def write(out: Path, row: Mapping[str, Any], order: Sequence[str], command: str) -> None:
    """Put one row among those of earlier runs, and write both files."""
    out.mkdir(parents=True, exist_ok=True)
    place = out / "results.json"
    rows = {one["state"]: one for one in json.loads(place.read_text())["states"]} if place.exists() else {}
    busy = f", {os.getloadavg()[1]:.0f} processes waiting or running"
    made = {"command": command, "commit": commit(), "machine": machine_class() + busy}
    rows[row["state"]] = {**row, **made, "day": f"{datetime.now(UTC):%Y-%m-%d}"}
    states = [rows[name] for name in order if name in rows]
    text = _OWN.sub(
        lambda found: "FOLDER" if found[0][0] == "/" else "HOST:PORT", json.dumps({"states": states}, indent=1)
    )
    place.write_text(text + "\n", encoding="utf-8")
    (out / "README.md").write_text(page(json.loads(text)["states"], order), encoding="utf-8")


def page(states: Sequence[Mapping[str, Any]], order: Sequence[str]) -> str:
    """Return the page: one table for all states, then what each part of the service says."""
    short = sum(bool(one["short"]) for one in states)
    lines = [
        *("# What operators see, state by state", ""),
        "`python -m tests.faults.states` runs a real broker, router, recalibrator and fit as processes, with scripted",
        "model servers and labelers, brings each state about, and asks everything that speaks to an operator.",
        "*Seconds* are from the fault to the headline that names its cause: at most 10 for hard faults, 60 for soft",
        "ones; before it may stand that a change is suspected. *Changes* are those of its kind in the minute after.",
        "Alerts are the expressions of",
        "`deploy/monitoring/rules.yml`, evaluated on the metrics served at the end of that minute; in brackets how",
        "long each must hold before it fires.",
        "",
        "Instances count as silent after 8 s without a report. What labels tell takes labels: some two a second come,",
        "for three minutes before a soft fault; *infeasible* counts from there, *dear* from the first version. A fall",
        "of 2 points shows after thousands of them: the page itself says after how many queries.",
        *("", f"{len(states)} states, {short} of them fall short somewhere.", ""),
        *("| state | seconds | changes | headline | act | falls short |", "|---|---:|---:|---|---|---|"),
    ]
    for one in states:
        said = one.get("named", {}).get("headline", {})
        seconds = "–" if one.get("named_s") is None else f"{one['named_s']:g}"
        words = (said.get("sentence") or one.get("last", ""), said.get("act", ""), "; ".join(one["short"]))
        cells = (one["state"], seconds, str(one.get("changes", "–")), *words)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    for one in (one for one in states if "readyz" in one):
        lines += ["", f"## {one['state'].capitalize()}", ""]
        lines += [f"- **{name}**: {words}" for name, words in _parts(one)]
    if missing := [name for name in order if name not in {one["state"] for one in states}]:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    runs = sorted({(one["day"], one["commit"], one["machine"], one["command"]) for one in states})
    lines += ["", "## Runs", "", *(f"- {day}, {sha}, {machine}: `{command}`" for day, sha, machine, command in runs)]
    return "\n".join([*lines, ""])


def _parts(one: Mapping[str, Any]) -> list[tuple[str, str]]:
    said = one["named"].get("headline", {})
    badge = f"{said['kind'].replace('_', ' ')} ({said['severity']}), state {one['named']['state']}" if said else "–"
    path = " → ".join(f"{kind} at {at_s:g} s" for at_s, kind, _ in one["headlines"])
    path += f"; {one['over_s']:g} s after the fault was mended it was over" if one.get("over_s") else ""
    return [
        ("badge", badge),
        ("headlines", path),
        ("/readyz", ", ".join(f"{of} {words}" for of, words in one["readyz"].items())),
        ("alerts", "; ".join(f"`{alert}`" for alert in one["alerts"]) or "none"),
        ("notices", " / ".join(one["notices"]) or "none"),
        ("`ucci-stream status`", f"exit {one['status']['exit']}: {' '.join(one['status']['says'])}"),
        ("`ucci-stream doctor`", f"exit {one['doctor']['exit']}: {'; '.join(one['doctor']['says']) or 'all is well'}"),
    ]
