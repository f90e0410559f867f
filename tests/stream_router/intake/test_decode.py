"""Which workload a query belongs to, whether or not it names one."""

from __future__ import annotations

import json

import pytest

from schemas.errors import DecodeError
from stream_router.intake_thread import decode_query

BOTH = ("photo", "reviews")


def record(**more: str) -> bytes:
    return json.dumps({"query_id": "q-1", "text": "canon", **more}).encode()


@pytest.mark.parametrize(
    ("workloads", "default", "named", "found"),
    [
        (["photo"], None, None, "photo"),
        (BOTH, "reviews", None, "reviews"),
        (BOTH, "reviews", "photo", "photo"),
        (BOTH, None, "photo", "photo"),
    ],
)
def test_a_query_that_names_no_workload_is_the_defaults(
    workloads: list[str], default: str | None, named: str | None, found: str
) -> None:
    value = record(workload=named) if named else record()
    assert decode_query(value, workloads, default)[1] == found


def test_without_a_default_the_dead_letter_says_what_to_set() -> None:
    with pytest.raises(DecodeError, match="several are configured: photo, reviews; name one, or set default_workload"):
        decode_query(record(), BOTH)


def test_unconfigured_workload_gets_no_default() -> None:
    with pytest.raises(DecodeError) as refused:
        decode_query(record(workload="audio"), BOTH, "photo")
    assert refused.value.reason == "unknown_workload"
