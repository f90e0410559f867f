"""A record that breaks the contract never vanishes: not by its size, not by its headers, not by its key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ucci_runtime.broker.dead_letters import cut_to, dead_letter
from ucci_runtime.broker.records import Input, Record

LIMIT = 4_000
SOURCE = Input("ucci.feedback", 3)


@given(
    st.one_of(st.none(), st.binary(max_size=6_000)),
    st.one_of(st.none(), st.binary(max_size=6_000)),
    st.lists(st.tuples(st.text(max_size=20), st.one_of(st.none(), st.binary(max_size=3_000))), max_size=3),
    st.text(max_size=2_000),
)
def test_dead_letter_fits_and_marks_its_cut(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], error: str
) -> None:
    record = Record(SOURCE, 9, key, value, 0, tuple(headers))
    whole = dead_letter("dead", record, stage="join", reason="not_json", error=error)
    assert whole.instead is not None
    letter = cut_to(whole, LIMIT)
    assert whole.instead(LIMIT) == letter
    assert letter.size_bytes <= LIMIT
    found = dict(letter.headers)
    assert (found["dlq.topic"], found["dlq.partition"], found["dlq.offset"]) == (b"ucci.feedback", b"3", b"9")
    if "dlq.truncated" not in found:
        assert (letter.key, letter.value) == (key, value)
        kept = [header for header in headers if not header[0].startswith("dlq.")]
        assert list(letter.headers[: len(kept)]) == kept
    else:
        truncated = found["dlq.truncated"]
        assert truncated is not None
        assert truncated.split(b", ")[0] == f"value of {len(value or b'')} bytes".encode()
        assert (value or b"").startswith(letter.value or b"")


def test_resent_dead_letter_has_only_its_new_reason() -> None:
    record = Record(SOURCE, 9, None, b"x", 0, (("dlq.reason", b"old"), ("trace", b"7")))
    found = dead_letter("dead", record, stage="fit", reason="empty", error="e").headers
    assert [one for one in found if one[0] in ("dlq.reason", "trace")] == [("trace", b"7"), ("dlq.reason", b"empty")]
