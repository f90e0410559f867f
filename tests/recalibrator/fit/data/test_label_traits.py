"""Categories of labelled queries: bounded, kept with their rows, and the same after a restart."""

from __future__ import annotations

import json

import numpy as np

from recalibrator.fit.data.label_traits import MOST_CATEGORIES, UNKNOWN, LabelTraits


def said(traits: LabelTraits, name: str, labels: int) -> list[str | None]:
    column = traits.column(name, labels)
    assert column is not None
    return [None if code == UNKNOWN else column.categories[code - 1] for code in column.codes.tolist()]


def test_a_correction_without_traits_leaves_them() -> None:
    traits = LabelTraits(("language", "segment:source"), 4)
    traits.put(1, {"language": "de", "segment:source": "web"})
    traits.put(1, {})
    assert said(traits, "segment:source", 3) == [None, "web", None]
    assert traits.column("script", 3) is None


def test_rows_that_stay_keep_their_categories() -> None:
    """When the oldest labels are dropped, the others move up and the rows behind them are empty."""
    traits = LabelTraits(("language",), 5)
    for slot, language in enumerate(["de", "en", "fr", "en"]):
        traits.put(slot, {"language": language})
    traits.keep(np.array([1, 3]))
    assert said(traits, "language", 4) == ["en", "en", None, None]


def test_values_without_end_count_together() -> None:
    traits = LabelTraits(("segment:user",), 500)
    for slot in range(500):
        traits.put(slot, {"segment:user": f"user {slot}"})
    found = said(traits, "segment:user", 500)
    assert len(set(found)) == MOST_CATEGORIES
    assert found[-1] == "other"


def test_a_restart_knows_the_same_and_new_traits_begin_empty() -> None:
    """Traits that are no longer kept are passed over; one that is kept from now on knows nothing of earlier labels."""
    traits = LabelTraits(("language", "segment:source"), 3)
    traits.put(0, {"language": "de", "segment:source": "web"})
    state = json.loads(json.dumps(traits.state(2)))
    again = LabelTraits(("segment:tier", "language"), 3)
    again.load(state)
    assert said(again, "language", 2) == ["de", None]
    assert said(again, "segment:tier", 2) == [None, None]
    same = LabelTraits(("language", "segment:source"), 3)
    same.load(state)
    assert same.state(2) == traits.state(2)
