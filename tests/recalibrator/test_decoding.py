"""What the topics hold: an event, or a reason for its dead letter."""

from __future__ import annotations

import pytest

from recalibrator.decoding import decode_feedback
from schemas.errors import DecodeError
from schemas.feedback import MAX_REVISION


@pytest.mark.parametrize("revision", [MAX_REVISION + 1, 2**53 - 1])
def test_feedback_revision_is_bounded(revision: int) -> None:
    """Feedback with a revision so high that every correction would be stale is refused."""
    with pytest.raises(DecodeError) as caught:
        decode_feedback(b'{"query_id": "q", "entities": null, "revision": %d}' % revision)
    assert (caught.value.reason, caught.value.field) == ("invalid_field", "revision")
    for word in ("revision", str(revision), str(MAX_REVISION)):
        assert word in str(caught.value)


def test_the_highest_revision_is_taken() -> None:
    value = b'{"query_id": "q", "entities": null, "revision": %d}' % MAX_REVISION
    assert decode_feedback(value).revision == MAX_REVISION
