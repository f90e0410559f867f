"""A run of the fuzzer: inputs drawn from a corpus, mutated, given to a target; what is new goes into the corpus.

New is an input that ends in another way than all before it, or, among those that are looked at line by line, one that
reaches a line of the project that none has reached. So the corpus grows towards the code behind the first checks, and
every draw follows from the seed.
"""

from __future__ import annotations

import gc
import random
import re
import resource
import sys
import time
import traceback
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType

from tests.fuzz.mutations import GIANT_BYTES, GIANT_SHARE, mutated
from tests.fuzz.targets import Target

#: CPU time that no input of at most 1 MB may take.
SLOW_S = 0.1

_ROOT = str(Path(__file__).parents[2])
_TRACED_SHARE = 1 / 25
_MOST_KEPT = 400
_MOST_KEPT_BYTES = 20_000
_KEPT_INPUT_BYTES = 50_000
_AS_IT_IS_SHARE = 1 / 50
_DIGITS = 1

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a target broke a promise, and the first input that did it."""

    target: str
    kind: str
    where: str
    message: str
    input_base64: str
    input_bytes: int

    def input(self) -> bytes:
        return b64decode(self.input_base64)


@dataclass(slots=True)
class TargetReport:
    cases: int = 0
    outcomes: int = 0
    lines: int = 0
    corpus: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest_bytes: int = 0
    slow: int = 0


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    seed: int
    cases: int = 0
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    peak_memory_mb_before: float = 0.0
    targets: dict[str, TargetReport] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class _Progressed:
    """A target with what its inputs have reached so far."""

    target: Target
    corpus: list[bytes]
    outcomes: Counter[str] = field(default_factory=Counter)
    lines: set[tuple[str, int]] = field(default_factory=set)
    report: TargetReport = field(default_factory=TargetReport)


def run(
    targets: Sequence[Target],
    seed: int,
    cases: int,
    progress: Progress = lambda _: None,
    *,
    giant_share: float = GIANT_SHARE,
) -> Report:
    """Give so many inputs to the targets; equal arguments give equal inputs.

    ``progress``: given the number of inputs since it was called last. ``giant_share``: how many are to be of 1 MB.
    """
    _warm(targets)
    draw, report, began_s = random.Random(seed), Report(seed, peak_memory_mb_before=_peak_memory_mb()), time.monotonic()
    under_way = [_Progressed(target, list(target.seeds)) for target in targets]
    report.targets = {one.target.name: one.report for one in under_way}
    known: set[tuple[str, str, str]] = set()
    weights = list(accumulate(one.target.weight for one in under_way))
    for number in range(cases):
        one = draw.choices(under_way, cum_weights=weights)[0]
        data = draw.choice(one.corpus)
        if draw.random() >= _AS_IT_IS_SHARE:
            data = mutated(draw, data, one.corpus, giant_share=giant_share)
        found = _case(one, data, traced=draw.random() < _TRACED_SHARE)
        if found is not None and (place := (found.target, found.kind, found.where)) not in known:
            known.add(place)
            report.findings.append(found)
        report.cases += 1
        if number % 200 == 199:
            progress(200)
    progress(cases % 200)
    report.seconds, report.peak_memory_mb = round(time.monotonic() - began_s, _DIGITS), _peak_memory_mb()
    for one in under_way:
        one.report.outcomes, one.report.lines, one.report.corpus = len(one.outcomes), len(one.lines), len(one.corpus)
        one.report.seconds = round(one.report.seconds, _DIGITS)
    return report


def _warm(targets: Sequence[Target]) -> None:
    """Let each target make what it makes once, such as the API's description, and set the fuzzer's own objects apart.

    Neither is what an input costs; a search for cycles among all that targets are made of takes a tenth of a second.
    """
    for target in targets:
        for seed in target.seeds:
            # A promise that a seed breaks is found where the seed is a case.
            with suppress(Exception):
                target.run(seed)
    gc.collect()
    gc.freeze()


def _case(one: _Progressed, data: bytes, *, traced: bool) -> Finding | None:
    """Give one input to a target, and keep it where it is new."""
    trace = LineTrace() if traced else None
    outcome, finding, took_s = "", None, time.thread_time()
    try:
        sys.settrace(trace)
        outcome = one.target.run(data)
    except Exception as error:  # noqa: BLE001 whatever it is, it is a finding
        finding = _finding(one.target, data, error)
        outcome = f"finding {finding.where}"
    finally:
        sys.settrace(None)
        took_s = time.thread_time() - took_s
    if took_s > SLOW_S and trace is None:
        # What others do meanwhile slows a reader down, too.
        took_s = min(took_s, _again_s(one.target, data))
    one.report.cases += 1
    is_new = outcome not in one.outcomes
    one.outcomes[outcome] += 1
    if trace is None:
        _note_time(one.report, data, took_s)
    elif not trace.lines <= one.lines:
        one.lines |= trace.lines
        is_new = True
    if is_new and len(data) <= _MOST_KEPT_BYTES:
        if len(one.corpus) >= _MOST_KEPT:
            # Seeds stay; of the others the oldest has had the most draws.
            del one.corpus[len(one.target.seeds)]
        one.corpus.append(data)
    return finding


def _again_s(target: Target, data: bytes) -> float:
    began_s = time.thread_time()
    with suppress(Exception):
        target.run(data)
    return time.thread_time() - began_s


def _note_time(report: TargetReport, data: bytes, took_s: float) -> None:
    report.seconds += took_s
    if took_s * 1_000 > report.slowest_ms:
        report.slowest_ms, report.slowest_bytes = round(took_s * 1_000, _DIGITS), len(data)
    if took_s > SLOW_S and len(data) <= GIANT_BYTES:
        report.slow += 1


def _finding(target: Target, data: bytes, error: Exception) -> Finding:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/fuzz/campaign" not in frame.filename]
    last, kind = own[-1], type(error).__name__
    if last.name.startswith("require"):
        # The message of a violation says which promise is broken; its numbers do not.
        kind += f" {re.sub(r'[0-9]', '', str(error))[:40]}"
    place = f"{Path(last.filename).name}:{last.name}:{last.lineno}"
    kept = b64encode(data[:_KEPT_INPUT_BYTES]).decode()
    return Finding(target.name, kind, place, f"{error}"[:500], kept, len(data))


def _peak_memory_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024, _DIGITS)


class LineTrace:
    """Remembers which lines of the project run; a trace function of :func:`sys.settrace`."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> LineTrace | None:
        """Take one event; None for code that is not the project's, which is then left alone."""
        code: CodeType = frame.f_code
        if event == "call" and not _is_ours(code.co_filename):
            return None
        self.lines.add((code.co_filename, frame.f_lineno))
        return self


@cache
def _is_ours(filename: str) -> bool:
    """Return whether a file is the project's and no test."""
    return filename.startswith(_ROOT) and "/.venv/" not in filename and "/tests/" not in filename


def repeated(findings: Sequence[Finding], targets: Sequence[Target]) -> Iterator[tuple[Finding, str | None]]:
    """Yield each finding of a former run with what its input does now: None where it keeps the promises."""
    by_name = {target.name: target for target in targets}
    for finding in findings:
        try:
            by_name[finding.target].run(finding.input())
        except Exception as error:  # noqa: BLE001 as above
            yield finding, f"{type(error).__name__}: {error}"[:500]
        else:
            yield finding, None
