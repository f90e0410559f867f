"""The short form of ``make fuzz``: readers of foreign bytes keep their promises, in time that grows as the input."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
import structlog

from schemas.errors import DecodeError
from tests.fuzz.all_targets import all_targets
from tests.fuzz.campaign import run
from tests.fuzz.mutations import GIANTS, giant
from tests.fuzz.targets import Target, Violation, refused, require_line

pytestmark = pytest.mark.slow

CASES, SEED = 6_000, 13
SMALL_BYTES, LARGE_BYTES = 40_000, 400_000
#: Of CPU time for ten times the bytes: 10 where it grows as the input does, 100 where it grows as its square.
MOST_RATIO = 40.0

#: Below it a ratio says nothing.
LEAST_S = 0.002

#: Of memory: an empty object takes 64 bytes in Python, and its text two.
MOST_BYTES_A_BYTE = 150


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
    structlog.reset_defaults()


def test_no_reader_breaks_its_promises() -> None:
    """`make fuzz` does the same with any number of inputs."""
    report = run(all_targets(), SEED, CASES)
    assert report.findings == []
    assert report.cases == CASES
    assert all(one.cases and one.outcomes for one in report.targets.values())


@pytest.mark.parametrize("kind", GIANTS)
def test_time_and_memory_grow_as_the_input_does(kind: str) -> None:
    """No reader takes the square of the time, nor hundreds of times the memory, for ten times the bytes."""
    steep = {}
    for target in all_targets():
        small, large = (giant(random.Random(SEED), target.seeds[0], kind, size) for size in (SMALL_BYTES, LARGE_BYTES))
        ratio = _seconds(target.run, large) / max(_seconds(target.run, small), LEAST_S)
        if ratio > MOST_RATIO:
            steep[target.name] = ratio
        tracemalloc.start()
        target.run(large)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= MOST_BYTES_A_BYTE * len(large), target.name
    assert steep == {}


def _seconds(read: Callable[[bytes], str], data: bytes) -> float:
    """Return the least CPU time of two readings, so that what others do meanwhile does not count."""
    took = []
    for _ in range(2):
        began_s = time.thread_time()
        read(data)
        took.append(time.thread_time() - began_s)
    return min(took)


def _raising(data: bytes) -> str:
    if b"\x00" in data:
        raise KeyError("a planted fault")
    return "taken"


def _careless(data: bytes) -> str:
    return refused(DecodeError("invalid_field", "it is wrong", "query_id"))


@pytest.mark.parametrize(("read", "kind"), [(_raising, "KeyError"), (_careless, "Violation")])
def test_a_planted_fault_is_found_once(read: Callable[[bytes], str], kind: str) -> None:
    """The fuzzer itself: an error of another class and a line that names no field are findings, with their input."""
    report = run([Target("planted", (b'{"query_id":"q"}',), read)], SEED, 2_000)
    (found,) = report.findings
    assert found.kind.startswith(kind)
    with pytest.raises((KeyError, Violation)):
        read(found.input())


@pytest.mark.parametrize("line", ["", "two\nlines", "bell\x07", "half \ud800", "x" * 1_001, "sep\u2028arator", "\x85"])
def test_a_line_that_is_none_is_a_violation(line: str) -> None:
    with pytest.raises(Violation):
        require_line(line)
