"""What handoff and early stop are worth under drift: rows of walks flow in, costs at equal compliance flow out."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

import numpy as np

from benchmarks.drift.oracle import LARGE_COST
from benchmarks.drift.paired import Difference, difference
from benchmarks.drift.policies import OURS, OURS_LEVERS, STATIC_LEVERS
from benchmarks.drift.policies.levers import GUARD_SHARE, LARGE_TOKENS_SAVED, OF_EVEN
from benchmarks.drift.summary import Point, Row, family_of, names, of, saved_at
from benchmarks.paper.tables import percent, table

ASKED = 0.90
"""Of the cost without levers at equal compliance, at most."""
CLEAN_TOKENS_SAVED = 0.173
"""By ``token@0.9`` on clean texts (``docs/results/handoff``)."""
TOLERATED_LOSS = 0.002
"""Of micro-F1 on escalated queries, which the guard of a handoff tolerates by default."""
_GOLD_OF_ESCALATED = 1.35
"""Gold pairs of an escalated query over those of any (1.31 to 1.40 where 16 to 32 % escalate)."""
DEFAULT_SAFETY = 0.5
"""Margin of policies whose name has none, in standard errors."""
_LEVELS = (0.90, 0.92, 0.94, 0.95)
_COSTS = ("cost", "cost_paper")


class Way(NamedTuple):
    """A line of the first table: a policy, and what a query costs more than its rows say, in small calls."""

    name: str
    policy: str
    more: Callable[[Row], float] = lambda _: 0.0


def large_rate(row: Row) -> float:
    """Return the share of queries on which the large model ran, guard apart, from the paper's cost.

    Examples
    --------
    >>> round(large_rate({"policy": "ours", "cost_paper": 1.606, "escalation_rate": 0.28}), 6)
    0.3
    """
    has_levers = family_of(row["policy"]) in (OURS_LEVERS, STATIC_LEVERS)
    saved, guard = (LARGE_TOKENS_SAVED, GUARD_SHARE * row["escalation_rate"]) if has_levers else (0.0, 0.0)
    return float((row["cost_paper"] - 1.0 - LARGE_COST * guard) / (LARGE_COST * (1.0 - saved) - 1.0))


def handoff_saves(row: Row, tokens_saved: float = LARGE_TOKENS_SAVED) -> float:
    """Return by how much handing over lowers the cost of a query, in small calls, the guard's calls counted."""
    return LARGE_COST * (tokens_saved * large_rate(row) - GUARD_SHARE * float(row["escalation_rate"]))


def _saves_more(row: Row) -> float:
    return handoff_saves(row, CLEAN_TOKENS_SAVED) - handoff_saves(row)


WAYS = (
    Way("static", "static"),
    Way(STATIC_LEVERS, STATIC_LEVERS),
    Way(OURS, OURS),
    Way(f"{OURS}, handoff alone", OURS, lambda row: -handoff_saves(row)),
    Way(f"{OURS}, early stop alone", OURS_LEVERS, handoff_saves),
    Way(f"**{OURS_LEVERS}**", OURS_LEVERS),
    Way(f"{OURS_LEVERS}, as on clean texts", OURS_LEVERS, lambda row: -_saves_more(row)),
)


def as_on_clean_texts(rows: list[Row]) -> list[Row]:
    """Return the rows with what handing over saves on clean texts in the costs of :data:`OURS_LEVERS`."""
    return [
        {**row, **{cost: row[cost] - _saves_more(row) for cost in _COSTS}}
        if family_of(row["policy"]) == OURS_LEVERS
        else row
        for row in rows
    ]


def points(rows: list[Row], line: str, cost: str = "cost") -> list[Point]:
    """Return a policy's points by margin, in whose place of regret stands the mean cost less 1, by compliance."""
    found = []
    for policy in (name for name in names(rows, "policy") if family_of(name) == line and "," not in name):
        own = of(rows, policy=policy)
        pol, paid, excess = (fmean(row[key] for row in own) for key in ("pol", cost, "excess"))
        found.append(Point(policy, pol, paid - 1.0, excess))
    return sorted(found, key=lambda point: point.pol)


def cost_ratios(rows: list[Row], pol: float | None, cost: str = "cost") -> list[float]:
    """Return by seed the cost with both levers over that without, at equal compliance.

    Costs are means over families, read between points of more and less margin; seeds in which either does not comply
    so much are left out.

    Parameters
    ----------
    rows : list of dict
    pol : float or None
        Compliance; None is that of ours as it comes, in each seed.
    cost : str
        ``cost`` or ``cost_paper``.
    """
    found = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        own = [row for row in rows if row["seed"] == seed]
        at = fmean(row["pol"] for row in of(own, policy=OURS)) if pol is None else pol
        saved = saved_at(points(own, OURS_LEVERS, cost), points(own, OURS, cost), at)
        if saved is not None:
            found.append(1.0 - saved)
    return found


