"""What must stay as it is while modules move: numbers of fixed streams, names on the wire, commands and settings.

``public.json`` beside this file holds it. Where a change is meant to show, ``python -m tests.golden.write`` writes the
file anew; the difference says what changed, and the commit says why.

The numbers are pinned to machines like those that the file was written on: another build of NumPy or of its BLAS may
sum in another order. Floats are therefore rounded to nine significant digits before they are hashed, so that another
last digit does not show; a decision that hangs on one still would. Digests come in segments of 1,000 observations:
the first that differs says where to look.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.golden import lists, stream, write

GOLDEN: dict[str, Any] = json.loads(write.GOLDEN.read_bytes())
WANTED = {
    "audited": {
        "bootstrap",
        "drift",
        "audit",
        "labels_confirmed",
        "labels_unanswered",
        "threshold_moved",
        "feasibility_changed",
        "promote",
        "pin",
        "activate",
        "refit",
    },
    "unpriced": {"first_fit", "drift", "audit", "threshold_moved"},
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The lists as the file would hold them."""
    listed: dict[str, Any] = json.loads(json.dumps(lists.lists()))
    return listed


@pytest.mark.parametrize("subject", [subject for subject in GOLDEN if subject != "streams"])
def test_a_public_list_is_what_it_was(subject: str, found: dict[str, Any]) -> None:
    assert found[subject] == GOLDEN[subject]


def test_the_file_leaves_out_nothing_that_is_listed(found: dict[str, Any]) -> None:
    assert {*found, "streams"} == GOLDEN.keys()
    assert GOLDEN["streams"].keys() == stream.STORIES.keys()
    assert all(GOLDEN[subject] for subject in GOLDEN)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "audited" else []) for name in stream.STORIES]
)
def test_fixed_stream_gives_the_golden_outputs(name: str) -> None:
    """A fixed stream with a restart gives the same versions and statuses as before."""
    golden, came = GOLDEN["streams"][name], stream.run(name)
    for key in ("observations_by_thousands", "outputs_by_thousands"):
        pairs = zip(came[key], golden[key], strict=True)
        differing = [f"{n * stream.SEGMENT} to {(n + 1) * stream.SEGMENT}" for n, (a, b) in enumerate(pairs) if a != b]
        assert differing == [], f"{key}: first differs in observations {differing[0]}"
    assert came == golden


@pytest.mark.parametrize("name", stream.STORIES)
def test_the_stream_lives_through_what_matters(name: str) -> None:
    assert WANTED[name] <= GOLDEN["streams"][name]["triggers"].keys()
