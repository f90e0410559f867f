"""The gallery in the documents: each state has its pictures, small ones, and the sentence that its page begins with."""

from __future__ import annotations

from typing import Any

import pytest
from markupsafe import Markup

from recalibrator.api.pages.svg_plots import Figures, FigureStore
from tests.browser.pictures import FOLDER, GALLERY, LOOKS, MOST_BYTES, STATES, gallery


def test_the_gallery_quotes_what_the_pages_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a sentence changes, ``python -m tests.browser.pictures`` writes the gallery and its pictures anew."""
    monkeypatch.setattr(FigureStore, "of", _no_drawings)  # the sentences are quoted, not the charts

    assert GALLERY.read_text(encoding="utf-8") == gallery()


def _no_drawings(*_: Any) -> Figures:
    return Figures(*(Markup() for _ in Figures._fields))


def test_every_state_has_its_pictures_all_small_and_no_others() -> None:
    sizes = {one.name: one.stat().st_size for one in FOLDER.glob("*.png")}
    assert sizes.keys() == {f"{state}-{look}.png" for state in STATES for look in LOOKS}
    assert 0 < min(sizes.values()) <= max(sizes.values()) <= MOST_BYTES
