"""``ucci-stream demo``: a scenario on the stack, watched from outside: it knows what a user of the topics knows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from schemas.basis import handoff_name
from schemas.command import Command
from schemas.event import rfc3339
from schemas.routed import QueryEvent
from schemas.settings_workload import Sampling
from schemas.target_words import estimated
from schemas.topics import QUERIES
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic, with_handoff
from ucci_stream.demo.scenario import (
    TRUSTED_LABELER,
    PlannedQuery,
    Scenario,
    offline_calibration,
    offline_examples,
    offline_set,
    plan_stream,
)
from ucci_stream.demo.summary import (
    Observations,
    Row,
    Summary,
    Terms,
    print_summary,
    served_row,
    static_row,
    summarise,
)
from ucci_stream.demo.watch import Watcher
from ucci_stream.local.processes import await_signal, unwound_by_signals
from ucci_stream.local.stack import WORKLOAD, Stack, StackOptions
from ucci_stream.offline.bootstrap import send_events
from ucci_stream.offline.pictures import GOAL, INK, MAIN, MUTED, over_time, write
from ucci_stream.topics.admin import client_properties

_RECENT = 1_000
_PLAIN_EVERY = 2_000


@contextmanager
def _live_view(console: Console, watcher: Watcher, total: int, target: float) -> Iterator[Callable[[int], None]]:
    """Yield what shows how the stream stands, by how many are sent: drawn on a terminal, else a line now and then."""
    columns = (TextColumn("queries"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars, next_line = Progress(*columns, console=console), _PLAIN_EVERY
    task = bars.add_task("queries", total=total)

    def draw(sent: int) -> None:
        bars.update(task, completed=watcher.answered)
        table = Table.grid(padding=(0, 2))
        for name, value in _rows(watcher, sent, target):
            table.add_row(f"[bold]{name}[/]", value)
        live.update(Group(bars, table))

    def tell(sent: int) -> None:
        nonlocal next_line
        if watcher.answered >= next_line:
            next_line += _PLAIN_EVERY
            line = ", ".join(f"{name} {value}" for name, value in _rows(watcher, sent, target))
            console.print(line, highlight=False, soft_wrap=True)

    if not console.is_terminal:
        yield tell
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield draw


def _rows(watcher: Watcher, sent: int, target: float) -> list[tuple[str, str]]:
    seen, status = watcher.seen, watcher.seen.status
    recent = list(seen.results.values())[-_RECENT:]
    escalated = sum(result.routed.decision.escalated for result in recent) / max(1, len(recent))
    phase = "drifted traffic" if seen.drift_started_s is not None else "clean traffic"
    rows = [("sent", str(sent)), ("answered", str(watcher.answered)), ("traffic", phase)]
    rows.append(("escalation", f"{escalated:.1%} of the last {len(recent)}"))
    rows.append(("version", str(seen.versions[-1].version.version) if seen.versions else "none"))
    if status is not None and status.micro_f1 is not None:
        rows.append(("estimated micro-F1", f"{estimated(status.micro_f1)}, target {target}"))
    if status is not None:
        rows.append(("drift detectors", status.drift.state))
    if seen.killed_s is not None:
        rows.append(("killed router", "restarting" if seen.first_commit_after_kill_s is None else "back"))
    return rows


QUERIES_PER_SECOND = 120
_MAX_UNANSWERED = 600
_DRAIN_TIMEOUT_S = 120.0
_BOOTSTRAP_TIMEOUT_S = 120.0
_KILLED_ROUTER = 1
_TICK_S = 0.25


class DemoOptions(NamedTuple):
    """What ``ucci-stream demo`` was asked for."""

    seconds: int
    queries: int | None
    keep: bool
    summary_path: Path | None
    seed: int
    stack: StackOptions


_SAMPLING = 0.05, 0.15, 0.20
"""Exploration, and labels of kept and of escalated queries: for a stream of minutes."""

_MARGINS = tuple(0.0025 * step for step in range(13))
"""Points of micro-F1 by which a static calibration may exceed the target."""


def run_demo(options: DemoOptions, console: Console) -> int:
    """Run the demo and return its exit code: 0 when nothing was lost and the target was held again."""
    usual, explored, kept, up = Sampling(), *_SAMPLING
    stack_options = options.stack._replace(
        exploration=explored, label_kept=kept, label_escalated=up, trusted_labelers=(TRUSTED_LABELER,)
    )
    scenario = Scenario(queries=options.queries or options.seconds * QUERIES_PER_SECOND, seed=options.seed)
    traffic = load_traffic()
    stream = plan_stream(traffic, scenario)
    console.print(
        f"Other than by default, for a stream of minutes: exploration {explored:g} instead of "
        f"{usual.exploration_probability:g}, labels for {kept:g} of kept and {up:g} of escalated queries instead of "
        f"{usual.label_probability_kept:g} and {usual.label_probability_escalated:g}, after "
        f"{scenario.label_delay:.0f} queries on average."
    )
    with (
        unwound_by_signals(),
        Stack(stack_options, console) as stack,
        Watcher(stack.settings, stream, scenario) as watcher,
    ):
        offline = offline_set(traffic)
        publish_offline(stack, offline, watcher, console)
        _stream(stack, stream, options, watcher, console)
        terms = _terms(stack, offline)
        summary = summarise(stream, watcher.seen, scenario, terms)
        picture = plot_run(stream, watcher.seen, scenario, terms, options.stack.directory / "demo.png")
        _report(summary, picture, options, console)
        if options.keep:
            line = f"left running until Ctrl-C: {stack.addresses.recalibrator}/"
            await_signal(stack.require_alive, lambda: console.print(line, highlight=False))
    return 0 if summary.succeeded else 1


def publish_offline(stack: Stack, offline: list[RecordedQuery], watcher: Watcher, console: Console) -> None:
    """Publish what the paper's user would have: the offline calibration, and the labelled queries behind it.

    Where the workload hands over, the large model's answers to them are those that it gives behind its handoff: of
    answers given otherwise nothing would be learned, and the first threshold would be that of another cascade. Raises
    StackFailed when the service has not taken them in time.
    """
    moment = datetime.now(UTC)
    handoff = handoff_name(stack.settings.workloads[WORKLOAD].offered_handoff)
    if handoff is not None:
        offline = with_handoff(offline)
    fitted, threshold = offline_calibration(offline, stack.options.micro_f1)
    command = Command(
        workload=WORKLOAD,
        action="bootstrap",
        map=fitted,
        uncertainty_threshold=threshold,
        examples=len(offline),
        issued_by="demo",
        issued_at=moment - timedelta(seconds=len(offline) + 1),
        reason="offline calibration as in the paper",
    )
    # The command goes first: folded before it, the examples alone would lead to a first version of the core's own.
    send_events(stack.settings, WORKLOAD, [command, *offline_examples(offline, WORKLOAD, moment, handoff)])
    first = watcher.await_first_version(_BOOTSTRAP_TIMEOUT_S)
    # The stream begins once its past is folded in: versions made while catching up do not answer the stream.
    watcher.await_labels(len(offline), _BOOTSTRAP_TIMEOUT_S)
    console.print(
        f"[green]✓[/] {'calibrated':<14} offline, on {len(offline)} recorded queries: version {first.version}, "
        f"escalate u > {first.uncertainty_threshold:.4f}",
        highlight=False,
        soft_wrap=True,
    )


def _terms(stack: Stack, offline: list[RecordedQuery]) -> Terms:
    """Return what the run is judged by; the static calibration beside it knows no lever, as the paper's."""
    target, costs = stack.options.micro_f1, stack.settings.workloads[WORKLOAD].cost
    assert costs is not None, "the stack's configuration prices tokens"
    thresholds = {margin: offline_calibration(offline, target + margin)[1] for margin in _MARGINS}
    return Terms(target, costs, thresholds)


