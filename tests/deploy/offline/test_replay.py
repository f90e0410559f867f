"""Files to replay: a line that cannot be read is named, whatever it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cascade_stream import settings
from ucci_stream.offline.bootstrap import replay
from ucci_stream.topics.feed import FeedStopped


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"kind":' * 5_000,
        b'{"kind":"' + b"k" * 100_000 + b'"}',
        b'{"kind":"\\n\\u2028"}',
        b"9" * 5_000,
    ],
)
def test_a_hostile_line_is_a_traceback(tmp_path: Path, line: bytes) -> None:
    """Nested without end, a kind of 100 kB: each is one short line with the number of the bad one."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n\n" + line + b"\n")
    with pytest.raises(FeedStopped, match=r"f\.jsonl:3: ") as caught:
        list(replay(settings(), path))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500 + len(str(path))
