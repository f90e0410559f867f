"""Errors are read in logs, on terminals and in headers: whatever a sender writes, each is one short line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.api.http_requests import parse_feedback
from schemas.command import Command
from schemas.errors import MAX_ERROR_CHARS, ConfigError, DecodeError, one_line
from schemas.feedback import FeedbackEvent
from schemas.routed import QueryEvent
from schemas.settings_text import parse_settings

FORGED = "x\r\n2026-01-31T12:00:00Z [info] all is well\x1b[2J\u2028\x85\x00"


@pytest.fixture(params=[FORGED, "k" * 100_000, "\ud800", "\u202e"], ids=["line break", "long", "surrogate", "override"])
def hostile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def require_line(text: str) -> None:
    assert text.isprintable()
    assert 0 < len(text) <= MAX_ERROR_CHARS


@given(st.text(), st.integers(10, 50))
def test_any_text_becomes_one_printable_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit
    assert one_line(line, limit) == line


def _decoded(kind: type[QueryEvent | FeedbackEvent | Command], document: str) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        kind.from_json(document.encode("utf-8", "surrogatepass"))
    return caught.value


def test_a_key_given_twice_forges_a_log_line(hostile: str) -> None:
    """And so do the name of an entity and a value; what is answered over HTTP is one line as well."""
    key, name = json.dumps(hostile), json.dumps(hostile[:200])
    body = f'{{"query_id":"q","entities":{{{name}:5}}}}'
    for error in (
        _decoded(QueryEvent, f'{{"query_id":"q","text":"t",{key}:1,{key}:2}}'),
        _decoded(FeedbackEvent, body),
        _decoded(Command, json.dumps({"workload": "w", "action": hostile, "issued_by": "x"})),
    ):
        require_line(str(error))
        assert error.field is None or error.field in str(error)
    with pytest.raises(Exception, match=r"entities|JSON") as caught:
        parse_feedback(body.encode("utf-8", "surrogatepass"))
    require_line(str(caught.value))


def _faults(text: str, environ: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, environ)
    return caught.value.faults


def test_a_number_of_5000_digits_is_a_traceback() -> None:
    """The TOML parser leaves the limit of digits to Python, whose error is not the parser's."""
    (fault,) = _faults(f"[router]\nhttp_port = {'9' * 5_000}\n", {})
    require_line(fault)
    assert "digits" in fault


def test_thousands_of_unknown_keys_are_told_in_a_hundred_lines() -> None:
    faults = _faults("\n".join(f"k{number} = 1" for number in range(500)), {})
    assert len(faults) == 101
    assert faults[-1] == "400 more faults; mend these first"
