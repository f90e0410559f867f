"""The judge of what moved, on a few made-up texts: it draws every change, and its page says what was named."""

from __future__ import annotations

import random

from research.what_moved.__main__ import _judged, page
from research.what_moved.cases import SHARES, cases, quiet

_LETTERS, _FOREIGN = "abcdefghijklm", "nopqrstuvwxyz"


def made_up(kind: str, letters: str = _LETTERS) -> list[str]:
    draw = random.Random(kind)
    words = ["".join(draw.choices(letters, k=5)) for _ in range(300)]
    return [" ".join(draw.choices(words, k=draw.randint(5, 15))) for _ in range(1_500)]


def language(text: str) -> str:
    return "xx" if text[0].lower() in _FOREIGN else "en"


def test_every_change_is_judged_and_shown() -> None:
    english, others = {kind: made_up(kind) for kind in ("one", "two")}, {"xx": made_up("xx", _FOREIGN)}
    judged = _judged(cases(english, others, 3, 300, 1), language)
    still = _judged(quiet(english, 4, 300, 4), language)
    assert [one["share"] for one in judged[: len(SHARES)]] == list(SHARES)
    largest = [one for one in judged if one["share"] == max(SHARES)]
    assert sum(one["is_right"] for one in largest) >= 0.8 * len(largest)
    assert all(one["is_right"] for one in still)
    made = {"command": "c", "machine": "m", "python": "p", "commit": "x", "day": "d"}
    shown = page({"queries": 300, "cases": judged, "quiet": still, "sources": {"one": 1_500}}, made)
    assert f"Right cause first: {sum(one['is_right'] for one in judged)} of {len(judged)}." in shown
    assert "| texts in xx |" in shown
