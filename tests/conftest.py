"""One real broker for the whole session; without one tests skip at a desk and fail in continuous integration."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.support.broker import running_broker, unique_prefix
from ucci_stream.local.kafka_node import LocalBroker

# `make test` draws the same examples in every run and on every machine, and must end within minutes on two slow cores:
# what it says follows from the code alone. `make test-thorough` draws ten times as many, others each time, and keeps in
# .hypothesis those that failed; what is found there becomes an `@example` of its test. Neither depends on how fast a
# machine draws, nor on whether it runs continuous integration, for which Hypothesis has a profile of its own. Neither
# explains a failure by hundreds of further draws, which takes minutes where an example is a stream of events.
_PLAIN = settings.get_profile("default")
_ANYWHERE: dict[str, Any] = {
    "deadline": None,
    "phases": [phase for phase in Phase if phase is not Phase.explain],
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("quick", _PLAIN, max_examples=20, derandomize=True, database=None, **_ANYWHERE)
settings.register_profile("thorough", _PLAIN, max_examples=200, **_ANYWHERE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_DRAWS_ALIKE = settings().derandomize
if _DRAWS_ALIKE:
    # Hypothesis also draws constants of the project's modules that are loaded, and those depend on which tests a
    # process has run before: on the number of cores.
    setattr(providers, "_get_local_constants", Constants)  # noqa: B010 no option turns it off

# Collecting thousands of tests makes objects that live to the end: to look for garbage among them took a fifth of the
# time. The process that only hands out tests collects none, makes little garbage, and leaves it.
gc.disable()

_LONGEST_FIRST = ("slow", "broker", "browser")
_PROCESSES = ("broker", "browser")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no core idles while another ends the last of them."""
    ranks: dict[Path, int] = {}
    for item in items:
        ranks[item.path] = min(_rank(item), ranks.get(item.path, _rank(item)))
    items.sort(key=lambda item: ranks[item.path])
    if os.environ.get("CI"):
        _ask_twice(items)


def _ask_twice(items: list[pytest.Item]) -> None:
    """Let continuous integration, which shares its cores with others, run what drives real processes once more.

    A machine that stands still for seconds fails such a test with nothing wrong; a defect fails it twice. The summary
    names each one that was run again: it is to be looked into, not to be forgotten. A hang is not tried again, since it
    costs minutes, and at a desk every failure counts at once.
    """
    for item in items:
        marked = any(item.get_closest_marker(mark) is not None for mark in _PROCESSES)
        if marked or "conformance" in item.path.parts:
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=["Timeout"]))


def _rank(item: pytest.Item) -> int:
    """Return the place of a test's kind: those with a mark, then other tests, then documentation's examples."""
    marked = (rank for rank, mark in enumerate(_LONGEST_FIRST) if item.get_closest_marker(mark) is not None)
    return next(marked, len(_LONGEST_FIRST) + (not isinstance(item, pytest.Function)))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for garbage again, among what tests leave."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True, specname="pytest_configure")
def pytest_draw_a_seed(config: pytest.Config) -> None:
    """Give Hypothesis a seed that the report names; workers of one run get the same."""
    if _DRAWS_ALIKE:
        return
    if getattr(config.option, "hypothesis_seed", 0) is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    """Name the seed by which this run's examples can be drawn again."""
    if _DRAWS_ALIKE:
        return "drawn alike in every run; HYPOTHESIS_PROFILE=thorough draws others"
    return f"drawn by --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Name what fails as it fails: a run that is cut short never comes to its summary."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not config.getoption("verbose") > 0:
        config.pluginmanager.register(_NamesFailures(reporter))


class _NamesFailures:
    """Writes a line for each failure, and what no broker ran; in the process that talks to the terminal alone."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter, self._without_broker = reporter, 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name the test, and what ended it in a line; a process that was ended with its test reports so too."""
        self._without_broker += report.skipped and "broker" in report.keywords
        # "rerun" is no outcome of pytest's own.
        if report.failed or str(report.outcome) == "rerun":
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash is not None else str(report.longrepr)
            first_line = said.strip().partition("\n")[0]
            again = "" if report.failed else " (run again)"
            self._reporter.write_line(f"\n{report.nodeid}{again}: {first_line[:200]}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End with what was left out for want of a broker: green says nothing of it."""
        if self._without_broker:
            self._reporter.write_line(f"NOT RUN for want of a Kafka broker: {self._without_broker} tests", yellow=True)


@pytest.fixture(autouse=True)
def _log_lines_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that a test calls in this process sends log lines elsewhere, or nowhere; the next test reads them.

    Loggers must not keep that output: it is closed by then, and a line written to it would end what writes it.
    """
    configure = structlog.configure
    monkeypatch.setattr(structlog, "configure", lambda **how: configure(**how | {"cache_logger_on_first_use": False}))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with running_broker(LocalBroker(tmp_path_factory.mktemp("kafka"))) as local:
        yield local


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with running_broker(LocalBroker(tmp_path / "kafka")) as local:
        yield local


@pytest.fixture
def topic_prefix() -> str:
    return unique_prefix()
