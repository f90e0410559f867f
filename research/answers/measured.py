"""How true the figures of the status are: expected and measured micro-F1 on drifting streams and in quiet weeks.

Examples: python -m research.answers.measured                    (minutes of one core; writes docs/results/answers)
          python -m research.answers.measured --seeds 61 62 --weeks 61 62 --json

Of each window the truth is the micro-F1 of all answers served in it, labelled or not, and of an expected micro-F1 that
of the block of 2,000 queries that ends there, over all draws from the pool.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from recalibrator.fit.publish.measured_quality import MeasuredQuality, Window
from research import seeds
from research.__main__ import provenance
from research.answers.policies import ours
from research.answers.scoring import expected_by_block
from research.answers.shifts import CLEAN
from research.answers.streams import Judged, draw_judged, draw_quiet
from research.paper.tables import table
from research.recorded.scoring import BLOCK
from research.recorded.service import time_of
from research.recorded.simulate import Routed, simulate
from research.recorded.stream import Floats
from research.results_json import receipt
from schemas.calibration import Interval
from schemas.status import MeasuredMicroF1, WorkloadStatus

OUT = Path("docs/results/answers/measured.md")
WEEK = 100_000
"""Queries of a quiet week; some 6,000 of them are labelled."""

SETTLING = 10
"""Blocks after the begin of a phase that are looked at apart."""

MISSED = 0.01
"""Of micro-F1: a phase that misses the target by more is one that an alert is for."""

_ALERTS = f"""Alerts: the expected upper bound below the target at the end of a block; and `UcciTargetMissed`, on the \
measured one. A quiet week has {WEEK:,} queries."""
FIGURES = ("expected", "fast", "slow")


class Look(NamedTuple):
    """One look at the status at a block's end: by figure whether its interval covers and how far off it is."""

    phase: int
    since: int
    covers: dict[str, bool]
    off: dict[str, float]
    width: dict[str, float]
    fires: dict[str, bool]


def watched(judged: Judged) -> tuple[Routed, list[tuple[WorkloadStatus, bool]]]:
    """Run the service over a stream.

    Returns the status at the end of each block, and whether the alert fired at one of its batches.
    """
    service, found, fired = ours(judged), list[tuple[WorkloadStatus, bool]](), [False]
    see, core = service.see, service.core
    part = core._parts["measured"]  # noqa: SLF001 - a whole status costs a refit
    assert isinstance(part, MeasuredQuality)

    def seen(routed: Routed) -> None:
        see(routed)
        fired[0] |= fires(part.shown(core._labels), judged.target)  # noqa: SLF001
        if (int(routed.rows[-1]) + 1) % BLOCK == 0:
            found.append((core.status(), fired[0]))
            fired[0] = False

    service.see = seen  # type: ignore[method-assign]
    return simulate(service, judged.stream), found


def fires(shown: Mapping[Window, MeasuredMicroF1], target: float) -> bool:
    """Return whether ``UcciTargetMissed`` would fire, as deploy/monitoring/rules.yml has it."""
    fast, slow = shown.get("fast"), shown.get("slow")
    if fast is None or slow is None:
        return False
    return fast.upper < target or (slow.upper < target and fast.estimate < target)


def looks(judged: Judged) -> tuple[list[Look], Floats]:
    """Return what each status said against what was true, and by block what was expected to be served."""
    routed, said = watched(judged)
    expected, phase = expected_by_block(routed, judged), judged.stream.phase[::BLOCK]
    outcomes, ran = routed.outcomes, routed.ran
    hits = np.append(0, np.cumsum(2 * np.where(ran, outcomes.large_hits, outcomes.small_hits)))
    size = np.append(0, np.cumsum(np.where(ran, outcomes.large_named, outcomes.small_named) + outcomes.gold))
    begins = np.searchsorted(phase, phase)
    found = []
    for block, (status, fired) in enumerate(said):
        known: dict[str, tuple[Interval, float]] = {}
        if status.micro_f1 is not None:
            known["expected"] = status.micro_f1, float(expected[block])
        for window, one in status.measured.items():
            first, last = round((one.since - time_of(0)).total_seconds() * 10), (block + 1) * BLOCK
            known[window] = one, float((hits[last] - hits[first]) / (size[last] - size[first]))
        found.append(
            Look(
                int(phase[block]),
                block - int(begins[block]),
                {name: one.lower <= truth <= one.upper for name, (one, truth) in known.items()},
                {name: one.estimate - truth for name, (one, truth) in known.items()},
                {name: (one.upper - one.lower) / 2.0 for name, (one, _) in known.items()},
                {"expected": "expected" in known and known["expected"][0].upper < judged.target, "measured": fired},
            )
        )
    return found, expected


