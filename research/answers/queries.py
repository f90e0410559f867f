"""A text with its gold entities, and what careless typing does to it."""

from __future__ import annotations

import random
import string
from typing import NamedTuple

Gold = dict[str, str | None]


class Query(NamedTuple):
    """A text with its gold entities; ``base`` is the clean query that it was made from, -1 for none."""

    text: str
    gold: Gold
    base: int = -1

    @property
    def named(self) -> int:
        """How many fields the text fills."""
        return sum(value is not None for value in self.gold.values())


def with_typos(text: str, rate: float, draw: random.Random) -> str:
    """Drop, double, swap or replace characters at a rate; white space stays."""
    out, place = list[str](), 0
    while place < len(text):
        one = text[place]
        if one == " " or draw.random() >= rate:
            out.append(one)
        else:
            kind = draw.randrange(4)
            if kind == 1:
                out.append(one * 2)
            elif kind == 2 and place + 1 < len(text):
                place += 1
                out.append(text[place] + one)
            elif kind == 3:
                out.append(draw.choice(string.digits if one.isdigit() else string.ascii_lowercase))
        place += 1
    return "".join(out)
