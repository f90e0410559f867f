"""Targets of what lies on disk: configuration, kept versions, and files that people hand in."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from schemas.errors import ConfigError
from schemas.feedback import FeedbackEvent
from schemas.made_for import MadeFor
from schemas.settings_text import parse_settings, render_settings, settings_warnings
from stream_router.calibration.active_versions import ActiveVersions, Rejected
from stream_router.calibration.feed_thread import VersionFile
from tests.fuzz.record_targets import SETTINGS, WORKLOAD, WORKLOADS, drawn
from tests.fuzz.targets import PART, Target, Violation, generic, require_line
from tests.support.recalibrator_events import feedback
from tests.support.strategies import labelled_examples
from tests.support.versions import sealed_version
from ucci_stream.offline.bootstrap import bootstrap_events, replay
from ucci_stream.topics.feed import FeedStopped, decoded_lines

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
_ROOT = Path(__file__).parents[2]
#: Of one fault of the configuration: it may list every valid key.
_FAULT_CHARS = 2_000


def state_targets() -> Iterator[Target]:
    example = (_ROOT / "deploy" / "ucci.example.toml").read_bytes()
    yield Target("configuration", (example + PART, *_CONFIGURATIONS), _configuration, 2.0)
    files = _Files()
    examples = drawn(labelled_examples(workload=WORKLOAD))
    observations = (examples[0] + b"\n" + examples[1], b'{"kind":"labelled"}\n', b"\n\n" + examples[2])
    kept = _KeptVersions()
    yield Target("versions on the router's disk", kept.seeds(), kept.load, 0.3)
    yield Target("file of feedback", tuple(feedback(n).to_json() for n in range(4)), files.labels, 0.3)
    yield Target("file to replay", observations, files.replayed, 0.3)
    yield Target("file to bootstrap from", (*_ROUTER_FILES, *observations), files.bootstrapped, 0.3)


_ONE = b"[workloads.a]\nfields=['x']\ntarget={micro_f1=0.9}\n"
_ENVIRONMENTS = (
    (_ONE, b"UCCI_ROUTER__HTTP_PORT=1\nUCCI_KAFKA__SASL_PASSWORD=s"),
    (b"", b'UCCI_WORKLOADS={"a":{"fields":["x"],"target":{"micro_f1":0.9}}}\nKAFKA_BOOTSTRAP_SERVERS=b:1'),
    (b"[kafka]\nbootstrap.servers='x:1'\n[topics]\nprefix='p'\n", b'UCCI_RECALIBRATOR__API_KEYS={"a":{"key":"k"}}'),
    (_ONE + b"small={base_url='http://u:p@h:1/v1',model='m'}\n", b"UCCI_WORKLOADS__A__SMALL__API_KEY=k"),
    (_ONE, b'UCCI_WORKLOADS__A__RIVER={"ADWIN":{"delta":0.002}}\nUCCI_WORKLOADS__A__MAX_TOKENS=7'),
    (b"[calibration]\nsigning_key='0123456789012345678901234567890123'\n", b"UCCI_CALIBRATION__FORMER_KEYS=[]"),
)
_CONFIGURATIONS = tuple(text + PART + variables for text, variables in _ENVIRONMENTS)


def _configuration(data: bytes) -> str:
    """Read a configuration and its environment, and render what was read."""
    text, *variables = data.split(PART)[:50]
    # As the process would have it: names and values hold no NUL, and bytes that are not UTF-8 come as surrogates.
    lines = [line for part in variables for line in os.fsdecode(part.replace(b"\x00", b"")).split("\n")]
    environ = {name: value for name, _, value in (line.partition("=") for line in lines) if name}
    try:
        settings = parse_settings(text.decode("utf-8", "replace"), environ)
    except ConfigError as error:
        if not error.faults:
            raise Violation("a configuration is refused without a fault") from None
        for fault in error.faults:
            _require_fault(fault)
        return " ".join(sorted({generic(fault.partition(":")[0]) for fault in error.faults}))[:120]
    render_settings(settings)
    for warning in settings_warnings(settings):
        _require_fault(warning)
    return "taken"


def _require_fault(line: str) -> None:
    if len(line) > _FAULT_CHARS:
        raise Violation(f"a fault of the configuration has {len(line)} characters")
    require_line(line[:500])


class _KeptVersions:
    """A router's file of versions; its content is read as it stands, and what it holds is checked as the topic's."""

    def __init__(self) -> None:
        self._folder = _memory_folder()
        self._file = VersionFile(Path(self._folder.name), ("router-0", "cluster", "ucci"), WORKLOADS)

    def seeds(self) -> tuple[bytes, ...]:
        found = []
        for number in (1, 2):
            self._file.keep(WORKLOAD, sealed_version(version=number).to_json())
            self._file.save()
            found.append(self._file.path.read_bytes())
        return (*found, b'{"format":1,"owner":["router-0","cluster","ucci"],"versions":{}}')

    def load(self, data: bytes) -> str:
        self._file.path.write_bytes(data)
        outcomes = []
        for workload, value in self._file.load().items():
            active = ActiveVersions({WORKLOAD: MadeFor(sealed_version().signal)})
            outcome = active.restore(workload.encode(), value, NOW)
            if isinstance(outcome, Rejected):
                require_line(outcome.error)
            outcomes.append(outcome.reason.value if isinstance(outcome, Rejected) else "in force")
        return " ".join(outcomes) or "none"


def _memory_folder() -> tempfile.TemporaryDirectory[str]:
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)


class _Files:
    """What the operator's commands do with a file."""

    def __init__(self) -> None:
        self._folder = _memory_folder()
        self._path = Path(self._folder.name) / "f"

    def labels(self, data: bytes) -> str:
        """Decode a file as ``ucci-stream label`` does."""
        return self._read(data, lambda: decoded_lines(self._path, _feedback_line))

    def replayed(self, data: bytes) -> str:
        return self._read(data, lambda: replay(SETTINGS, self._path))

    def bootstrapped(self, data: bytes) -> str:
        """Make a first version of a file."""
        return self._read(data, lambda: bootstrap_events(SETTINGS, self._path, NOW))

    def _read(self, data: bytes, read: Callable[[], Iterable[object]]) -> str:
        self._path.write_bytes(data)
        try:
            return f"{len(list(read())).bit_length()} bits of lines"
        except FeedStopped as stopped:
            require_line(str(stopped))
            return str(stopped).partition(": ")[2][:20]


def _feedback_line(line: bytes) -> FeedbackEvent:
    return FeedbackEvent.from_json(line.strip())


_KNOTS = b'"calibrator":{"x":[0.1,0.5,0.9],"y":[0.0,0.3,0.8]}'
_ROUTER_FILES = (
    b'{"format":"ucci-router","version":1,' + _KNOTS + b',"theta":0.2,"c_small":1.0,"c_large":3.0,"tau":0.9}',
    b'{"format":"ucci-router","version":1,"calibrator":{"x":[0.5],"y":[0.5]},"theta":0.5,"c_small":1,"c_large":3}',
)
