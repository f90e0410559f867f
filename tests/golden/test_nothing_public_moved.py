"""What must stay as it is while modules move: numbers of fixed streams, names on the wire, and commands.

``public.json`` beside this file holds it. Where a change is meant to show, ``python -m tests.golden.write`` writes the
file anew; the difference says what changed, and the commit says why.

The numbers are pinned to machines like those that the file was written on: another build of NumPy or of its BLAS may
sum in another order. Floats are therefore rounded to six significant digits before they are hashed, so that another
last digit does not show; a decision that hangs on one still would. Digests come in segments of 1,000 observations:
the first that differs says where to look.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.golden import lists, stream, write

GOLDEN: dict[str, Any] = json.loads(write.GOLDEN.read_bytes())


def test_public_lists_are_what_they_were() -> None:
    found = json.loads(json.dumps(lists.lists()))
    assert found == {subject: GOLDEN[subject] for subject in GOLDEN if subject != "streams"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "audited" else []) for name in stream.STORIES]
)
def test_fixed_stream_gives_the_golden_outputs(name: str) -> None:
    """A fixed stream with a restart gives the same versions and statuses as before."""
    golden, came = GOLDEN["streams"][name], stream.run(name)
    pairs = enumerate(zip(came["outputs_by_thousands"], golden["outputs_by_thousands"], strict=True))
    differing = [f"{n * stream.SEGMENT} to {(n + 1) * stream.SEGMENT}" for n, (a, b) in pairs if a != b]
    assert differing == [], f"first differs in observations {differing[0]}"
    assert came == golden
