"""The long form of the fault suite: a schedule of faults on a real broker, and a report of the harm done.

Example: python -m tests.faults --seed 7 --kinds kill --kinds broker --json chaos.json
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from schemas.errors import UcciError
from tests.faults.arena import RATE
from tests.faults.campaign import ENTRIES, SOAKED, Entry, run, soak
from tests.faults.page import summary
from tests.faults.report import document, is_harmless, soak_document
from tests.faults.resident_memory import WARM_UP_S
from ucci_stream.local.kafka_node import LocalBroker

_KINDS = "Kinds or groups to run, by how they begin; may be repeated. Default: all."
_SOAK = "Soak for so many minutes instead: a drawn fault every 10 s."
_WARM_UP = "Seconds of a process's life before its memory counts, in a soak."

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def chaos(
    seed: Annotated[int, Option(help="Of the schedule: the same seed draws the same faults.")] = 7,
    kinds: Annotated[list[str] | None, Option(help=_KINDS)] = None,
    rounds: Annotated[int, Option(min=1, help="How often to go through the schedule.")] = 1,
    soak_minutes: Annotated[float | None, Option("--soak", min=0.5, help=_SOAK)] = None,
    rate: Annotated[float, Option(min=1.0, help="Queries a second of a soak.")] = RATE,
    warm_up_s: Annotated[float, Option("--warm-up", min=0.0, help=_WARM_UP)] = WARM_UP_S,
    json_file: Annotated[Path | None, Option("--json", help="Write the report to this file.")] = None,
) -> None:
    """Let faults befall the whole service on a real broker, and report what was lost, doubled or contradicted.

    Exit code 1 where anything was, or where a stage did not come back.

    Example: make chaos SEED=7 KINDS=kill,broker ROUNDS=2

    Example: python -m tests.faults --soak 10 --rate 200

    Example: python -m tests.faults --soak 20 --kinds model
    """
    chosen = _chosen(kinds)
    if soak_minutes is not None and not any(entry.name in SOAKED for entry in chosen):
        raise typer.BadParameter(f"a soak has none of these kinds, but {', '.join(SOAKED)}")
    command = f"python -m tests.faults {' '.join(sys.argv[1:])}".rstrip()
    began_at = datetime.now(UTC)
    try:
        with _broker() as (broker, directory):
            if soak_minutes is not None:
                drawn = partial(soak, entries=chosen, rate=rate, warm_up_s=warm_up_s)
                found = drawn(broker, directory, soak_minutes, seed, _tell)
                rows, made = found.rows, soak_document(found, command, seed, began_at)
            else:
                rows = [
                    row
                    for number in range(rounds)
                    for row in run(broker, directory / str(number), chosen, seed + number, _tell)
                ]
                made = document(rows, command, seed, began_at)
    except UcciError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(1) from None
    if is_harmless(rows) and not made["ended"]:
        shutil.rmtree(directory, ignore_errors=True)
    if json_file is not None:
        json_file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(summary(made))
    raise typer.Exit(0 if is_harmless(rows) else 1)


def _chosen(kinds: list[str] | None) -> list[Entry]:
    """Return the kinds whose name or group begins like one of those asked for."""
    wanted = [word for text in kinds or [""] for word in (text.split(",") if text else [""])]
    for word in wanted:
        if not any(_is_called(entry, word) for entry in ENTRIES):
            raise typer.BadParameter(f"no kind begins with {word!r}, but {', '.join(entry.name for entry in ENTRIES)}")
    return [entry for entry in ENTRIES if any(_is_called(entry, word) for word in wanted)]


def _is_called(entry: Entry, word: str) -> bool:
    return entry.name.startswith(word) or entry.group.startswith(word)


@contextmanager
def _broker() -> Iterator[tuple[LocalBroker, Path]]:
    """Start a broker in a directory of its own, which also takes the logs."""
    directory = Path(tempfile.mkdtemp(prefix="ucci-chaos-"))
    _tell(f"logs and data: {directory}")
    with LocalBroker(directory / "kafka") as broker:
        yield broker, directory


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    app()
