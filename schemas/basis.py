"""What a workload's answers rest on, and whether a calibration version was made for what is configured.

A map from u to error probability says nothing about answers to another prompt, of another model or in other fields.
Versions name what they were made for, labels and traffic a short mark of it. Routers, the fit and the commands all ask
:func:`schemas.made_for.misfit`. A handoff is part of it: an escalated query's large model goes on from what the small
model was certain of, and its answers differ with that.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field

from schemas.canonical import digest
from schemas.event import MAX_NAME_CHARS, Count, Flag, Many, Part, Real

#: A basis as results, labels and traffic name it, which may be one of a later release.
BasisMark = Annotated[str, Field(min_length=1, max_length=64)]

_MARK_CHARS = 16
#: Results carry the mark of their basis: it is worked out once for each workload.
_KEPT = 256


class Basis(Part):
    """What the answers of a workload rest on; where servers listen and what is promised are not part of it."""

    #: The first 16 hex characters of the prompt's SHA-256.
    prompt: str

    fields: Many[str]
    api: str
    decoding: str
    uncertainty: str
    max_tokens: Count
    #: As their servers know them.
    small_model: str
    large_model: str

    @cached_property
    def mark(self) -> str:
        """What results, labels and traffic are marked with: 16 hex characters."""
        return digest(self.model_dump(mode="json"))[:_MARK_CHARS]


def prompt_digest(prompt: str) -> str:
    """Return what stands for a prompt: the first 16 hex characters of its SHA-256."""
    return sha256(prompt.encode()).hexdigest()[:_MARK_CHARS]


@lru_cache(maxsize=_KEPT)
def basis_of(prompt: str, fields: tuple[str, ...], form: tuple[str, str, str, int], models: tuple[str, str]) -> Basis:
    """Return the basis of a workload's settings."""
    api, decoding, uncertainty, max_tokens = form
    small_model, large_model = models
    return Basis(
        prompt=prompt_digest(prompt),
        fields=fields,
        api=api,
        decoding=decoding,
        uncertainty=uncertainty,
        max_tokens=max_tokens,
        small_model=small_model,
        large_model=large_model,
    )


def is_of_basis(mark: str | None, configured: str | None) -> bool:
    """Whether a label, or traffic, of this mark counts.

    Records that carry none count; where no models are configured, all count.

    Examples
    --------
    >>> is_of_basis("a1", "a1"), is_of_basis("b2", "a1"), is_of_basis(None, "a1"), is_of_basis("b2", None)
    (True, False, True, True)
    """
    return mark is None or configured is None or mark == configured


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
