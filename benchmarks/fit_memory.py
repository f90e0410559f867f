"""Resident memory of one workload's core while labels and summaries flow in, until long after its windows are full.

A third of the queries are labelled, and a snapshot is written every 5,000 queries, as by the service. The windows hold
a bounded number of labels and queries: memory grows until they are full, and must not afterwards.

    python -m benchmarks.fit_memory --queries 600000 --json fit_memory.json
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core import SETTINGS, Cascade
from benchmarks.results_json import tell
from recalibrator.core import Recalibrator, TrafficSummarizer
from recalibrator.fit.file_snapshots import SnapshotFiles
from recalibrator.fit.method_constants import DEFAULT
from recalibrator.fit.ports import FitState
from tests.faults.resident_memory import resident_mib

PART = 20_000
_LABELLED_EVERY = 3
_SUMMARISED_EVERY = 200
_STORED_EVERY = 5_000
_FULL_AFTER = 1.5
"""Windows of labels: a full one is cut back only once it has outgrown its size by a share."""

_DRAWN = 1_000_000


def grown(queries: int, directory: Path) -> list[dict[str, float]]:
    """Return labels taken in and resident MiB, after every part of the stream."""
    cascade = Cascade(_DRAWN)
    learned = Recalibrator(SETTINGS)
    version = next(made for number in range(_DRAWN) if (made := learned.observe(cascade.label(number))) is not None)
    files = SnapshotFiles(directory, {SETTINGS.name: SETTINGS})
    core, summarizer, found = Recalibrator(SETTINGS), TrafficSummarizer(SETTINGS), list[dict[str, float]]()
    for number in range(queries):
        summarizer.add(cascade.routed(number % _DRAWN, version))
        if number % _LABELLED_EVERY == 0:
            core.observe(cascade.label(number))
        if (number + 1) % _SUMMARISED_EVERY == 0 and (summary := summarizer.take()) is not None:
            core.observe(summary)
        if (number + 1) % _STORED_EVERY == 0:
            files.save(0, FitState(number, {SETTINGS.name: core}, {SETTINGS.name: []}))
        if (number + 1) % PART == 0:
            gc.collect()
            found.append({"labels": number // _LABELLED_EVERY + 1, "mib": round(resident_mib(os.getpid()), 1)})
    return found


def measure(queries: int) -> dict[str, Any]:
    """Return the samples, and the slope once the window of labels is full."""
    with tempfile.TemporaryDirectory() as directory:
        samples = grown(queries, Path(directory))
    full = [one for one in samples if one["labels"] > _FULL_AFTER * DEFAULT.window.window_labels]
    slope = None
    if len(full) > 1:
        labels, mib = (np.array([one[key] for one in full]) for key in ("labels", "mib"))
        slope = round(float(np.polyfit(labels, mib, 1)[0]) * 1e4, 3)
    return {"window_labels": DEFAULT.window.window_labels, "samples": samples, "mib_per_10000_labels_once_full": slope}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="Memory of the recalibration core.")
    parser.add_argument("--queries", type=int, default=600_000, help="in the stream")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    tell(measure(options.queries), options.json)


if __name__ == "__main__":
    main()
