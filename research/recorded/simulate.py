"""A policy and a stream flow in, what was routed how flows out: decisions in batches, labels when they are due."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np

from research.recorded.stream import (
    LABELLED_ESCALATED,
    LABELLED_KEPT,
    Floats,
    Integers,
    Mask,
    Outcomes,
    Stream,
)
from research.recorded.tokens import Generated, Levers, generated, is_compared, under_handoff

BATCH = 200


@dataclass(frozen=True, slots=True)
class Routed:
    """Some queries of the stream and what was done with them, shape (queries,).

    ``rows``: places in the stream. ``outcomes``: of these queries; a policy may look at what a service would know of
    them. The large model's are under the handoff where one was in force. ``threshold``: in force when they came.
    ``above``: escalated by the threshold. ``explored``: not above, but the large model ran as well. ``labelled``: the
    label was asked for. ``exploration``: probability with which a kept query ran the large model as well. ``handed``,
    ``compared``: where a handoff was in force, and where the large model answered alone as well, unserved.
    """

    rows: Integers
    outcomes: Outcomes
    threshold: Floats
    above: Mask
    explored: Mask
    labelled: Mask
    exploration: Floats
    handed: Mask
    compared: Mask

    @classmethod
    def blank(cls, stream: Stream) -> Routed:
        """Return all queries of a stream, with nothing done yet."""
        outcomes, total = stream.outcomes, len(stream)
        large = {name: getattr(outcomes, name).copy() for name in _OF_LARGE}
        masks = {name: np.zeros(total, dtype=bool) for name in ("above", "explored", "labelled", "handed", "compared")}
        return cls(
            rows=np.arange(total),
            outcomes=replace(outcomes, **large),
            threshold=np.zeros(total),
            exploration=np.zeros(total),
            **masks,
        )

    @property
    def ran(self) -> Mask:
        """Where the large model ran and its answer was served."""
        return self.above | self.explored

    @property
    def generated(self) -> Generated:
        """Tokens that each query cost."""
        return generated(self.outcomes.recording, ran=self.ran, handed=self.handed, compared=self.compared)

    def take(self, rows: Integers | slice) -> Routed:
        """Return some of them."""
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "outcomes"}
        return Routed(outcomes=self.outcomes.take(rows), **{name: values[rows] for name, values in columns.items()})


_OF_LARGE = ("large_hits", "large_named", "agree")
"""Columns that a handoff changes."""


class Policy(Protocol):
    """Keeps a threshold on u.

    ``exploration``: share of the kept queries on which the large model runs as well, in force now. ``threshold``: in
    force now: u above it is escalated. ``levers``: in force now.
    """

    @property
    def levers(self) -> Levers:
        """Return the levers in force now."""
        ...

    @property
    def exploration(self) -> float:
        """Return the share of the kept queries on which the large model runs as well, in force now."""
        ...

    @property
    def threshold(self) -> float:
        """Return the threshold in force now: u above it is escalated."""
        ...

    def see(self, routed: Routed) -> None:
        """Take in a batch of traffic; of large answers, only those that ran are known."""

    def learn(self, labelled: Routed) -> None:
        """Take in labels that have arrived, oldest first."""


def simulate(policy: Policy, stream: Stream) -> Routed:
    """Route the whole stream.

    A policy changes its threshold between batches of 200 queries only.

    Returns all queries.
    """
    total = len(stream)
    everything = Routed.blank(stream)
    due = np.argsort(stream.label_at, kind="stable")
    due_at = stream.label_at[due]
    delivered = 0
    for first in range(0, total, BATCH):
        batch = slice(first, min(first + BATCH, total))
        _route(everything, stream, batch, policy)
        policy.see(everything.take(batch))
        upto = int(np.searchsorted(due_at, batch.stop))
        arrived = due[delivered:upto]
        delivered = upto
        arrived = arrived[everything.labelled[arrived]]
        if len(arrived):
            policy.learn(everything.take(arrived))
    return everything


def _route(everything: Routed, stream: Stream, batch: slice, policy: Policy) -> None:
    """Decide on a batch by what is in force; every draw is of the same number, as in the router."""
    outcomes, draw, levers = stream.outcomes.take(batch), stream.draw[batch], policy.levers
    everything.threshold[batch], everything.exploration[batch] = policy.threshold, policy.exploration
    above = outcomes.above(policy.threshold)
    everything.above[batch] = above
    everything.explored[batch] = ~above & (draw < policy.exploration)
    kept, escalated = getattr(policy, "label_shares", None) or (
        stream.labels * LABELLED_KEPT,
        stream.labels * LABELLED_ESCALATED,
    )
    everything.labelled[batch] = draw < np.where(above, escalated, kept)
    if levers.handoff:
        everything.handed[batch] = True
        everything.compared[batch] = is_compared(outcomes.recording, above, draw, levers.guard_share)
        for name in _OF_LARGE:
            getattr(everything.outcomes, name)[batch] = getattr(under_handoff(outcomes), name)
