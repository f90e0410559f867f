"""Which trait is put first, where it is said to have moved, and what is put behind what."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from recalibrator.fit.movement.causes import Compared, escalation, moved_traits
from recalibrator.fit.movement.dispersion import Dispersion
from recalibrator.fit.movement.sentence import say
from recalibrator.fit.movement.series_table import CATEGORIES, Series

ALPHA = 1e-4
Row = dict[str, tuple[int, int]]


def compared(rows: dict[Series, Row], before: int, after: int) -> Compared:
    """Counts of queries before and after by category; a third of all queries escalates, throughout."""
    counts = np.zeros((2, len(rows), CATEGORIES, 2), dtype=np.int64)
    for at, row in enumerate(rows.values()):
        for place, pair in enumerate(row.values()):
            counts[:, at, place, 0] = pair
    counts[..., 1] = counts[..., 0] // 3
    whole = np.array([before, after], dtype=np.float64)
    categories = [list(row) for row in rows.values()]
    spread = Dispersion(np.ones(counts.shape[1:3]), np.full(counts.shape[1:3], 1e9))
    return Compared(list(rows), categories, counts[0], counts[1], spread, whole, whole // 3)


def test_what_moves_in_a_small_segment_alone_is_confined_to_it() -> None:
    """A change too small to see in all queries is told of the segment's own, and the sentence says so."""
    found = compared(
        {
            Series("field:camera"): {"missing": (3_000, 1_540), "given": (7_000, 3_460)},
            Series("field:camera", "source", "kiosk"): {"missing": (60, 90), "given": (140, 10)},
            Series("field:camera", "source", "web"): {"missing": (2_940, 1_450), "given": (6_860, 3_450)},
        },
        10_000,
        5_000,
    )
    traits = moved_traits(found, ALPHA)
    assert [(one.trait, one.segment, one.value, one.is_confined) for one in traits] == [
        ("field:camera", "source", "kiosk", True)
    ]
    assert traits[0].categories[0].after == 0.9
    sentence = say(tuple(traits), escalation(found), datetime(2026, 1, 1, 2, 10, tzinfo=UTC))
    assert "(30 % → 90 % of queries there), only where source is kiosk" in sentence


def test_what_a_segment_brings_along_stands_behind_it() -> None:
    """Where the API always wrote capitals and its share has grown, the source is the cause, and the capitals follow."""
    found = compared(
        {
            Series("segment:source"): {"web": (8_000, 2_500), "api": (2_000, 2_500)},
            Series("letter_case"): {"lower": (8_000, 2_500), "upper": (2_000, 2_500)},
            Series("letter_case", "source", "web"): {"lower": (8_000, 2_500)},
            Series("letter_case", "source", "api"): {"upper": (2_000, 2_500)},
        },
        10_000,
        5_000,
    )
    traits = moved_traits(found, ALPHA)
    assert [(one.trait, one.follows) for one in traits] == [("segment:source", None), ("letter_case", "source")]
    assert traits[0].categories[0].category == "api"


def test_without_a_material_change_nothing_moved() -> None:
    """However many queries show it, a change by one point in a hundred explains nothing."""
    found = compared({Series("script"): {"latin": (9_900_000, 980_000), "greek": (100_000, 20_000)}}, 10**7, 10**6)
    assert moved_traits(found, ALPHA) == []
