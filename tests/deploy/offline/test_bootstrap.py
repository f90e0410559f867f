"""What `bootstrap` and `replay` read: examples of the configured signal, and routers of the ucci-router package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import DecodeError
from tests.support.cascade_stream import START, example, settings, typo_world
from ucci_stream.offline.bootstrap import bootstrap_events, read_router_file, replay
from ucci_stream.topics.feed import FeedStopped

ucci = pytest.importorskip("ucci")


@pytest.mark.parametrize(("signal", "line"), [("token_margin", 2), ("entropy", 1)])
def test_an_example_of_another_signal_is_named_by_its_line(tmp_path: Path, signal: str, line: int) -> None:
    path = tmp_path / "examples.jsonl"
    label = example(typo_world(1, 1).draw(0), "q-0", "w", START)[1]
    labels = (label, label.model_copy(update={"query_id": "q-1", "signal": "entropy"}))
    path.write_bytes(b"".join(one.to_json() + b"\n" for one in labels))
    with pytest.raises(FeedStopped, match=rf"examples.jsonl:{line}: signal: is .*, configured is '{signal}'"):
        list(bootstrap_events(settings(uncertainty=signal), path, START))


def test_a_router_file_is_a_map_of_the_token_margin(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    calibrator = {"x": [0.1, 0.5], "y": [0.0, 0.4]}
    file = {"format": "ucci-router", "version": 1, "theta": 0.2, "c_small": 1, "c_large": 3, "calibrator": calibrator}
    path.write_text(json.dumps(file))
    (command,) = bootstrap_events(settings(), path, START)
    assert command.signal == "token_margin"
    with pytest.raises(FeedStopped, match="is a map of token_margin, configured is uncertainty = 'entropy'"):
        list(bootstrap_events(settings(uncertainty="entropy"), path, START))


NESTED, LONG = [b"[" * 100_000, b'{"kind":' * 5_000], [b'{"kind":"' + b"k" * 100_000 + b'"}', b"9" * 5_000]


@pytest.mark.parametrize("read", [replay, partial(bootstrap_events, issued_at=START)])
@pytest.mark.parametrize("line", [*NESTED, *LONG, b'{"kind":"\\n\\u2028"}', '{"kind":""}'.encode("utf-16"), b"\xff"])
def test_a_hostile_line_is_a_traceback(tmp_path: Path, line: bytes, read: Callable[..., Iterable[object]]) -> None:
    """Nested without end, a kind of 100 kB, UTF-16: each is one short line with the number of the bad one."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n\n" + line + b"\n")
    with pytest.raises(FeedStopped, match=r"f\.jsonl:[13]: ") as caught:
        list(read(settings(), path))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500 + len(str(path))


def test_a_file_written_by_the_package_decides_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    u = rng.beta(1.0, 20.0, 3_000)
    error = rng.random(3_000) < np.clip(6.0 * u, 0.0, 0.9)
    router = ucci.UCCIRouter(c_small=1.0, c_large=3.02)
    router.calibrate(u, error.astype(float))
    router.choose_threshold(u, 1.0 - error, np.full_like(u, 0.95), tau=0.9)
    path = tmp_path / "router.json"
    router.save(path)
    read = read_router_file(path.read_text())
    fresh = rng.beta(1.0, 20.0, 2_000)
    np.testing.assert_array_equal(fresh > read.uncertainty_threshold, router.escalate(fresh))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"format": "ucci-router", "version": 2}', "version"),
        ('{"format": "ucci-router", "version": 1, "theta": 0.5, "c_small": 1, "c_large": 3}', "calibrator"),
        (
            '{"format": "ucci-router", "version": 1, "theta": 7, "c_small": 1, "c_large": 3, "calibrator": KNOTS}',
            "theta",
        ),
    ],
)
def test_a_faulty_file_names_the_field(text: str, field: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_router_file(text.replace("KNOTS", '{"x": [0.1], "y": [0.2]}'))
    assert caught.value.field == field