def section(rows: list[Row]) -> str:
    """Return the report's part on both levers; empty where they or ours were not walked."""
    if not (of(rows, policy=OURS) and of(rows, policy=OURS_LEVERS)):
        return ""
    parts = [_INTRO, _as_they_come(rows), _EQUAL, _at_equal_compliance(rows), _LESS, _by_margin(rows), _by_family(rows)]
    return "".join(parts)


_INTRO = f"""\
## Both levers: handoff and early stop

Two levers lower the bill of a cascade that pays by the token. *Handoff* (`token@0.9`): the large model goes on from
what the small one was certain of. On {percent(GUARD_SHARE)} of the escalated queries it also answers alone, as a guard.
*Early stop*: a small call is closed once its answer can no longer be kept; a fifth of the queries run in full, so that
something is still learned. `ours-levers` is `ours` with both. `static` is the paper's calibration: one map and one
threshold from 4,000 labelled queries, never touched again; the levers change nothing but its cost.

Costs are the mean of a query in small calls, exploration and guard included. *Sequential* is what is paid. The
*paper's* cost leaves out the small call of queries that the large model answers, so that early stop saves nothing
there. What calls cost is what was measured live on the demo's models:

- A large call that goes on generates {percent(LARGE_TOKENS_SAVED, 1)} fewer tokens, as on
  [texts with typos](../handoff/README.md). That is the lower of two figures, since streams are to drift; on clean texts
  it is {percent(CLEAN_TOKENS_SAVED, 1)} ("as on clean texts").
- A stopped small call ends at {OF_EVEN:g} of where it would if doubt came evenly over its tokens, as measured
  ([early stop](../early_stop/README.md), "of evenly"); an answer has .6 to 1 of the longest one's tokens. Where 22.6 %
  escalate, 15.5 % of the calls stop and 51 % of their tokens are spared; live, 18.8 % and 48 %. So 7.9 % of all small
  tokens are spared at most, and live 9.1 %: the streams understate what early stop saves, and what it hides.

"""

_EQUAL = f"""
### Cost at equal compliance

What a stopped call would have told, the calibration does not know. So `ours-levers` is compared where it holds the
target as often as `ours` does: both walk with several margins, costs are read between these points, seed by seed, and
± is half a 95 % interval over seeds. Asked is at most {ASKED:.2f} of the cost without levers.

"""

_LESS = """
### What knowing less costs

Each margin of `ours-levers` (in standard errors; .5 is the default) beside `ours` as it comes, paired by family and
seed; ± is half a 95 % interval over pairs.

"""


def _as_they_come(rows: list[Row]) -> str:
    lines = []
    base = [fmean(row[cost] for row in of(rows, policy=OURS)) for cost in _COSTS]
    for way in WAYS:
        own = of(rows, policy=way.policy)
        if not own:
            continue
        paid = [fmean(row[cost] + way.more(row) for row in own) for cost in _COSTS]
        shown = [f"{one:.3f}" for one in (*paid, *(one / ours for one, ours in zip(paid, base, strict=True)))]
        lines.append([way.name, f"{fmean(row['pol'] for row in own):.3f}", *shown])
    header = ["policy, as it comes", "pol", "sequential", "paper", "sequential, of ours", "paper, of ours"]
    return table(header, lines) + "\n"


def _at_equal_compliance(rows: list[Row]) -> str:
    own, clean, lines = fmean(row["pol"] for row in of(rows, policy=OURS)), as_on_clean_texts(rows), []
    for level in (None, *_LEVELS):
        ratios = [cost_ratios(which, level, cost) for which in (rows, clean) for cost in _COSTS]
        name = f"**{own:.3f}**, as `ours` comes" if level is None else f"{level:g}"
        lines.append([name, *(_signed(difference(one), "") if one else "not reached" for one in ratios)])
        lines[-1].append(f"{len(ratios[0])} of {len({row['seed'] for row in rows})}")
    header = ["pol", "sequential, of ours", "paper, of ours", "sequential, as on clean texts", "paper", "seeds"]
    return table(header, lines) + "\n" + _verdict(rows)


