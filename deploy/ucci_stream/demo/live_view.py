"""The demo while it runs: progress, quality, escalation, version and drift, redrawn a few times a second."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ucci_stream.demo.watch import Watcher

_RECENT = 1_000
_PLAIN_EVERY = 2_000


class LiveView:
    """Draws on a terminal; prints a line now and then where there is none."""

    def __init__(self, console: Console, total: int, target: float) -> None:
        columns = (TextColumn("queries"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("queries", total=total)
        self._target = target
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._next_line = _PLAIN_EVERY

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def update(self, watcher: Watcher, sent: int) -> None:
        """Show what the watcher has seen by now."""
        rows = _rows(watcher, sent, self._target)
        if self._console.is_terminal:
            self._progress.update(self._task, completed=watcher.answered)
            self._live.update(self._draw(rows))
        elif watcher.answered >= self._next_line:
            self._next_line += _PLAIN_EVERY
            self._console.print(", ".join(f"{name} {value}" for name, value in rows), highlight=False, soft_wrap=True)

    def _draw(self, rows: Sequence[tuple[str, str]]) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for name, value in rows:
            table.add_row(f"[bold]{name}[/]", value)
        return Group(self._progress, table)


def _rows(watcher: Watcher, sent: int, target: float) -> list[tuple[str, str]]:
    seen, status = watcher.seen, watcher.seen.status
    recent = list(seen.results.values())[-_RECENT:]
    escalated = sum(result.routed.decision.escalated for result in recent) / max(1, len(recent))
    phase = "drift: typos mixed in" if seen.drift_started_s is not None else "clean traffic"
    rows = [("sent", str(sent)), ("answered", str(watcher.answered)), ("traffic", phase)]
    rows.append(("escalation", f"{escalated:.1%} of the last {len(recent)}"))
    rows.append(("version", str(seen.versions[-1].version.version) if seen.versions else "none"))
    if status is not None and status.micro_f1 is not None:
        f1 = status.micro_f1
        rows.append(("estimated micro-F1", f"{f1.estimate:.3f} ({f1.lower:.3f} to {f1.upper:.3f}), target {target}"))
    if status is not None:
        rows.append(("drift detectors", status.drift.state))
    if seen.killed_s is not None:
        back = "back" if seen.first_commit_after_kill_s is not None else "restarting"
        rows.append(("killed router", back))
    return rows