def _stream(stack: Stack, stream: list[PlannedQuery], options: DemoOptions, watcher: Watcher, console: Console) -> None:
    """Send the queries at an even pace, kill a router half-way, and wait until all are answered."""
    watcher.begin()
    sender = _Sender(stack, stream, options.seconds, watcher)
    sender.start()
    killed = False
    with _live_view(console, watcher, len(stream), stack.options.micro_f1) as show:
        while sender.is_alive():
            time.sleep(_TICK_S)
            if not killed and sender.sent >= len(stream) // 2:
                killed = True
                stack.routers[_KILLED_ROUTER].kill()
                watcher.router_killed(f"router-{_KILLED_ROUTER}")
                stack.routers[_KILLED_ROUTER].start()  # as an orchestrator would; nobody waits until it is ready
            stack.require_alive()
            show(sender.sent)
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        while watcher.answered < len(stream) and time.monotonic() < deadline:
            time.sleep(_TICK_S)
            stack.require_alive()
            show(sender.sent)
    sender.join()
    watcher.settle()


class _Sender(threading.Thread):
    """Sends the queries at an even pace; waits when too many are unanswered."""

    def __init__(self, stack: Stack, stream: list[PlannedQuery], seconds: float, watcher: Watcher) -> None:
        super().__init__(name="demo-sender", daemon=True)
        self._topic = QUERIES.name(stack.settings.topics.prefix)
        self._producer = Producer(client_properties(stack.settings, linger_ms=5, enable_idempotence=True))
        self._stream = stream
        self._pause_s = seconds / len(stream)
        self._watcher = watcher
        self.sent = 0

    def run(self) -> None:
        """Send all queries, then wait for the broker's acknowledgements."""
        due = time.monotonic()
        for query in self._stream:
            due += self._pause_s
            while self.sent - self._watcher.answered > _MAX_UNANSWERED:
                time.sleep(0.02)
            self._watcher.await_fit()
            # What was lost by waiting is not made up for in a burst.
            due = max(due, time.monotonic() - _TICK_S)
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            event = QueryEvent(query_id=query.query_id, text=query.recorded.text, created_at=datetime.now(UTC))
            self._producer.produce(self._topic, key=query.query_id.encode(), value=event.to_json())
            self._producer.poll(0)
            self.sent += 1
        self._producer.flush(_DRAIN_TIMEOUT_S)


