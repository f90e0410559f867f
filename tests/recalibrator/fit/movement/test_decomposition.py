"""The parts of a change of a rate: exact, and each where it belongs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.movement.decomposition import decompose

_GROUPS = st.lists(
    st.tuples(st.integers(0, 500), st.floats(0.0, 1.0), st.integers(0, 500), st.floats(0.0, 1.0)),
    min_size=1,
    max_size=6,
)


@given(_GROUPS)
def test_the_parts_add_up_to_the_change(groups: list[tuple[int, float, int, float]]) -> None:
    before, rate_before, after, rate_after = np.array(groups, dtype=float).T
    effects = decompose(before, before * rate_before, after, after * rate_after)
    if before.sum() == 0.0 or after.sum() == 0.0:
        assert effects.change == 0.0
        return
    change = (after @ rate_after) / after.sum() - (before @ rate_before) / before.sum()
    assert effects.change == pytest.approx(change, abs=1e-9)


def test_a_change_within_one_group_is_put_there() -> None:
    before = np.array([80.0, 20.0])
    effects = decompose(before, np.array([8.0, 2.0]), before, np.array([8.0, 12.0]))
    assert effects.composition.tolist() == [0.0, 0.0]
    assert effects.within.round(9).tolist() == [0.0, 0.1]
