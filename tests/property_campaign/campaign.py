"""A pytest plugin that runs each property test under many seeds, in one process, and writes what it found as it goes.

A property test is a Hypothesis test, a state machine, or a test that has a Hypothesis test inside. Each one is set up
once and then called once for each seed, so that a seed costs what its examples cost.
"""

from __future__ import annotations

import inspect
import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.core
import pytest
from hypothesis import Phase, is_hypothesis_test, settings
from hypothesis.statistics import collector

#: Hypothesis' first example is always the simplest one; fewer than this would hardly draw anything.
LEAST_EXAMPLES = 4

_SAVE_EVERY_S = 5.0
_TEXT_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign runs: seeds, and the most examples a seed and seconds of CPU time that a test gets."""

    seeds: int
    first_seed: int
    examples: int
    seconds_a_test: float


@dataclass(slots=True)
class Finding:
    """One way in which a test failed, with the first seed under which it did."""

    kind: str
    where: str
    seed: int
    #: ``max_examples`` under that seed; with the seed it gives the same draws again.
    max_examples: int
    text: str
    failing_seeds: int = 1


@dataclass(slots=True)
class Progress:
    """How far a test has come."""

    seeds: int = 0
    examples: int = 0
    invalid_examples: int = 0
    #: Of CPU time, as below.
    seconds: float = 0.0
    slowest_seed: int = 0
    slowest_seed_s: float = 0.0
    skipped: str = ""
    findings: list[Finding] = field(default_factory=list)


class Record:
    """The file of a campaign: what each test came to, and the plan that it came to it by."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path, self._plan = path, plan
        self._saved_s = 0.0
        self.tests: dict[str, Progress] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        document = json.loads(self._path.read_text(encoding="utf-8"))
        begun_at = document["plan"]["first_seed"]
        if begun_at != self._plan.first_seed:
            raise pytest.UsageError(f"{self._path}: holds seeds from {begun_at}; give --first-seed {begun_at}")
        for name, known in document["tests"].items():
            findings = [Finding(**finding) for finding in known.pop("findings")]
            self.tests[name] = Progress(**known, findings=findings)

    def save(self, *, at_once: bool = True) -> None:
        """Write the file anew, at most every few seconds unless it is to be written at once."""
        if not at_once and time.monotonic() - self._saved_s < _SAVE_EVERY_S:
            return
        tests = {name: asdict(progress) for name, progress in sorted(self.tests.items())}
        document = {"plan": asdict(self._plan), "tests": tests}
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self._path)
        self._saved_s = time.monotonic()


