"""What a row keeps of a result and of its labels: as little as the labelled example needs.

A result whose label was requested keeps its text and its answers as they are, since a withdrawn label has people asked
again. Of all others, and of all labels, values are only ever compared: a long one is kept as a digest of its normal
form, which equals exactly the digests of the values that equal it.
"""

from __future__ import annotations

from hashlib import sha256

from schemas.costs import QueryCost
from schemas.entities import Entities, normalise
from schemas.routed import ModelRun, QueryHandoff, RoutedEvent

#: Characters of a normal form above which its digest is kept.
LONGEST_VALUE = 32

_DIGEST_CHARS = 24
_NO_COST = QueryCost(sequential=0.0, paper=0.0)


def compact(routed: RoutedEvent) -> RoutedEvent:
    """Return the result without what the join does not need: metadata, costs, latencies, texts that nobody labels.

    The :func:`comparable` form of what is returned equals that of the whole one, costs and texts aside.
    """
    asked = routed.label.requested
    return routed.model_copy(
        update={
            "text": routed.text if asked else "",
            "entities": routed.entities if asked else reduced(routed.entities),
            "small": _bare(routed.small, whole=asked),
            "large": _bare(routed.large, whole=asked),
            "cost": _NO_COST,
            "routed_by": "",
            "metadata": None,
            "handoff": _bare_handoff(routed.handoff, whole=asked),
        }
    )


def comparable(routed: RoutedEvent) -> RoutedEvent:
    """Return the result with its answers reduced, to be compared with a label of which the same is true."""
    return routed.model_copy(
        update={
            "entities": reduced(routed.entities),
            "small": _reduced_run(routed.small),
            "large": _reduced_run(routed.large),
            "handoff": routed.handoff
            and routed.handoff.model_copy(update={"alone": _reduced_run(routed.handoff.alone)}),
        }
    )


def reduced(entities: Entities) -> Entities:
    """Return the entities with long values as digests and each only once; reducing them again changes nothing.

    Examples
    --------
    >>> reduced({"iso": "100", "lens": "x" * 33}) == reduced({"iso": "100", "lens": "X" * 33})
    True
    >>> len(reduced({"lens": "x" * 4_000})["lens"])
    24
    """
    return {
        name: value
        if value is None
        else _reduced_text(value)
        if isinstance(value, str)
        else tuple(dict.fromkeys(map(_reduced_text, value)))
        for name, value in entities.items()
    }


def _reduced_text(text: str) -> str:
    # Folding makes no ASCII text longer; one character of another script can become eighteen.
    if len(text) <= LONGEST_VALUE and text.isascii():
        return text
    folded = normalise(text)
    return folded if len(folded) <= LONGEST_VALUE else sha256(folded.encode()).hexdigest()[:_DIGEST_CHARS]


def _reduced_run(run: ModelRun | None) -> ModelRun | None:
    if run is None or run.entities is None:
        return run
    return run.model_copy(update={"entities": reduced(run.entities)})


def _bare_handoff(handoff: QueryHandoff | None, *, whole: bool) -> QueryHandoff | None:
    if handoff is None:
        return None
    return QueryHandoff(name=handoff.name, guarded=handoff.guarded, alone=_bare(handoff.alone, whole=whole))


def _bare(run: ModelRun | None, *, whole: bool) -> ModelRun | None:
    if run is None:
        return None
    entities = run.entities if whole or run.entities is None else reduced(run.entities)
    return ModelRun(model="", entities=entities, valid=run.valid)