def _report(summary: Summary, picture: Path, options: DemoOptions, console: Console) -> None:
    document = {**summary.to_document(), "finished_at": rfc3339(datetime.now(UTC)), "picture": str(picture)}
    text = json.dumps(document, indent=2) + "\n"
    kept = options.stack.directory / "summary.json"
    for path in filter(None, {kept, options.summary_path}):
        path.write_text(text, encoding="utf-8")
    print_summary(summary, console)
    console.print(f"summary {kept}, picture {picture}", highlight=False, soft_wrap=True)


_WINDOW = 800

Counts = NDArray[np.float64]


def plot_run(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario, terms: Terms, path: Path) -> Path:
    """Draw the run and write it as PNG or SVG, by the path's ending."""
    figure, top, bottom = over_time((10.0, 6.2))
    results = ((query, seen.results.get(query.query_id)) for query in stream)
    served = _counts([None if one is None else served_row(query, one.routed) for query, one in results])
    static = _counts([static_row(query, terms.static_thresholds[0.0], terms.costs) for query in stream])
    index = np.arange(len(stream))
    top.plot(index, _rolling_f1(static[:, :3]), color=GOAL, lw=1.4, label="static calibration")
    bottom.plot(index, _rolling_mean(static[:, 3]), color=GOAL, lw=1.4)
    top.plot(index, _rolling_f1(served[:, :3]), color=MAIN, lw=2.0, label="this service")
    bottom.plot(index, _rolling_mean(served[:, 3]), color=MAIN, lw=2.0)
    top.axhline(terms.target, color=MUTED, lw=1.0, ls="--", label=f"target {terms.target}")
    top.set_ylabel(f"micro-F1, last {_WINDOW} queries")
    bottom.set_xlabel("query")
    bottom.set_ylim(bottom=0.0)
    _mark(top, bottom, len(stream) - 1, seen, scenario)
    top.legend(loc="lower left", frameon=False)
    top.margins(x=0.01)
    top.set_title("Traffic changes at each dotted line; each tick is a calibration version", loc="left")
    return write(figure, path)


def _mark(top: Any, bottom: Any, last: int, seen: Observations, scenario: Scenario) -> None:
    """Mark the drift, the kill and the versions."""
    order = np.array(sorted(result.seen_s for result in seen.results.values()))
    for axes in (top, bottom):
        for start in scenario.starts[1:]:
            axes.axvline(start, color=INK, lw=1.0, ls=":")
    at: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    for start, one in zip(scenario.starts, scenario.stretches, strict=True):
        top.annotate(one.title, (start, 1.0), xytext=(6, -12), color=INK, **at)
    if seen.killed_s is not None:
        killed = int(np.searchsorted(order, seen.killed_s))
        for axes in (top, bottom):
            axes.axvline(killed, color=GOAL, lw=1.0, ls=(0, (1, 3)))
        top.annotate("router killed", (killed, 0.0), xytext=(6, 6), color=GOAL, **at)
    for version in seen.versions:
        came = int(np.searchsorted(order, version.published_s))
        bottom.axvline(min(came, last), ymax=0.08, color=INK, lw=1.2)


def _counts(rows: Sequence[Row | None]) -> Counts:
    """Return pairs right, named and to be found, and whether it escalated: a row a query, 0 where it has no answer."""
    return np.array([(0, 0, 0, 0) if row is None else row[:4] for row in rows], dtype=float)


def _rolling_sum(values: Counts) -> Counts:
    total = np.concatenate((np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)))
    last = np.arange(1, len(values) + 1)
    return np.asarray(total[last] - total[np.maximum(0, last - _WINDOW)])


def _rolling_f1(counts: Counts) -> Counts:
    """Return micro-F1 over the last window, NaN while it is less than half full."""
    hits, predicted, gold = _rolling_sum(counts).T
    with np.errstate(invalid="ignore", divide="ignore"):
        score = 2.0 * hits / (predicted + gold)
    score[: _WINDOW // 2] = np.nan
    return np.asarray(score)


def _rolling_mean(values: Counts) -> Counts:
    count = np.minimum(np.arange(1, len(values) + 1), _WINDOW)
    mean = _rolling_sum(values) / count
    mean[: _WINDOW // 2] = np.nan
    return np.asarray(mean)
