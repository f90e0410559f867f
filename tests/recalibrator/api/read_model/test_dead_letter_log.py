"""Dead letters as the API knows them: by reason, of a workload where it is known, bounded in number and time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.api.read_model.dead_letter_log import MOST_KEPT, DeadLetterLog

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)


def headers(reason: str = "not_json") -> dict[str, bytes | None]:
    place = {"dlq.topic": b"ucci.feedback", "dlq.partition": b"3", "dlq.offset": b"17", "dlq.stage": b"join"}
    return {**place, "dlq.error": b"not valid JSON: expected value", "dlq.reason": reason.encode()}


def test_a_letter_counts_for_its_workload_else_for_all() -> None:
    log = DeadLetterLog(["photo", "video"])
    log.take(b"photo", b"{broken", headers(), NOW_MS)
    log.take(b"q-1", b'{"workload": "video"}', headers(), NOW_MS)
    log.take(b"q-2", b"{broken", headers(), NOW_MS)

    assert (log.status("photo", NOW).total, log.status("video", NOW).total, log.status(None, NOW).total) == (2, 2, 3)
    assert log.latest("photo", 1)[0].source == "ucci.feedback/3/17"


def test_after_a_day_a_letter_counts_no_more() -> None:
    log = DeadLetterLog(["photo"])
    log.take(None, b"x", headers(), NOW_MS)

    assert log.status("photo", NOW + timedelta(hours=23)).total == 1
    assert log.status("photo", NOW + timedelta(hours=25)).total == 0


def test_memory_stays_bounded() -> None:
    log = DeadLetterLog(["photo"])
    for number in range(MOST_KEPT + 10):
        log.take(None, b"x", headers(), NOW_MS + number)

    assert log.status("photo", NOW + timedelta(seconds=10)).total <= MOST_KEPT


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=50) | st.just(b"[" * 5_000),
    texts=st.dictionaries(st.sampled_from(sorted(headers())), st.none() | st.binary(max_size=20)),
    timestamp_ms=st.integers(-(2**62), 2**62),
)
def test_any_record_is_taken(
    key: bytes | None, value: bytes | None, texts: dict[str, bytes | None], timestamp_ms: int
) -> None:
    log = DeadLetterLog(["photo", "video"])
    log.take(key, value, texts, timestamp_ms)

    assert len(log.latest(None, 10)) == 1
    log.status(None, NOW)
