"""What the commands of the judges share: the seeds of a half, and a bar of progress."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from research import seeds

Half = Literal["unseen", "tuning"]


def half_of(options: argparse.Namespace) -> Half:
    """Return the half of the seeds and of the kinds of drift that ``--unseen`` chooses."""
    return "unseen" if options.unseen else "tuning"


def seeds_of(options: argparse.Namespace, parser: argparse.ArgumentParser, count: int) -> Sequence[int]:
    """Return the seeds that were asked for, or else the first of the half: one with ``--quick``, or a count.

    A seed of another purpose ends the command.
    """
    half = half_of(options)
    first = getattr(seeds.REGISTRY["answers"], half)[0]
    chosen = options.seeds or range(first, first + (1 if options.quick else count))
    try:
        seeds.check("answers", chosen, half)
    except ValueError as fault:
        parser.error(f"{fault}; --unseen asks for the half of the last look")
    return list(chosen)


def progress_bar() -> Progress:
    """Return a bar on standard error that says what is done, of how much, and for how long."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
