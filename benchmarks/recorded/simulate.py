"""A policy and a stream flow in, what was routed how flows out: decisions in batches, labels when they are due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.recorded.stream import (
    LABELLED_ESCALATED,
    LABELLED_KEPT,
    Floats,
    Integers,
    Mask,
    Outcomes,
    Stream,
)

BATCH = 200


@dataclass(frozen=True, slots=True)
class Routed:
    """Some queries of the stream and what was done with them, shape (queries,).

    Parameters
    ----------
    rows : ndarray of int
        Places in the stream.
    outcomes : Outcomes
        Of these queries; a policy may look at what a service would know of them.
    threshold : ndarray of float
        In force when they came.
    above : ndarray of bool
        Escalated by the threshold.
    explored : ndarray of bool
        Not above, but the large model ran as well.
    labelled : ndarray of bool
        The label was asked for.
    exploration : ndarray of float
        Probability with which a kept query ran the large model as well.
    """

    rows: Integers
    outcomes: Outcomes
    threshold: Floats
    above: Mask
    explored: Mask
    labelled: Mask
    exploration: Floats

    def take(self, rows: Integers | slice) -> Routed:
        """Return some of them."""
        return Routed(
            self.rows[rows],
            self.outcomes.take(rows),
            self.threshold[rows],
            self.above[rows],
            self.explored[rows],
            self.labelled[rows],
            self.exploration[rows],
        )


class Policy(Protocol):
    """Keeps a threshold on u.

    Parameters
    ----------
    exploration : float
        Share of the kept queries on which the large model runs as well, in force now.
    threshold : float
        In force now: u above it is escalated.
    """

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

    Returns
    -------
    Routed
        All queries.
    """
    total = len(stream)
    above, threshold, exploration = np.zeros(total, dtype=bool), np.zeros(total), np.zeros(total)
    explored, labelled = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    everything = Routed(np.arange(total), stream.outcomes, threshold, above, explored, labelled, exploration)
    due = np.argsort(stream.label_at, kind="stable")
    due_at = stream.label_at[due]
    delivered = 0
    for first in range(0, total, BATCH):
        batch = slice(first, min(first + BATCH, total))
        threshold[batch], exploration[batch] = policy.threshold, policy.exploration
        above[batch] = stream.outcomes.take(batch).above(policy.threshold)
        explored[batch] = ~above[batch] & (stream.draw[batch] < policy.exploration)
        labelled[batch] = stream.draw[batch] < np.where(above[batch], LABELLED_ESCALATED, LABELLED_KEPT)
        policy.see(everything.take(batch))
        upto = int(np.searchsorted(due_at, batch.stop))
        arrived = due[delivered:upto]
        delivered = upto
        arrived = arrived[labelled[arrived]]
        if len(arrived):
            policy.learn(everything.take(arrived))
    return everything
