"""Wrong labels on recorded queries that do not drift: what they cost, and how often feasibility seems to change.

A wrong label breaks a pair that was right, so that it reports an error more of each model whose answer had it.

Example: python -m research.recorded.wrong_labels
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from research.paper.tables import percent, percents, signed, table
from research.recorded.policies import SAFETY, TARGET, ByPhase
from research.recorded.scoring import oracles, score
from research.recorded.service import Service
from research.recorded.simulate import Routed, simulate
from research.recorded.stream import PHASES, Mask, Outcomes, draw_stream, query_id
from schemas.draws import uniform

QUERIES, SEEDS, SHARES = 12_000, range(11, 21), (0.0, 0.05, 0.10)


class Mislabelled(Service):
    """The service, fed by people who err.

    ``share``: of labels that are wrong.
    """

    def __init__(self, share: float) -> None:
        super().__init__(TARGET, SAFETY)
        self._share = share

    def learn(self, labelled: Routed) -> None:
        """Hand on labels, some of them wrong."""
        draws = np.array([uniform(query_id(row), "wrong label") for row in labelled.rows.tolist()])
        super().learn(replace(labelled, outcomes=mislabelled(labelled.outcomes, draws < self._share)))


def mislabelled(outcomes: Outcomes, wrong: Mask) -> Outcomes:
    """Return what labels report of which some are wrong."""
    small, large = (np.maximum(hits - wrong, 0) for hits in (outcomes.small_hits, outcomes.large_hits))
    return replace(outcomes, small_hits=small, large_hits=large, exact=outcomes.exact & ~wrong)


def measure(share: float, seed: int) -> tuple[int, float, float]:
    """Return how often feasibility changed, regret, and the share of blocks whose expected micro-F1 is on target."""
    stream = draw_stream(QUERIES, seed, PHASES[:1])
    known = oracles(stream, TARGET)
    service = Mislabelled(share)
    ours = score(simulate(service, stream), stream, known)
    best = score(simulate(ByPhase([known[0].threshold], QUERIES), stream), stream, known)
    regret = float(ours.sequential.mean() / best.sequential.mean() - 1.0)
    return service.triggers.count("feasibility_changed"), regret, float(ours.expected_on_target.mean())


def main() -> None:
    """Print one row for each share of wrong labels."""
    rows = []
    for share in SHARES:
        flips, regret, held = zip(*(measure(share, seed) for seed in SEEDS), strict=True)
        cost = f"{signed(100 * np.mean(regret), 1)} % {percents((min(regret), max(regret)))}"
        rows.append(
            [percent(share), f"{np.mean(flips):.1f} [{min(flips)}, {max(flips)}]", cost, percent(np.mean(held))]
        )
    print(table(("wrong labels", "feasibility_changed", "regret", "blocks on target"), rows))


if __name__ == "__main__":
    main()
