"""How long a headline stands: a minute, unless something graver comes. A fold over what is found; no clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from recalibrator.headlines.rules import OBSERVED, gravity
from schemas.status import Headline

HOLD = timedelta(seconds=60)
_WORRYING = ("bad", "warn")


class Shown(NamedTuple):
    """A headline, since when it is shown, and when what it says was first found to be over."""

    found: Headline
    at: datetime
    over_at: datetime | None = None

    @property
    def headline(self) -> Headline:
        """What to show: of what is over, that it is, and no act."""
        one, over_at = self.found, self.over_at
        if over_at is None:
            return one
        effect = f"this is over since {over_at:%H:%M:%S} UTC"
        return one.model_copy(
            update={"severity": "calm", "effect": effect, "act": "", "link": None}
            | {"sentence": f"{one.sentence.removesuffix('.').removesuffix(f': {one.effect}')}: {effect}."}
        )


def shown(before: Shown | None, found: Headline, now: datetime) -> Shown:
    """Return what is shown once this was found.

    Examples
    --------
    >>> from datetime import UTC
    >>> def at(second): return datetime(2026, 3, 1, 12, 0, second, tzinfo=UTC)
    >>> dear = Headline(kind="dear", severity="bad", cause="It is dear", sentence="It is dear.")
    >>> jump = dear.model_copy(update={"kind": "escalation_jump"})
    >>> kafka = dear.model_copy(update={"kind": "kafka"})
    >>> first = shown(None, dear, at(0))
    >>> shown(first, jump, at(10)).found.kind, shown(first, kafka, at(10)).found.kind
    ('dear', 'kafka')
    >>> well = Headline(kind="well", severity="good", cause="All is well", sentence="All is well.")
    >>> shown(first, well, at(20)).headline.sentence
    'It is dear: this is over since 12:00:20 UTC.'
    """
    if before is None or before.found.severity not in _WORRYING or now - before.at >= HOLD:
        return Shown(found, before.at if before is not None and before.found == found else now)
    # What a person has just commanded is no flicker either.
    if found.kind == "held" or gravity(found) < gravity(before.found):
        return Shown(found, now)
    if found.kind == before.found.kind:
        return Shown(found if found.kind in OBSERVED else before.found, before.at)
    if found.severity in _WORRYING and before.found.kind not in OBSERVED:
        return before._replace(over_at=None)
    return before._replace(over_at=before.over_at or now)
