"""What `ucci-stream ask` refuses before it sends anything."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError
from schemas.query import MAX_TEXT_CHARS
from schemas.settings import Settings
from ucci_stream.topics.ask import ask


@pytest.mark.parametrize("text", ["", "x" * (MAX_TEXT_CHARS + 1)])
def test_a_text_that_is_no_query_printed_a_traceback(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(Settings(), text, None, 1.0)
    (line,) = caught.value.faults
    assert line.startswith("text: ")
    assert len(line) < 200
