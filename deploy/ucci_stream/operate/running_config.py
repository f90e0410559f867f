"""``ucci-stream check-config --against-running``: compares a file with what runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.text import Text

from schemas.settings import Settings
from ucci_stream.operate.kafka_diagnosis import read_running
from ucci_stream.operate.settings_changes import HARMFUL, Change, changes, exit_code
from ucci_stream.options import Outcome
from ucci_stream.topics.admin import broker_failures

_STYLES = {"moved": "yellow", "unknown": "yellow", "refit": "yellow", "restart": "yellow", "none": "green"}


def compare(settings: Settings) -> Outcome:
    """Return what the file changes for the services that run; blocks up to a minute.

    Raises UcciError when the broker does not answer, or has no topics of this prefix.
    """
    with broker_failures(settings):
        running = read_running(settings)
    found = changes(settings, running, datetime.now(UTC))
    code = exit_code(found)
    return Outcome({"safe": not code, "changes": [change._asdict() for change in found]}, _lines(found), code)


def _lines(found: Iterable[Change]) -> Iterator[Text]:
    for change in found:
        style = "red" if change.effect in HARMFUL else _STYLES.get(change.effect, "")
        mark = (f"{change.effect.replace('_', ' '):<13}", style)
        yield Text.assemble(mark, f" {change.subject}: {change.message}")
        if change.act:
            yield Text(f"{'':<14}→ {change.act}", style="dim")
