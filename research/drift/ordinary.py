"""Ordinary life, and harm where real harm lies: families that no detector, margin or gate was chosen on.

In all of them labelers have names and, unless said, the workload trusts its expert. Changes come at 40 % of the
stream unless said. Where the harm of the last families lies is drawn anew by :mod:`research.drift.harm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from research.drift.family import Family, Floats, since
from research.drift.mess import Habits, Lie, Mess, Sampling

CHANGE, TURN = 0.4, 0.25
RETURN_QUERIES = 30_000
"""After which the world of a family of harm turns, and after as many turns back."""
JUDGED_QUERIES = 120_000
_BELOW, _ABOVE = 0.8, 1.6
"""Label rates below and above the threshold over the mean one, where a quarter escalates."""

HARMS: dict[str, dict[str, float]] = {
    "harm_typos": {"hard": 0.115, "small": 0.222, "alike": 0.164, "misled": 0.334},
    "harm_names_8": {"hard": 0.026, "small": 0.147, "alike": 0.207, "misled": 1.02},
    "harm_names_25": {"hard": 0.083, "small": 0.481, "alike": 0.504, "misled": 5.13},
    "harm_silent": {"misled": 1.0},
}
"""By family: conditions whose harm is split as that of a real drift was."""


def _changed(**conditions: float) -> Callable[[Floats], dict[str, Floats]]:
    return lambda t: {name: value * since(t, CHANGE) for name, value in conditions.items()}


def _world(name: str, about: str, mess: Mess | None = None, **conditions: float) -> Family:
    return Family(name, about, _changed(**conditions), changes=(CHANGE,), mess=mess or Mess())


def _people(name: str, about: str, begin: float | None = CHANGE, **habits: Any) -> Family:
    made = Mess(habits=Habits(begin=begin or 0.0, **habits))
    return Family(name, about, changes=() if begin is None else (begin,), adversary=made.attacked, mess=made)


def _turned(says: str, about: str, lies: Lie, share: float = 1.0) -> list[Family]:
    named = _people(f"turn_{says}", f"one of five labelers {about}", TURN, lies=lies, lie_share=share)
    assert named.mess is not None
    unnamed = replace(named.mess, expert=False)
    return [named, replace(named, name=f"{named.name}_unnamed", about=f"{named.about}; no expert", mess=unnamed)]


def _sampled(rate: float) -> Mess:
    return Mess(sampling=Sampling(_BELOW * rate, _ABOVE * rate))


def _cold(name: str, rate: float) -> Family:
    about = f"no labelled set to start from, {100 * rate:g} % of queries labelled; ten blocks from the first threshold"
    return Family(name, about, mess=replace(_sampled(rate), cold=True))


_BUDGETED = {"small": 0.5, "misled": 0.4}


def _budgeted(name: str, rate: float) -> Family:
    about = f"{100 * rate:g} % of queries labelled; both models get worse, the large one where the small one errs"
    return _world(name, about, _sampled(rate), **_BUDGETED)


def _unlabelled() -> Family:
    """Return the family in which people are asked as often as they come, and none ever answers."""
    asked = _budgeted("labels_0", 0.08)
    labelers = replace(asked.labelers, answered=np.zeros_like)
    return replace(asked, about="the same, 8 % asked and none ever answered", labelers=labelers)


def _returning(name: str, about: str) -> Family:
    turns = RETURN_QUERIES / JUDGED_QUERIES

    def world(t: Floats) -> dict[str, Floats]:
        return {condition: value * ((t / turns).astype(np.int64) % 2) for condition, value in HARMS[name].items()}

    return Family(name, f"{about}, every other 30,000 queries", world, changes=(0.25, 0.5, 0.75), mess=Mess())


ORDINARY = (
    Family("quiet", "nothing changes, labelers have names", mess=Mess()),
    _world("blind_loss", "the small model gets 2 points worse, u does not show where", blunder=0.06),
    _world("new_scale", "u moves to another scale, nothing else", stretch=0.2, offset=0.3),
    _world("cut_short", "8 % of small answers end half way, u does not show it", cut=0.08),
    _world("new_entity", "one query in ten holds an entity of a new type", novel=0.10),
    *_turned("wrong", "calls the small answer wrong, after 30k honest queries", "small_wrong"),
    *_turned("right", "calls the small answer right, after 30k honest queries", "small_right"),
    *_turned("some", "gets 30 % of labels wrong, after 30k honest queries", "careless", 0.3),
    _people(
        "turn_near",
        "two of five call the small answer right, near the threshold alone",
        lies="small_right",
        liars=2,
        lie_where=(0.35, 0.8),
    ),
    Family(
        "turn_named_start",
        "the labelled set names its labelers, one of whom calls the small answer wrong after 30k honest queries",
        changes=(TURN,),
        adversary=True,
        mess=Mess(habits=Habits(lies="small_wrong", begin=TURN), named_start=True),
    ),
    _people("careless_3", "3 % of labels are careless", noise=0.03),
    _people(
        "careless_doubt", "labels are careless with .25 of the chance that the small answer is wrong", doubted=0.25
    ),
    replace(
        _people("one_sided", "only escalated queries are labelled; the small model gets worse", kept_skipped=True),
        world=_changed(small=0.55),
    ),
    Family(
        "bursts",
        "a tenth of traffic comes in bursts of 200 alike queries",
        lambda t: {"burst": 0.1 + 0.0 * t},
        mess=Mess(),
    ),
    Family(
        "season",
        "difficulty follows the day, six days",
        lambda t: {"hard": 0.2 * np.sin(12.0 * np.pi * t)},
        mess=Mess(),
    ),
    _people("skipped_errors", "people skip 40 % of labels where the small model errs", skipped=0.4),
    _people("withdrawn_5", "5 % of labels are withdrawn 1,000 queries later", None, withdrawn=0.05),
    _people("corrected_20", "20 % of labels are wrong at first and corrected 1,000 queries later", None, wrong=0.2),
    _world("mute_all", "all servers report that they are certain, whatever they answer: u is 0", mute=1.0),
    _world("mute_half", "half of the replicas do", mute=0.5),
    _world("mute_third", "a third of the replicas do", mute=0.33),
    _world(
        "better_small", "a new small model, 3 points better, u on another scale", small=-0.5, stretch=-0.2, offset=-1.2
    ),
    *(_cold(f"cold_{shown}", rate) for shown, rate in (("8", 0.08), ("2", 0.02), ("05", 0.005))),
    *(_budgeted(f"labels_{shown}", r) for shown, r in (("8", 0.08), ("2", 0.02), ("05", 0.005), ("02", 0.002))),
    _unlabelled(),
    _returning("harm_typos", "harm split as that of 25 % typos"),
    _returning("harm_names_8", "harm split as that of 8 % new names"),
    _returning("harm_names_25", "harm split as that of 25 % new names, the target out of reach"),
    _returning("harm_silent", "the large model errs where the small one does, which agreement does not tell"),
)
