"""``ucci-stream check-config --against-running``: compares a file with what runs, and prints what it changes."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from schemas.settings import Settings
from ucci_stream.operate.kafka_diagnosis import read_running
from ucci_stream.operate.settings_changes import HARMFUL, changes, exit_code
from ucci_stream.topics.admin import broker_failures

_STYLES = {"moved": "yellow", "unknown": "yellow", "refit": "yellow", "restart": "yellow", "none": "green"}


def compare(settings: Settings, out: Console, *, as_json: bool) -> int:
    """Print what the file changes, and return the exit code; blocks up to a minute.

    Raises
    ------
    UcciError
        When the broker does not answer, or has no topics of this prefix.
    """
    with broker_failures(settings):
        running = read_running(settings)
    found = changes(settings, running, datetime.now(UTC))
    if as_json:
        out.print_json(data={"safe": not exit_code(found), "changes": [change._asdict() for change in found]})
        return exit_code(found)
    for change in found:
        style = "red" if change.effect in HARMFUL else _STYLES.get(change.effect, "")
        mark = Text(f"{change.effect.replace('_', ' '):<13}", style=style)
        out.print(mark, Text(f"{change.subject}: {change.message}"), soft_wrap=True)
        if change.act:
            out.print(Text(f"{'':<14}→ {change.act}", style="dim"), soft_wrap=True)
    return exit_code(found)
