"""`bootstrap` reads a file for the uncertainty signal that the workload is configured with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cascade_stream import START, example, typo_world
from ucci_stream.offline.bootstrap import bootstrap_events
from ucci_stream.topics.feed import FeedStopped


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Two labelled examples of workload ``w``, the second one measured by entropy."""
    path = tmp_path / "examples.jsonl"
    label = example(typo_world(1, 1).draw(0), "q-0", "w", START)[1]
    labels = (label, label.model_copy(update={"query_id": "q-1", "signal": "entropy"}))
    path.write_bytes(b"".join(one.to_json() + b"\n" for one in labels))
    return path


@pytest.mark.parametrize(("signal", "line"), [("token_margin", 2), ("entropy", 1)])
def test_an_example_of_another_signal_is_named_by_its_line(examples: Path, signal: str, line: int) -> None:
    with pytest.raises(FeedStopped, match=rf"examples.jsonl:{line}: signal: is .*, configured is '{signal}'"):
        list(bootstrap_events(examples, "w", signal, START))


def test_a_router_file_is_a_map_of_the_token_margin(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    calibrator = {"x": [0.1, 0.5], "y": [0.0, 0.4]}
    file = {"format": "ucci-router", "version": 1, "theta": 0.2, "c_small": 1, "c_large": 3, "calibrator": calibrator}
    path.write_text(json.dumps(file))
    (command,) = bootstrap_events(path, "w", "token_margin", START)
    assert command.signal == "token_margin"
    with pytest.raises(FeedStopped, match="is a map of token_margin, configured is uncertainty = 'entropy'"):
        list(bootstrap_events(path, "w", "entropy", START))


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, '{"format":"ucci-router"}'.encode("utf-16"), b"9" * 5_000, b"\xff"]
)
def test_a_file_that_is_neither_kind_is_a_traceback(tmp_path: Path, content: bytes) -> None:
    """Nested without end, UTF-16, a number of thousands of digits: each is one line that names the file."""
    path = tmp_path / "f.json"
    path.write_bytes(content)
    with pytest.raises(FeedStopped, match=r"f\.json:1: ") as caught:
        list(bootstrap_events(path, "w", "token_margin", START))
    assert str(caught.value).isprintable()
