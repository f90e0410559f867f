"""Counts of series by block: what lies before and after each possible beginning of a change."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.movement.causes import material
from recalibrator.fit.movement.series_table import RECENT_BLOCKS, Series, SeriesTable

BLOCKS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)), max_size=3),
    min_size=1,
    max_size=RECENT_BLOCKS + 4,
)


@given(BLOCKS)
def test_splits_add_up_as_the_parts_of_each_block_do(blocks: list[dict[str, dict[str, int]]]) -> None:
    """Whatever was counted, also where blocks have left the recent ones; what is material does not depend on sizes."""
    table = SeriesTable()
    for block in blocks:
        for trait, categories in block.items():
            table.add(Series(trait), {category: (queries, 0) for category, queries in categories.items()})
        table.close_block()
    before, after, sizes = table.splits()
    for place in range(table.filled):
        for split, part in zip((before, after), table.part(place), strict=True):
            assert split[:, place].tolist() == part[..., 0].tolist()
    assert [size.tolist() for size in sizes] == [split.sum(axis=-1).tolist() for split in (before, after)]
    np.testing.assert_array_equal(material(before, after, sizes), material(before, after))
