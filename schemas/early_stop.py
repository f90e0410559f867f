"""Early stop: a small model's call ends as soon as its answer must become too uncertain to be kept.

u is 1 - the mean certainty of an answer's tokens. An answer of at most T tokens whose doubts 1 - certainty add up to
more than threshold · T ends with u above the threshold, whatever follows. A drawn share of queries runs in full all the
same; labels are drawn among them alone, so that every label knows its u.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.event import Count, Flag, Ordinal, Part, Real, Uncertainty

EARLY_STOP = "early_stop"
"""The ``finish_reason`` of a call that its router has stopped."""

_KEPT_BITS = 5

FullShare = Annotated[Real, Field(gt=0.0, le=1.0)]


class EarlyStop(Part):
    """When routers may stop small calls, as a version says.

    Parameters
    ----------
    longest : int
        T, in tokens: a quantile of the lengths of answers that ran in full. No call is stopped beyond it.
    full_share : float
        Share of queries that run in full, drawn by the hash that draws labels too; no label probability exceeds it.
    """

    longest: Ordinal
    full_share: FullShare


class QueryEarlyStop(Part):
    """What early stopping was, or would have been, for one query; null where its call could not be stopped.

    Parameters
    ----------
    longest, full_share
        As the version said when the call began.
    in_full : bool
        Whether the query was drawn to run in full.
    at_tokens : int or None
        Tokens after which the call was stopped, or would have been; null where the answer gave no cause. u of a stopped
        query is unknown: such queries have the u of those that would have been stopped, each of which stands for
        ``1 / full_share`` of them.
    uncertainty_least : float or None
        What u is at least, if the answer is no longer than ``longest``; given with ``at_tokens``.
    overtaken : bool
        Whether the version in force at the stop had a higher threshold than the call was stopped by, above
        ``uncertainty_least``: the query escalates all the same.
    repeated : bool
        Whether the large model gave no answer, so that the small one was asked once more, in full. u of that answer
        decides nothing, and is not counted.
    lost_tokens, lost_prompt_tokens : int
        Of the stopped call, where it was repeated.
    """

    longest: Ordinal
    full_share: FullShare
    in_full: Flag
    at_tokens: Ordinal | None = None
    uncertainty_least: Uncertainty | None = None
    overtaken: Flag = False
    repeated: Flag = False
    lost_tokens: Count = 0
    lost_prompt_tokens: Count = 0

    @property
    def stopped(self) -> bool:
        """Whether the call was stopped, so that u is unknown."""
        return self.at_tokens is not None and not self.in_full

    @property
    def spared(self) -> bool:
        """Whether the call would have been stopped, had the query not been drawn to run in full."""
        return self.at_tokens is not None and self.in_full


def rounded_length(tokens: int) -> int:
    """Return a length with its 5 leading bits alone, rounded up: at most 6 % longer, and few distinct values.

    Examples
    --------
    >>> rounded_length(31), rounded_length(33), rounded_length(100), rounded_length(0)
    (31, 34, 100, 0)
    """
    dropped = max(0, tokens.bit_length() - _KEPT_BITS)
    return -(-tokens >> dropped) << dropped if dropped else tokens


def full_share(early_stop: EarlyStop | None) -> float:
    """Return the share of queries whose small call runs in full; 1 where none is ever stopped."""
    return 1.0 if early_stop is None else early_stop.full_share
