"""Resident memory of processes over time, and how steeply it rises once they are warm."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.faults.worker import Worker

#: What a process takes in its first seconds (caches, arenas, code) says nothing of a leak.
WARM_UP_S = 30.0

_SAMPLE_S = 1.0
_LEAST_SAMPLES = 10
_MIB = 1_048_576.0
_PAGE_BYTES = 4_096


class Sample(NamedTuple):
    """One reading: of which process and which of its lives, after how many seconds of that life, in MiB."""

    name: str
    pid: int
    age_s: float
    mib: float


class Slope(NamedTuple):
    """How memory grows: MiB a minute, over how many minutes of how many lives, and where it stood last."""

    mib_per_minute: float | None
    minutes: float
    lives: int
    last_mib: float


def resident_mib(pid: int) -> float:
    """Return the resident set of a process; 0 where it has ended and nobody has waited for it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE_BYTES / _MIB


def slopes(samples: Iterable[Sample], warm_up_s: float = WARM_UP_S) -> dict[str, Slope]:
    """Return the slope of each process: least squares over all its lives, each with a level of its own.

    Readings of the first ``warm_up_s`` of a life are left out, and lives with fewer than ten readings after them.
    """
    lives: dict[str, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    last, found = {}, {}
    for sample in samples:
        last[sample.name] = sample.mib
        if sample.age_s >= warm_up_s:
            lives[sample.name][sample.pid].append(sample)
    for name, mib in last.items():
        kept = [life for life in lives[name].values() if len(life) >= _LEAST_SAMPLES]
        warm_s = sum(life[-1].age_s - life[0].age_s for life in kept)
        found[name] = Slope(_common_slope(kept), warm_s / 60.0, len(kept), mib)
    return found


def _common_slope(lives: list[list[Sample]]) -> float | None:
    if not lives:
        return None
    columns = [np.array([(one.age_s / 60.0, one.mib) for one in life]) for life in lives]
    x, y = np.concatenate([one - one.mean(axis=0) for one in columns]).T
    return float(x @ y / (x @ x))


class MemoryWatch(Worker):
    """A thread that reads once a second. ``processes``: returns the present process ids by name."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        super().__init__("memory")
        self._processes = processes
        self._born_s: dict[int, float] = {}
        self.samples: list[Sample] = []

    def work(self) -> None:
        while not self.closing.wait(_SAMPLE_S):
            now_s = time.monotonic()
            for name, pid in self._processes().items():
                try:
                    mib = resident_mib(pid)
                except (FileNotFoundError, ProcessLookupError):
                    continue
                age_s = now_s - self._born_s.setdefault(pid, now_s)
                if mib:
                    self.samples.append(Sample(name, pid, age_s, mib))
