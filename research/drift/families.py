"""The families of streams: progress through the stream flows in, conditions and labelers' behaviour flow out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from research.drift.family import Family, Floats, Labelers, ramp, since
from research.drift.mess import ClockAhead, Habits, LargeTrouble, Lie, Mess, Pause, Relabelling, Spell
from research.drift.ordinary import ORDINARY

FIVE_POINTS = 0.98
"""Log-odds of small errors that cost the small model five points of micro-F1."""


def _small_drift(begin: float, end: float) -> Callable[[Floats], dict[str, Floats]]:
    return lambda t: {"small": FIVE_POINTS * ramp(t, begin, end)}


FAMILIES = (
    Family("stationary", "nothing changes"),
    Family(
        "small_abrupt",
        "the small model loses 5 points of F1 at once",
        lambda t: {"small": FIVE_POINTS * since(t, 0.4)},
        changes=(0.4,),
    ),
    Family("small_gradual", "the same over 80k queries", _small_drift(0.3, 0.7), changes=(0.3,)),
    Family(
        "large_abrupt",
        "the large model errs half as often again",
        lambda t: {"large": 0.45 * since(t, 0.4)},
        changes=(0.4,),
    ),
    Family("large_gradual", "the same over 80k queries", lambda t: {"large": 0.45 * ramp(t, 0.3, 0.7)}, changes=(0.3,)),
    Family(
        "both_abrupt",
        "both fail alike more often, with equal answers",
        lambda t: {"alike": 0.9 * since(t, 0.4)},
        changes=(0.4,),
    ),
    Family("both_gradual", "the same over 80k queries", lambda t: {"alike": 0.9 * ramp(t, 0.3, 0.7)}, changes=(0.3,)),
    Family(
        "covariate",
        "harder queries become more frequent",
        lambda t: {"hard": 0.3 * since(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "prior",
        "queries that the small model gets wrong become more frequent",
        lambda t: {"prior": 0.8 * since(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "recurring",
        "a 4-point loss comes and goes every 25k queries",
        lambda t: {"small": 0.8 * ((t * 8.0).astype(np.int64) % 2)},
        changes=(0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875),
    ),
    Family(
        "slow_trend",
        "the small model gets worse all along",
        lambda t: {"small": 1.2 * t - 0.2},
        changes=(0.0,),
    ),
    Family(
        "signal_lost", "u says nothing for 4 queries in 10", lambda t: {"lost": 0.4 * since(t, 0.4)}, changes=(0.4,)
    ),
    Family(
        "label_noise",
        "5 % of labels are wrong for 80k queries",
        labelers=Labelers(careless=lambda t: 0.05 * since(t, 0.3, 0.7)),
        changes=(0.3,),
        adversary=True,
    ),
    Family(
        "label_flattery",
        "from some time on a fifth of the labels call the small answer right",
        labelers=Labelers(flattering=lambda t: 0.2 * since(t, 0.3)),
        changes=(0.3,),
        adversary=True,
    ),
    Family(
        "label_delay",
        "labels take 10 times as long, and the small model then loses 5 points",
        lambda t: {"small": FIVE_POINTS * since(t, 0.5)},
        Labelers(slower=lambda t: 1.0 + 9.0 * since(t, 0.3)),
        changes=(0.5,),
    ),
    Family(
        "label_drought",
        "for 70k queries one label in 50 comes, and the small model gets worse meanwhile",
        _small_drift(0.4, 0.6),
        Labelers(answered=lambda t: 1.0 - 0.98 * since(t, 0.3, 0.65)),
        changes=(0.4,),
    ),
    Family(
        "volume_swing",
        "traffic swings tenfold, difficulty with it",
        lambda t: {"hard": 0.12 * np.sin(2.0 * np.pi * 5.0 * t)},
        rate=lambda t: 10.0 ** (0.5 * np.sin(2.0 * np.pi * 5.0 * t)),
        changes=(0.0,),
    ),
    Family(
        "new_model",
        "a new small model: u on another scale, 2 points better",
        lambda t: {"stretch": -0.3 * since(t, 0.4), "offset": -2.0 * since(t, 0.4), "small": -0.3 * since(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "infeasible",
        "the large model falls below the target for 50k queries and recovers",
        lambda t: {"large": 1.1 * since(t, 0.35, 0.6)},
        changes=(0.35, 0.6),
    ),
)


_OUTAGE = Spell(0.4, 6_000)
_BROWN = Spell(0.4, 20_000, most=0.3)


def _labelled(name: str, about: str, *, begin: float | None = None, **habits: Any) -> Family:
    changes = () if begin is None else (begin,)
    mess = Mess(habits=Habits(**habits))
    return Family(name, about, changes=changes, adversary=mess.attacked, mess=mess)


def _relabelled(name: str, about: str, share: float, says: Lie) -> Family:
    return _labelled(name, about, begin=0.5, relabels=Relabelling(0.5, share, says))


MESSY = (
    Family("outage_large", "the large server is absent for 6k queries", mess=Mess(large=LargeTrouble(_OUTAGE))),
    Family("outage_small", "the small server is absent for 6k queries", mess=Mess(small_outage=_OUTAGE)),
    Family(
        "brown_out",
        "the large server answers 6 calls in 100 queries for 20k queries, and fails the others",
        mess=Mess(large=LargeTrouble(_BROWN, capacity=0.06)),
    ),
    Family(
        "retry_storm",
        "the large server has room for 12 calls in 100 queries; failed calls are retried twice and slow it down",
        mess=Mess(large=LargeTrouble(_BROWN, capacity=0.12, waste=2.0, retries=2)),
    ),
    _labelled("corrections_5", "5 % of labels are wrong at first and corrected 1,000 queries later", wrong=0.05),
    _labelled("corrections_20", "20 % of labels are wrong at first and corrected 1,000 queries later", wrong=0.20),
    _labelled(
        "corrections_trusted", "the same, with answers of trusted people to audits", wrong=0.20, trusted_err=True
    ),
    _labelled("corrections_late", "20 % are wrong at first and corrected 15,000 queries later", wrong=0.20, later=15.0),
    _labelled("withdrawals", "5 % of labels are withdrawn 1,000 queries later", withdrawn=0.05),
    _labelled(
        "duplicate_labelers", "a third of the queries get 2 or 3 honest labels", shared=0.33, noise=0.01, resent=0.1
    ),
    _relabelled("relabel_wrong", "one key calls the small answer wrong on a third of all labels", 0.33, "small_wrong"),
    _relabelled("relabel_right", "one key calls the small answer right on all labels", 1.0, "small_right"),
    _labelled("liar", "one of five labelers calls the small answer wrong, always", begin=0.0, lies="small_wrong"),
    _labelled("one_field", "one of five labelers is always wrong in one field", begin=0.0, lies="one_field"),
    Family(
        "clock_jump",
        "one of three routers has its clock a year ahead, clamped by the join, for 670 queries of its own",
        mess=Mess(clock=ClockAhead(Spell(0.4, 2_000), seconds=0.2)),
    ),
    Family(
        "clock_ahead",
        "the same by four minutes, which nobody clamps",
        mess=Mess(clock=ClockAhead(Spell(0.4, 2_000), seconds=240.0)),
    ),
    _labelled(
        "label_flood", "every one of 12k queries is labelled, asked for or not", flood=Spell(0.4, 12_000, most=0.2)
    ),
    _labelled("backlog", "the labels of 60k queries all come at once", backlog=Spell(0.25, 60_000)),
    Family("night", "traffic stops for 8 hours, twice", mess=Mess(pause=Pause((0.35, 0.7), 8.0 * 3_600.0))),
    Family(
        "small_workload",
        "a query every 10 s, beside a workload with 100 times the load",
        rate=lambda t: np.full_like(t, 0.01),
        mess=Mess(chunk=5),
    ),
)
LABELS_ALONE = Family(
    "labels_alone",
    "both fail alike more often, by 2 points of micro-F1: agreement does not tell",
    lambda t: {"alike": 1.05 * since(t, 0.5)},
    changes=(0.5,),
)
"""What the plan of labels speaks of; walked by ``python -m research.labels`` alone."""

BY_NAME = {family.name: family for family in (*FAMILIES, *MESSY, *ORDINARY, LABELS_ALONE)}
SETS = {"clean": tuple(family.name for family in FAMILIES), "messy": tuple(family.name for family in MESSY)}

__all__ = ["BY_NAME", "FAMILIES", "FIVE_POINTS", "MESSY", "SETS", "Family", "Labelers"]
