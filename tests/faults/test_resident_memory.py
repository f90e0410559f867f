"""The slope of memory is that of warm processes, whatever level each life begins at."""

from __future__ import annotations

from threading import Event

import pytest

from tests.faults.resident_memory import MemoryWatch, Sample, slopes


def life(name: str, pid: int, level: float, per_minute: float, seconds: int) -> list[Sample]:
    """Return a process that takes 50 MiB in its first half minute, and grows from there."""
    return [Sample(name, pid, float(s), level + min(s, 30) / 30 * 50 + s / 60 * per_minute) for s in range(seconds)]


def test_lives_of_other_levels_share_one_slope() -> None:
    samples = [*life("router-1", 1, 80.0, 3.0, 100), *life("router-1", 2, 140.0, 3.0, 200)]
    slope = slopes(samples)["router-1"]
    assert slope.mib_per_minute == pytest.approx(3.0)
    assert slope.lives == 2
    assert slope.minutes == pytest.approx((69 + 169) / 60)


def test_lives_that_end_before_they_are_warm_tell_nothing() -> None:
    slope = slopes(life("join", 1, 100.0, 9.0, 35))["join"]
    assert slope.mib_per_minute is None
    assert slope.lives == 0
    assert slope.last_mib > 150.0


def test_half_of_the_samples_passed_for_all_of_them() -> None:
    """What ends the watch under way is raised at its end."""
    asked = Event()

    def processes() -> dict[str, int]:
        asked.set()
        raise OSError("gone")

    watch = MemoryWatch(processes)
    watch.start()
    assert asked.wait(30)
    with pytest.raises(OSError, match="gone"):
        watch.end()
