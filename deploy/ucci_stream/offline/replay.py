"""``ucci-stream replay``: the versions that the core would have published for recorded observations, without Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.errors import DecodeError
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.traffic import TrafficSummary
from ucci_stream.topics.feed import decoded_lines

_SHOWN_CHARS = 60
_KINDS: dict[str, type[LabelledExample | TrafficSummary | Command]] = {
    "labelled": LabelledExample,
    "traffic": TrafficSummary,
    "command": Command,
}


def _decode(line: bytes) -> Observation:
    """Decode one line by its ``kind``; one without is an example."""
    try:
        document = json.loads(line)
    except RecursionError:
        raise DecodeError("not_json", "not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise DecodeError("not_json", f"not valid JSON: {error}") from None
    kind = document.get("kind", "labelled") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise DecodeError(
            "invalid_field", f"kind: must be one of {', '.join(_KINDS)} (got {repr(kind)[:_SHOWN_CHARS]})", "kind"
        )
    return _KINDS[kind].from_json(line)


def replay(settings: WorkloadSettings, path: Path) -> Iterator[tuple[int, CalibrationVersion]]:
    """Feed a JSONL file of labelled examples through the pure core.

    Traffic summaries and commands are taken too, distinguished by ``kind``; observations of other workloads are passed
    over.

    Yields line number and the version that this line brought about. Raises FeedStopped, naming the bad line.
    """
    core = Recalibrator(settings)
    for number, observation in decoded_lines(path, _decode):
        if observation.workload != settings.name:
            continue
        version = core.observe(observation)
        if version is not None:
            yield number, version