def drifting(drawn: Sequence[int]) -> dict[str, Any]:
    """Return coverage by what came before, and in how many phases that miss, or do not, an alert fires."""
    by_place: dict[str, list[Look]] = defaultdict(list)
    alerts: dict[str, Any] = {"missing": 0, "held": 0, **{name: [0, 0] for name in ("expected", "measured")}}
    for seed in drawn:
        judged = draw_judged("tuning", seed)
        found, expected = looks(judged)
        before = [None, *found[:-1]]
        for number, kind in enumerate(judged.kinds):
            places = [place for place, look in enumerate(found) if look.phase == number]
            within = [found[place] for place in places]
            place = "clean" if number == 0 else "back in the clean world" if kind == CLEAN else kind
            by_place[place] += [look for look in within if number == 0 or look.since < SETTLING]
            by_place["all"] += within
            mean = float(expected[judged.stream.phase[::BLOCK] == number].mean())
            verdict = 0 if mean < judged.target - MISSED else 1 if mean >= judged.target else None
            if verdict is None:
                continue
            alerts[("missing", "held")[verdict]] += 1
            for name in ("expected", "measured"):
                begun = [not verdict or (last := before[at]) is None or not last.fires[name] for at in places]
                alerts[name][verdict] += any(look.fires[name] and new for look, new in zip(within, begun, strict=True))
    return {"coverage": {place: _summed(some) for place, some in sorted(by_place.items())}, "alerts": alerts}


def _summed(some: Sequence[Look]) -> dict[str, Any]:
    found: dict[str, Any] = {"looks": len(some)}
    for name in FIGURES:
        known = [look for look in some if name in look.covers]
        for what in ("covers", "off", "width"):
            values = [getattr(look, what)[name] for look in known]
            found[f"{name} {what}"] = round(float(np.mean(values)), 4) if values else None
    return found


def quiet_weeks(drawn: Sequence[int]) -> dict[str, Any]:
    """Return coverage in weeks in which nothing changes, and in how many of them an alert fires."""
    every = [looks(draw_quiet(seed, WEEK))[0] for seed in drawn]
    fired = {name: sum(any(look.fires[name] for look in week) for week in every) for name in ("expected", "measured")}
    return {"weeks": len(every), "alerts": fired, "coverage": _summed(list(chain.from_iterable(every)))}


def page(drift: dict[str, Any], quiet: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the page."""
    coverage, alerts = {"quiet weeks": quiet["coverage"], **drift["coverage"]}, drift["alerts"]
    rows = [
        [place, *(_shown(one, name, what) for what in ("covers", "off", "width") for name in FIGURES)]
        for place, one in coverage.items()
    ]
    head = ("first ten blocks after", *(f"{name} {what}" for what in ("covers", "off", "±") for name in FIGURES))
    fired = [
        [
            name,
            *(f"{alerts[name][at]} of {alerts[what]}" for at, what in enumerate(("missing", "held"))),
            f"{quiet['alerts'][name]} of {quiet['weeks']}",
        ]
        for name in ("expected", "measured")
    ]
    header = (
        "upper bound below the target",
        "phases that miss by over a point",
        "begins in phases on target",
        "quiet weeks",
    )
    intro = (__doc__ or "").split("\n\n")[-1].strip().replace("\n", " ")
    parts = ["# What the status says against what is true", receipt(made), intro, table(head, rows)]
    parts += [
        _ALERTS,
        table(header, fired),
    ]
    return "\n\n".join(parts) + "\n"


def _shown(one: dict[str, Any], name: str, what: str) -> str:
    value = one[f"{name} {what}"]
    return "" if value is None else f"{value:.2f}" if what == "covers" else f"{100 * value:+.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m research.answers.measured", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(61, 101), help="of drifting streams")
    parser.add_argument("--weeks", type=int, nargs="+", default=range(1, 101), help="seeds of quiet weeks")
    parser.add_argument("--json", action="store_true", help="print the figures, and write nothing")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    seeds.check("answers", options.seeds, "reporting")
    seeds.check("quiet weeks", options.weeks, "reporting")
    with threadpool_limits(1):
        drift, quiet = drifting(options.seeds), quiet_weeks(options.weeks)
    if options.json:
        print(json.dumps({"drift": drift, "quiet": quiet}, indent=1))
        return 0
    made = provenance(["-m", "research.answers.measured", *(sys.argv[1:] if arguments is None else arguments)])
    options.out.write_text(page(drift, quiet, made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
