"""How fast the pure core is: events folded in, refits against scikit-learn's at the same size, one decision.

Every figure is of one thread. Wall clock is what counts; CPU time of the same rounds stands beside it, since a busy
machine stretches the one and not the other. What scikit-learn does in a refit (isotonic fit on all labels, then a scan
of all thresholds) runs in the same rounds as our refit (every curve, standard error and the same scan).

    python -m research.core --json core.json --quick
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from recalibrator.core import Recalibrator, TrafficSummarizer
from recalibrator.fit.method_constants import DEFAULT
from research.results_json import tell
from schemas import CalibrationVersion, LabelledExample, OutcomeCounts, RoutedEvent, TrafficSummary, WorkloadSettings
from schemas.costs import QueryCost
from schemas.routed import LabelRequest, ModelRun

START = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
TARGET = 0.93
SETTINGS = WorkloadSettings.model_validate(
    {"name": "photo", "fields": FIELDS, "target": {"micro_f1": TARGET}, "cost": {"small": 1.0, "large": 3.02}}
)
LABEL_SHARE = 0.1
QUERIES_A_SUMMARY = 200
_CHUNK = 25
_LABELS_A_REFIT = DEFAULT.refit_labels_most
Measured = dict[str, float]


class Cascade:
    """Answers of two models to queries whose difficulty shows in u, drawn ahead with a fixed seed."""

    def __init__(self, queries: int) -> None:
        rng = np.random.default_rng(20260101)
        difficulty = rng.uniform(size=queries)
        self.uncertainty = 1.0 / (1.0 + np.exp(6.0 - 7.0 * difficulty - rng.normal(0.0, 0.3, queries)))
        self.small = rng.binomial(len(FIELDS), 1.0 - 0.34 * difficulty**2)
        self.wrong = 1.0 - (1.0 - 0.34 * difficulty**2) ** len(FIELDS)
        self.large = rng.binomial(len(FIELDS), 0.985 - 0.06 * difficulty)
        self.pair = rng.uniform(size=queries) < 0.3
        # Traffic and labels must say the same of a query, or the stream would drift as it begins.
        self.agree = (self.small == len(FIELDS)) & (self.large == len(FIELDS))

    def label(self, number: int) -> LabelledExample:
        """Return the label of one query; beyond the last, the draws begin again."""
        drawn = number % len(self.uncertainty)
        small, large, pair = int(self.small[drawn]), int(self.large[drawn]), bool(self.pair[drawn])
        routed_at = START + timedelta(milliseconds=10 * number)
        return LabelledExample(
            query_id=f"q-{number}",
            workload="photo",
            uncertainty=float(self.uncertainty[drawn]),
            error_probability=float(self.wrong[drawn]),
            calibration_version=1,
            small_exact=small == len(FIELDS),
            small=OutcomeCounts(true_positives=small, predicted=len(FIELDS)),
            large=OutcomeCounts(true_positives=large, predicted=len(FIELDS)) if pair else None,
            gold_count=len(FIELDS),
            large_probability=0.3,
            label_probability=LABEL_SHARE,
            label_requested=True,
            reason="exploration" if pair else "kept",
            agree=bool(self.agree[drawn]) if pair else None,
            routed_at=routed_at,
            labelled_at=routed_at + timedelta(seconds=30),
        )

    def routed(self, number: int, version: CalibrationVersion) -> RoutedEvent:
        """Return one routed query; its answers agree or not as the draws say."""
        entities: dict[str, str | tuple[str, ...] | None] = {field: f"value of {field}" for field in FIELDS}
        other = entities | {"iso": "another"}
        query_id = f"q-{number}"
        small = ModelRun(model="small", entities=entities, valid=True, latency_s=0.05)
        agree = bool(self.agree[number])
        large = ModelRun(model="large", entities=entities if agree else other, valid=True, latency_s=0.15)
        decision = version.decide(float(self.uncertainty[number]), query_id)
        return RoutedEvent(
            query_id=query_id,
            workload="photo",
            text="canon 5d mark iv with the 70-200 at f2.8",
            entities=entities,
            answered_by="large" if decision.escalated else "small",
            decision=decision,
            small=small,
            large=large if decision.escalated else None,
            cost=QueryCost(sequential=1.0, paper=1.0),
            label=LabelRequest(requested=False, probability=LABEL_SHARE),
            routed_at=START + timedelta(milliseconds=10 * number),
            routed_by="router-0",
        )


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return seconds of wall clock and of CPU."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began_s, time.process_time() - began_cpu_s


def quantiles(seconds: list[float], unit: float) -> Measured:
    """Return median, 99th percentile and least."""
    p50, p99 = np.quantile(seconds, (0.5, 0.99))
    return {"p50": float(p50) * unit, "p99": float(p99) * unit, "least": min(seconds) * unit}


def stream(cascade: Cascade, queries: int, version: CalibrationVersion) -> list[LabelledExample | TrafficSummary]:
    """Return the events of a stream: a summary of each 200 queries, then the labels of a tenth of them."""
    summarizer, events = TrafficSummarizer(SETTINGS), list[LabelledExample | TrafficSummary]()
    for number in range(queries):
        summarizer.add(cascade.routed(number, version))
        if (number + 1) % QUERIES_A_SUMMARY == 0:
            summary = summarizer.take()
            if summary is not None:
                events.append(summary)
            labelled = range(number + 1 - QUERIES_A_SUMMARY, number + 1, round(1 / LABEL_SHARE))
            events.extend(cascade.label(one) for one in labelled)
    return events


def fold(events: list[LabelledExample | TrafficSummary], rounds: int) -> Measured:
    """Fold the stream, refits and publications included, into a new core each round.

    Equal events are equal work, so that the least time of each chunk over all rounds, added up, is what a quiet
    machine would take: ``undisturbed``.
    """
    chunks = [events[first : first + _CHUNK] for first in range(0, len(events), _CHUNK)]
    wall = np.empty((rounds, len(chunks)))
    versions = 0
    for number in range(rounds):
        core, versions = Recalibrator(SETTINGS), 0
        for place, chunk in enumerate(chunks):
            began_s = time.perf_counter()
            for event in chunk:
                versions += core.observe(event) is not None
            wall[number, place] = time.perf_counter() - began_s
    queries = QUERIES_A_SUMMARY * sum(isinstance(event, TrafficSummary) for event in events)
    median_s, undisturbed_s = float(np.median(wall.sum(axis=1))), float(wall.min(axis=0).sum())
    return {
        "events": len(events),
        "queries": queries,
        "versions": versions,
        "events_per_s": len(events) / median_s,
        "events_per_s_undisturbed": len(events) / undisturbed_s,
        "queries_per_s": queries / median_s,
        "queries_per_s_undisturbed": queries / undisturbed_s,
    }


def sklearn_refit(u: NDArray[np.float64], small: NDArray[np.int64], large: NDArray[np.int64]) -> float:
    """Fit g on all labels and scan all thresholds on micro-F1, as a batch script would."""
    IsotonicRegression(out_of_bounds="clip").fit(u, small < len(FIELDS))
    order = np.argsort(u)
    kept, escalated = np.cumsum(small[order]), np.cumsum(large[order][::-1])[::-1]
    feasible = np.flatnonzero(kept[:-1] + escalated[1:] >= TARGET * len(FIELDS) * len(u))
    return float(u[order][feasible[-1]]) if len(feasible) else -1.0


def refit(cascade: Cascade, labels: int, rounds: int) -> dict[str, Any]:
    """Refit after so many labels: our window as it ships, our window as large as the labels, and scikit-learn.

    Before each of our refits come as many new labels as lie between two of them in a service that runs. ``cold`` is the
    first one after scikit-learn has swept the processor's caches, with the window as it ships.
    """
    shipped = Recalibrator(SETTINGS)
    whole = Recalibrator(SETTINGS, replace(DEFAULT, window_labels=labels))
    offered = 0

    def offer(count: int) -> None:
        """Fill both windows without the refits on the way."""
        nonlocal offered
        for number in range(offered, offered + count):
            label = cascade.label(number)
            shipped._labels.offer(label)  # noqa: SLF001
            whole._labels.offer(label)  # noqa: SLF001
        offered += count

    offer(labels)
    u, small, large = cascade.uncertainty[:labels], cascade.small[:labels], cascade.large[:labels]
    works: dict[str, Callable[[], object]] = {
        "cold": shipped.evaluate,
        "shipped": shipped.evaluate,
        "whole": whole.evaluate,
        "sklearn": lambda: sklearn_refit(u, small, large),
    }
    wall: dict[str, list[float]] = {name: [] for name in works}
    cpu: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        offer(_LABELS_A_REFIT)
        for name, work in works.items():
            if name == "shipped":
                offer(_LABELS_A_REFIT)
            took = timed(work)
            wall[name].append(took[0])
            cpu[name].append(took[1])
    found: dict[str, Any] = {"labels": labels, "rounds": rounds}
    for name in works:
        found[name] = {"wall_ms": quantiles(wall[name], 1e3), "cpu_ms": quantiles(cpu[name], 1e3)}
    for name in ("cold", "shipped", "whole"):
        ratios = [theirs / ours for theirs, ours in zip(wall["sklearn"], wall[name], strict=True)]
        found[f"sklearn_over_{name}"] = float(np.median(ratios))
    return found


def per_call(work: Callable[[int], object], calls: int, rounds: int) -> Measured:
    """Return nanoseconds a call, over rounds of many calls."""

    def run() -> None:
        for number in range(calls):
            work(number)

    return quantiles([timed(run)[0] / calls for _ in range(rounds)], 1e9)


def decide_many(version: CalibrationVersion, uncertainty: NDArray[np.float64], rounds: int) -> Measured:
    """Return decisions a second, in pieces as a replay takes them; once without and once with exploration's draws."""
    draws = np.random.default_rng(20260102).uniform(size=len(uncertainty))
    pieces = [slice(first, first + 10_000) for first in range(0, len(uncertainty), 10_000)]

    def plain() -> None:
        for piece in pieces:
            version.decide_many(uncertainty[piece])

    def drawn() -> None:
        for piece in pieces:
            version.decide_many(uncertainty[piece], draws[piece])

    found = {}
    for name, work in (("per_s", plain), ("per_s_with_draws", drawn)):
        found[name] = len(uncertainty) / float(np.median([timed(work)[0] for _ in range(rounds)]))
    return found