class Campaign:
    """The plugin. ``tell``: called with a line for people when a test ends."""

    def __init__(self, plan: Plan, record: Record, tell: Callable[[str], None]) -> None:
        self._plan, self._record, self._tell = plan, record, tell
        self._names: dict[pytest.Item, str] = {}
        self._ended = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the property tests that have seeds left, and give each a name of its own."""
        counted = Counter[str]()
        for item in filter(_is_property_test, items):
            counted[item.nodeid] += 1
            number = counted[item.nodeid]
            # Schemathesis gives the tests of all routes one name.
            self._names[item] = item.nodeid if number == 1 else f"{item.nodeid}#{number}"
        items[:] = [item for item, name in self._names.items() if self._seeds_left(name)]

    def _seeds_left(self, name: str) -> range:
        done = self._record.tests.get(name, Progress()).seeds
        return range(self._plan.first_seed + done, self._plan.first_seed + self._plan.seeds)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Function) -> None:
        """Run a test under all its seeds, instead of once."""
        name = self._names[item]
        progress = self._record.tests.setdefault(name, Progress())
        for seed in self._seeds_left(name):
            if not self._run_seed(item, progress, seed):
                break
            self._record.save(at_once=False)
        self._record.save()
        self._ended += 1
        found = f", {len(progress.findings)} FINDINGS" if progress.findings else ""
        self._tell(
            f"[{self._ended}/{len(self._names)}] {name}: {progress.seeds} seeds, {progress.examples:,} examples, "
            f"{progress.seconds:.0f} s{found}{progress.skipped}"
        )
        pytest.skip("ran under the seeds of the campaign")

    def _run_seed(self, item: pytest.Function, progress: Progress, seed: int) -> bool:
        """Run a test under one seed; False where it cannot run here."""
        examples = self._affordable_examples(progress, seed)
        # Of this process alone: what others do meanwhile costs no examples.
        began_s = time.process_time()
        try:
            with _drawn_by(item, seed, examples, progress):
                item.runtest()
            failures = _failures_that_unittest_kept(item)
        except pytest.skip.Exception as skipped:
            progress.skipped = f" skipped: {skipped}"
            return False
        except (Exception, pytest.fail.Exception) as raised:  # noqa: BLE001 whatever it is, it is a finding
            failures = [raised]
        for failure in failures:
            for one in _single_failures(failure):
                _note(progress.findings, one, seed, examples)
        took_s = time.process_time() - began_s
        progress.seeds += 1
        progress.seconds = round(progress.seconds + took_s, 3)
        if took_s > progress.slowest_seed_s:
            progress.slowest_seed, progress.slowest_seed_s = seed, round(took_s, 3)
        return True

    def _affordable_examples(self, progress: Progress, seed: int) -> int:
        """Return how many examples a seed may draw so that the seeds left fit into the time left of the test."""
        drawn = progress.examples + progress.invalid_examples
        if not drawn:
            return self._plan.examples
        seeds_left = self._plan.first_seed + self._plan.seeds - seed
        seconds_a_seed = max(0.0, self._plan.seconds_a_test - progress.seconds) / seeds_left
        affordable = int(seconds_a_seed / (progress.seconds / drawn)) if progress.seconds else self._plan.examples
        return max(LEAST_EXAMPLES, min(self._plan.examples, affordable))


def _is_property_test(item: pytest.Item) -> bool:
    function = getattr(item, "obj", None)
    if function is None or isinstance(item, pytest.DoctestItem):
        return False
    return is_hypothesis_test(function) or "@given(" in inspect.getsource(function)


@contextmanager
def _drawn_by(item: pytest.Function, seed: int, examples: int, progress: Progress) -> Iterator[None]:
    """Have Hypothesis draw so many examples by this seed, and count them in ``progress``.

    What a test sets itself gives way: seed, number of examples and phases are those of the campaign.
    """
    # What failed once is not made simple again: that would take most of the time.
    phases = (Phase.generate,) if progress.findings else (Phase.generate, Phase.shrink)
    fixed = {"max_examples": examples, "phases": phases, "database": None, "derandomize": False}
    own = {name: vars(settings)[name] for name in fixed}
    test = getattr(item.obj, "__func__", item.obj)
    with pytest.MonkeyPatch.context() as patch, _counted(progress):
        patch.setattr(hypothesis.core, "global_force_seed", seed)
        if hasattr(test, "_hypothesis_internal_use_seed"):
            patch.setattr(test, "_hypothesis_internal_use_seed", seed)
        try:
            for name, value in fixed.items():
                # Past the metaclass, which keeps users from it.
                type.__setattr__(settings, name, _constant(value))
            yield
        finally:
            for name, value in own.items():
                type.__setattr__(settings, name, value)


def _constant(value: object) -> property:
    return property(lambda _: value)


def _counted(progress: Progress) -> AbstractContextManager[None]:
    def count(statistics: dict[str, Any]) -> None:
        cases = statistics.get("generate-phase", {}).get("test-cases", ())
        valid = sum(case["status"] in ("valid", "interesting") for case in cases)
        progress.examples += valid
        progress.invalid_examples += len(cases) - valid

    # Hypothesis declares it without a type.
    counting: Any = collector
    counted: AbstractContextManager[None] = counting.with_value(count)
    return counted


def _failures_that_unittest_kept(item: pytest.Item) -> list[BaseException]:
    """Return what a unittest case, such as a state machine's, reported instead of raising it; and forget it."""
    kept = getattr(item, "_excinfo", None) or []
    failures = [info.value for info in kept]
    kept.clear()
    return failures


def _single_failures(failure: BaseException) -> Iterator[BaseException]:
    """Yield the failures of a group, which Hypothesis raises where a test fails in several ways."""
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _single_failures(inner)
    else:
        yield failure


def _note(findings: list[Finding], failure: BaseException, seed: int, examples: int) -> None:
    kind, where = type(failure).__name__, _place_of(failure)
    for known in findings:
        if (known.kind, known.where) == (kind, where):
            known.failing_seeds += 1
            return
    lines = [str(failure), *getattr(failure, "__notes__", ())]
    findings.append(Finding(kind, where, seed, examples, "\n".join(lines)[:_TEXT_CHARS]))


def _place_of(failure: BaseException) -> str:
    """Return the innermost line that the failure passed outside installed packages and this file."""
    root = Path(__file__).parents[2]
    paths = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(failure.__traceback__)]
    own = [(path, line) for path, line in paths if "site-packages" not in path.parts and path != Path(__file__)]
    if not own:
        return ""
    path, line = own[-1]
    return f"{path.relative_to(root) if path.is_relative_to(root) else path.name}:{line}"