def _verdict(rows: list[Row]) -> str:
    """Say whether what is asked is met, what each lever does for it, and where most and least is saved."""
    ratios = cost_ratios(rows, None)
    if not ratios:
        return "\nNo margin walked gives both levers the compliance of ours.\n"
    ours, both = (of(rows, policy=policy) for policy in (OURS, OURS_LEVERS))
    paid, ratio = fmean(row["cost"] for row in ours), difference(ratios)
    handed = 1.0 - fmean(handoff_saves(row) for row in ours) / paid
    stopped = fmean(row["cost"] + handoff_saves(row) for row in both) / paid
    by_family = {
        name: fmean(row["cost"] for row in of(both, family=name)) / fmean(row["cost"] for row in of(ours, family=name))
        for name in names(rows, "family")
    }
    most, least = (which(by_family, key=lambda name: by_family[name]) for which in (min, max))
    return f"""
Asked is at most {ASKED:.2f} of the sequential cost; measured is {_signed(ratio, "")}: {_met(ratio.mean <= ASKED)}.
A handoff alone costs {handed:.3f} of ours, and takes no compliance. Early stop alone costs {stopped:.3f} at the same
margin, and complies less. Where both together comply as much as ours, early stop takes the {handed:.3f} of the handoff
to {ratio.mean:.3f}{_makes_up(rows)}.
Both levers save on queries that escalate, {_escalated(ours)} of all: at the default margin they cost
{by_family[most]:.3f} of ours in `{most}`, where {_escalated(of(ours, family=most))} escalate, and
{by_family[least]:.3f} in `{least}`, where {_escalated(of(ours, family=least))} do.
"""


def _escalated(rows: list[Row]) -> str:
    return percent(fmean(row["escalation_rate"] for row in rows))


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def _makes_up(rows: list[Row]) -> str:
    """Say which margin gives both levers the compliance of ours as it comes."""
    line = points(rows, OURS_LEVERS)
    own, pol = fmean(row["pol"] for row in of(rows, policy=OURS)), [point.pol for point in line]
    if not (len(line) > 1 and pol[0] <= own <= pol[-1]):
        return ""
    margin = np.interp(own, pol, [float(point.policy.partition("@")[2] or DEFAULT_SAFETY) for point in line])
    return f", with a margin of {margin:.2f} instead of {DEFAULT_SAFETY:g} standard errors"


def _by_margin(rows: list[Row]) -> str:
    base, lines = {(row["family"], row["seed"]): row for row in of(rows, policy=OURS)}, []
    for point in points(rows, OURS_LEVERS):
        own = [(row, base[row["family"], row["seed"]]) for row in of(rows, policy=point.policy)]
        pol = difference([row["pol"] - ours["pol"] for row, ours in own])
        ratios = [fmean(row[cost] for row, _ in own) / fmean(ours[cost] for _, ours in own) for cost in _COSTS]
        lines.append([point.policy, f"{point.pol:.3f}", _signed(pol), *(f"{one:.3f}" for one in ratios)])
    header = ["policy", "pol", "pol less that of ours", "sequential, of ours", "paper, of ours"]
    return table(header, lines) + "\n" + _at_worst(rows)


def _at_worst(rows: list[Row]) -> str:
    """Say what it would cost to make up for the largest loss that the guard tolerates."""
    line = sorted(points(rows, OURS_LEVERS), key=lambda point: point.excess)
    if len(line) < 2 or line[0].excess == line[-1].excess:
        return ""
    price = (line[-1].regret - line[0].regret) / (line[-1].excess - line[0].excess)
    escalated = fmean(row["escalation_rate"] for row in of(rows, policy=OURS_LEVERS))
    loss = TOLERATED_LOSS * _GOLD_OF_ESCALATED * escalated
    more = loss * price / fmean(row["cost"] for row in of(rows, policy=OURS_LEVERS))
    return (
        "\nHanded-over answers are taken to be as good as others, as measured (micro-F1 of escalated queries -.0007\n"
        f"[-.0030, +.0014]). The guard tolerates a loss of {TOLERATED_LOSS:g} there, which is {loss:.4f} of all. At\n"
        f"{price / 1000.0:.3f} small calls for each .001 between the margins above, to make up for it would cost "
        f"{percent(more, 1)}\nmore.\n"
    )


def _by_family(rows: list[Row]) -> str:
    lines = []
    for family in names(rows, "family"):
        ours, levers = (of(rows, family=family, policy=policy) for policy in (OURS, OURS_LEVERS))
        if not (ours and levers):
            continue
        pol = [fmean(row["pol"] for row in which) for which in (ours, levers)]
        ratios = [fmean(row[cost] for row in levers) / fmean(row[cost] for row in ours) for cost in _COSTS]
        lines.append([family, _escalated(ours), *(f"{one:.3f}" for one in (*pol, *ratios))])
    text = _loses_most(rows)
    header = ["family, at the default margin", "ours escalates", "ours: pol", "ours-levers: pol", "sequential", "paper"]
    return text + table(header, lines) + "\n"


def _loses_most(rows: list[Row]) -> str:
    lost = {
        name: [fmean(row["pol"] for row in of(rows, family=name, policy=policy)) for policy in (OURS, OURS_LEVERS)]
        for name in names(rows, "family")
    }
    most = min(lost, key=lambda name: lost[name][1] - lost[name][0])
    return f"\nMost compliance is lost in `{most}`: {lost[most][0]:.3f} becomes {lost[most][1]:.3f}.\n\n"


def _signed(of_what: Difference, sign: str = "+") -> str:
    half = "" if of_what.half is None else f" ± {of_what.half:.3f}"
    return f"{of_what.mean:{sign}.3f}{half}"