def measure(*, quick: bool) -> dict[str, Any]:
    """Run all."""
    queries, rounds = (40_000, 3) if quick else (200_000, 5)
    cascade = Cascade(1_000_000)
    core = Recalibrator(SETTINGS)
    version = next(found for number in range(10_000) if (found := core.observe(cascade.label(number))) is not None)
    events = stream(cascade, queries, version)
    routed = [cascade.routed(number, version) for number in range(2_000)]
    summarizer = TrafficSummarizer(SETTINGS)
    names = [f"q-{number}" for number in range(20_000)]
    sizes = (10_000, 100_000) if quick else (10_000, 1_000_000)
    add = per_call(lambda number: summarizer.add(routed[number]), len(routed), 4 * rounds)
    return {
        "observe_stream": fold(events, rounds),
        "observe_labels_alone": fold([event for event in events if isinstance(event, LabelledExample)], rounds),
        "observe_summaries_alone": fold([event for event in events if isinstance(event, TrafficSummary)], rounds),
        "summarizer_add": {"ns": add, "per_s": 1e9 / add["p50"]},
        "decide_ns": per_call(lambda number: version.decide(0.2, names[number]), len(names), 4 * rounds),
        "decide_escalated_ns": per_call(lambda number: version.decide(0.9, names[number]), len(names), 4 * rounds),
        "decide_many": decide_many(version, cascade.uncertainty, 4 * rounds),
        "refit": [refit(cascade, labels, 20 if quick else 100 if labels < 100_000 else 20) for labels in sizes],
    }


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="Speed of the recalibration core.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer events and rounds")
    options = parser.parse_args()
    tell(measure(quick=options.quick), options.json)


if __name__ == "__main__":
    main()
