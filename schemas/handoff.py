"""Handoff: an escalated query's large model goes on from what the small model was certain of.

Labels, traffic and versions name the handoff that they were made under, as the large model's answers differ with it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.event import MAX_NAME_CHARS, Flag, Part, Real

Granularity = Literal["field", "token"]

#: A handoff as results, labels and traffic name it, which may be one of a later release.
HandoffName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class Handoff(Part):
    """How much of the small model's answer the large one goes on from."""

    #: What is handed over ends before the first token whose p1 - p2 lies below it, in (0, 1].
    margin: Annotated[Real, Field(gt=0.0, le=1.0)]
    #: ``field`` hands over whole fields alone, ``token`` everything up to that token.
    granularity: Granularity = "field"
    #: False in a version after the fit has switched it off, since it cost too much quality.
    active: Flag = True

    @property
    def configured(self) -> Handoff:
        """The same as it is configured: not switched off."""
        return self if self.active else self.model_copy(update={"active": True})


def handoff_name(handoff: Handoff | None) -> str | None:
    """Return what results, labels and traffic under a handoff are marked with; None where nothing is handed over.

    Examples
    --------
    >>> handoff_name(Handoff(margin=0.9)), handoff_name(Handoff(margin=0.9, active=False)), handoff_name(None)
    ('field@0.9', None, None)
    """
    return f"{handoff.granularity}@{handoff.margin:g}" if handoff is not None and handoff.active else None


def is_decided_alike(made_for: Handoff | None, configured: Handoff | None) -> bool:
    """Whether a version made for one handoff may decide where another is configured.

    A version that has switched the configured handoff off may: nothing is handed over for the queries that it decides.

    Examples
    --------
    >>> field, token = Handoff(margin=0.9), Handoff(margin=0.9, granularity="token")
    >>> off = field.model_copy(update={"active": False})
    >>> is_decided_alike(field, field), is_decided_alike(off, field), is_decided_alike(off, None)
    (True, True, True)
    >>> is_decided_alike(token, field), is_decided_alike(None, field), is_decided_alike(field, None)
    (False, False, False)
    """
    if configured is None:
        return handoff_name(made_for) is None
    return made_for is not None and made_for.configured == configured
