"""Results → JSON and a Markdown page: latency through the gateway as a ratio, and what the acknowledgement adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.gateway.experiment import QUANTILES
from research.paper.tables import signed, table
from research.results_json import receipt, write_report

_PATHS = {"direct": "direct call", "kept": "gateway, kept", "escalated": "gateway, escalated"}


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    ``results``: as :func:`research.gateway.experiment.run` returns them. ``made``: how the results came about: command,
    machine, day and the like.
    """
    write_report(folder, results, made, _page)


def _page(results: dict[str, Any], made: dict[str, Any]) -> str:
    parts = [
        "# Gateway: latency against a direct call",
        receipt(made),
        _SETTING.format(rounds=len(results["loads"][0]["rounds"])),
        _latencies(results["loads"]),
        "## What the acknowledgement costs",
        _ACKNOWLEDGEMENT,
        _acknowledgements(results["loads"]),
        _COUNTS.format(**results),
    ]
    return "\n\n".join(parts) + "\n"


_SETTING = """A local Kafka broker, `stream-router serve` and a fake model server that answers every call after its
service time, each a process; the callers are another one, and all of them share the machine. Callers ask again as soon
as they are answered. Loads and paths take turns, {rounds} rounds; a ratio is one of latencies within a round. Every
figure is the median of rounds; in brackets the least and the largest. *Kept*: one model call, then the result's
acknowledgement. *Escalated*: two model calls in a row, so that its ratio cannot be below 2. With one caller p99 is
close to the slowest answer of a turn."""

_ACKNOWLEDGEMENT = """The same gateway, run beside it, answers as soon as the result is queued for the broker
(`research/gateway/unacknowledged.py`). What it saves is what 200-after-acknowledgement costs: here of a broker on the
same machine, without replicas. On a cluster it is a produce request with `acks=all`."""


_COUNTS = """{answered:,} queries were answered with 200 in this run, and {answered_without_result} of them have no
result in the topic. {strayed} took another path than the one that was measured, because a call to the small model
failed."""


def _latencies(loads: list[dict[str, Any]]) -> str:
    head = ("callers", "service", "path", "answers/s", "p50", "p99", "p50 ratio", "p99 ratio")
    rows = []
    for load in loads:
        for path, words in _PATHS.items():
            figures = load["median"][path]
            ratios = ["1", "1"] if path == "direct" else [_ranged(load, path, f"{q}_ratio") for q in QUANTILES]
            times = [f"{figures[f'{q}_ms']:,.0f} ms" for q in QUANTILES]
            service = f"{load['service_ms']:,} ms"
            rows.append([f"{load['callers']:,}", service, words, f"{figures['per_s']:,.0f}", *times, *ratios])
    return table(head, rows)


def _acknowledgements(loads: list[dict[str, Any]]) -> str:
    head = ("callers", "p50 without the wait", "p99 without the wait", "the wait adds to p50", "to p99")
    rows = [
        [
            f"{load['callers']:,}",
            *(f"{load['median']['unacknowledged'][f'{q}_ms']:,.0f} ms" for q in QUANTILES),
            *(f"{_added(load, f'{q}_acknowledged_ms')} ms" for q in QUANTILES),
        ]
        for load in loads
    ]
    return table(head, rows)


def _ranged(load: dict[str, Any], path: str, key: str) -> str:
    values = [one[path][key] for one in load["rounds"]]
    return f"{load['median'][path][key]:.2f} [{min(values):.2f}, {max(values):.2f}]"


def _added(load: dict[str, Any], key: str) -> str:
    values = [one["kept"][key] for one in load["rounds"]]
    low, high = (signed(value, 1) for value in (min(values), max(values)))
    return f"{signed(load['median']['kept'][key], 1)} [{low}, {high}]"
