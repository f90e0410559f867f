"""The report as Markdown: rows flow in, tables for people flow out."""

from __future__ import annotations

from typing import Any

import numpy as np

from research.drift.families import BY_NAME, FAMILIES
from research.drift.oracle import LARGE_COST, TARGET
from research.drift.paired import PRICE, Difference, Paired, paired
from research.drift.policies import CLAIRVOYANT, OURS
from research.drift.score import ANY, LABEL_FREE
from research.drift.summary import (
    FAIR_RIVAL,
    FLOOR,
    Estimate,
    Row,
    below_floor,
    by_seed,
    false_alarms,
    is_messy,
    median_delay,
    names,
    of,
    worst_family,
)

SEEN_EVERY = 500
"""Queries between two looks at the alarms."""
_INTRO = """\
# The drift benchmark

Streams of {queries:,} queries with a known oracle; target micro-F1 {target}, one large call costs {large} small ones.
`pol` is the share of blocks of 2,000 queries with expected micro-F1 of at least the target less .005 (where no
threshold reaches the target: the best one less .007); regret is mean sequential cost over the oracle's, which knows all
expectations, pays no exploration and picks the cheapest threshold of each block. Regret holds what exploration
costs; "kept" leaves it out. ± is half a 95 % interval over seeds (Student's t on means over families).

| | |
|---|---|
"""


def markdown(rows: list[Row], made: dict[str, Any]) -> str:
    """Return the whole report."""
    facts = "".join(f"| {name} | {value} |\n" for name, value in made.items())
    head = _INTRO.format(queries=made["queries"], target=TARGET, large=LARGE_COST) + facts
    clean, messy = [row for row in rows if not is_messy(row)], [row for row in rows if is_messy(row)]
    parts = [
        head,
        _overall(clean),
        _demands(clean),
        _families(clean),
        _detectors(clean),
        _parts(clean),
    ]
    parts += [_paired(clean, "clean"), _messy(messy), _paired(messy, "messy")]
    return "\n".join(part for part in parts if part)


def _table(header: list[str], lines: list[list[str]]) -> str:
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n{body}\n"


def _text(estimate: Estimate | None, *, percent: bool = False) -> str:
    if estimate is None:
        return "–"
    return estimate.percent() if percent else estimate.share()


def _overall(rows: list[Row]) -> str:
    lines = []
    for policy in names(rows, "policy"):
        if "@" in policy or policy.startswith("ours-no-"):
            continue
        own = of(rows, policy=policy)
        worst, least = worst_family(own)
        lines.append(
            [
                f"**{policy}**" if policy == OURS else policy,
                _text(by_seed(own, lambda row: row["pol"])),
                _text(by_seed(own, lambda row: row["regret"]), percent=True),
                _text(by_seed(own, lambda row: row["regret_kept"]), percent=True),
                f"{worst} {least:.2f}",
                f"{max(row['worst_run'] for row in own)}",
                _text(by_seed(own, lambda row: row["calibration_error"])),
                f"{np.mean([row['versions'] for row in own]):.0f}",
                f"{np.mean([row['seconds'] for row in own]):.1f}",
            ]
        )
    if not lines:
        return ""
    header = [
        "policy",
        "pol",
        "regret, %",
        "kept, %",
        "worst family",
        "worst run",
        "calibration error",
        "versions",
        "s",
    ]
    text = "## Policies as they come\n\n" + _table(header, lines)
    if of(rows, policy=CLAIRVOYANT):
        text += (
            f"\n{CLAIRVOYANT} is ours with the same labels and the same margin, made anew at each true change: it "
            "knows when the world changes and when labelers err, but not how. It is no upper bound: after each change "
            "it forgets all the same.\n"
        )
    return text


def _demands(rows: list[Row]) -> str:
    own = of(rows, policy=OURS)
    if not own:
        return ""
    pol, regret = (float(np.mean([row[key] for row in own])) for key in ("pol", "regret"))
    short = below_floor(own)
    alarms = false_alarms(rows)
    delay, told, of_all = median_delay(rows, "small_abrupt", LABEL_FREE)
    dear = {name: rate for name, (_, rate) in alarms.items() if rate > 0.3}
    lines = [
        ["mean pol ≥ .95", f"{pol:.3f}", _met(pol >= 0.95)],
        ["mean regret ≤ 4 %", f"{100 * regret:.1f} %", _met(regret <= 0.04)],
        [
            "no family below .85 (labels lie: .80)",
            ", ".join(f"{name} {value:.3f}" for name, value in short.items()) or _least(own),
            _met(not short),
        ],
        [
            "false alarms ≤ .3 in 100k quiet queries, every detector",
            ", ".join(f"{name} {rate:.2f}" for name, rate in dear.items()) or "all below",
            _met(not dear),
        ],
    ]
    if of_all:
        shown = f"{'silent' if delay is None else f'{delay:,.0f}'} ({told} of {of_all} told)"
        asked = "5 points lost at once: median label-free delay ≤ 6k queries"
        lines.append([asked, shown, _met(delay is not None and delay <= 6_000)])
    head = "## What is asked of ours\n\n"
    if set(names(own, "family")) != {family.name for family in FAMILIES}:
        head += "Asked over all clean families; measured here over those walked.\n\n"
    return head + _table(["demand", "measured", ""], lines)


def _least(rows: list[Row]) -> str:
    """Say how near the family that complies least comes to its floor, and how many seeds lie below."""
    family, mean = worst_family(rows)
    by_seed_alone = [row["pol"] for row in of(rows, family=family)]
    below = sum(pol < FLOOR for pol in by_seed_alone)
    return f"least {family} {mean:.4f}; {below} of {len(by_seed_alone)} seeds below"


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def _families(rows: list[Row]) -> str:
    own, rival = of(rows, policy=OURS), of(rows, policy=FAIR_RIVAL)
    if not own:
        return ""
    lines = []
    for family in names(rows, "family"):
        mine, theirs = of(own, family=family), of(rival, family=family)
        lines.append(
            [
                family,
                BY_NAME[family].about,
                _text(by_seed(mine, lambda row: row["pol"])),
                _text(by_seed(mine, lambda row: row["regret"]), percent=True),
                _text(by_seed(mine, lambda row: row["regret_kept"]), percent=True),
                f"{max(row['worst_run'] for row in mine)}",
                _text(by_seed(mine, lambda row: row["calibration_error"])),
                _text(by_seed(theirs, lambda row: row["pol"])),
                _text(by_seed(theirs, lambda row: row["regret"]), percent=True),
            ]
        )
    header = ["family", "what happens", "pol", "regret, %", "kept, %", "worst run", "calibration error"]
    return "## Ours by family\n\n" + _table([*header, f"{FAIR_RIVAL}: pol", "regret, %"], lines)


def _detectors(rows: list[Row]) -> str:
    alarms = false_alarms(rows)
    if not alarms:
        return ""
    rates = [[name, f"{rate:.2f}", f"{count}"] for name, (count, rate) in alarms.items()]
    rates += [["one that always fires", f"{100_000 / SEEN_EVERY:.2f}", ""], ["one that never does", "0.00", "0"]]
    text = (
        "## Detectors\n\nFalse alarms while nothing had changed yet, all families together.\n\n"
        + _table(["detector", "in 100k queries", "alarms"], rates)
        + "\nMedian queries from a change to the first alarm, – where most changes stayed silent; in brackets those "
        f"told. Seen every {SEEN_EVERY} queries: one that always fires would say so after {SEEN_EVERY}, one that never "
        "does, never.\n\n"
    )
    lines = []
    for family in names(rows, "family"):
        if not any(change > 0.0 for change in BY_NAME[family].changes):
            continue
        line = [family]
        for name in (LABEL_FREE, ANY, *alarms):
            delay, told, of_all = median_delay(rows, family, name)
            line.append(f"{'–' if delay is None else f'{delay / 1000:.1f}k'} ({told}/{of_all})")
        lines.append(line)
    return text + _table(["family", LABEL_FREE, ANY, *alarms], lines)


def _parts(rows: list[Row]) -> str:
    shown = [name for name in names(rows, "policy") if name.startswith("ours-no-")]
    if not shown:
        return ""
    lines = []
    walked = _streams(rows, OURS)
    for name in (OURS, *shown):
        own = of(rows, policy=name)
        if not own or _streams(rows, name) != walked:
            continue
        worst, least = worst_family(own)
        lines.append(
            [
                name,
                _text(by_seed(own, lambda row: row["pol"])),
                _text(by_seed(own, lambda row: row["regret"]), percent=True),
                _text(by_seed(own, lambda row: row["regret_kept"]), percent=True),
                f"{worst} {least:.2f}",
                _text(by_seed(own, lambda row: row["calibration_error"])),
                f"{np.mean([row['versions'] for row in own]):.0f}",
            ]
        )
    if len(lines) < 2:
        return ""
    header = ["policy", "pol", "regret, %", "kept, %", "worst family", "calibration error", "versions"]
    return "## Ours with one part less\n\n" + _table(header, lines)


def _streams(rows: list[Row], policy: str) -> set[tuple[str, int]]:
    return {(row["family"], row["seed"]) for row in of(rows, policy=policy)}


def _paired(rows: list[Row], of_what: str) -> str:
    found = paired(rows)
    if not found:
        return ""
    families = names(rows, "family")
    lines = [
        _difference(one, "all" if len(one.families) == len(families) else ", ".join(one.families)) for one in found
    ]
    # Where not all have walked the same, each policy's families are shown apart as well.
    if any(len(one.families) < len(families) for one in found):
        apart = [(family, one) for family in families for one in paired(of(rows, family=family))]
        apart.sort(key=lambda pair: [one.policy for one in found].index(pair[1].policy))
        several = {one.policy for one in found if len(one.families) > 1}
        lines += [_difference(one, family) for family, one in apart if one.policy in several]
    text = (
        f"## Against ours, stream by stream: {of_what} families\n\nEach policy less ours, paired by family and seed; "
        f"± is half a 95 % interval over pairs. score = pol - {PRICE:g} regret; inside the noise: its interval holds 0."
        "\n\n"
    )
    return text + _table(["policy", "families", "pairs", "pol", "regret, %", "score", ""], lines)


def _difference(one: Paired, families: str) -> list[str]:
    return [
        one.policy,
        families,
        f"{one.pairs}",
        _signed(one.pol, 1.0, 4),
        _signed(one.regret, 100.0, 2),
        _signed(one.score, 1.0, 4),
        one.score.verdict,
    ]


def _signed(difference: Difference, factor: float, digits: int) -> str:
    half = "" if difference.half is None else f" ± {factor * difference.half:.{digits}f}"
    return f"{factor * difference.mean:+.{digits}f}{half}"


_RATE_SLACK = 0.05
"""Of the escalation rate before; what chance alone does to a version."""

_MESS = """\
## Messy families: ours

What else goes wrong than drift. In trouble of a server a block asks for no more than the oracle's usual threshold
would give meanwhile, failed calls counted as the small answer; regret holds what failed calls cost. Labels have names,
and the trusted expert answers audits truly. All are means over seeds, of labels set aside the most.

- set aside: most labels in quarantine at once beyond those that are not the truth, in brackets the mean over the
  stream; 0 is right everywhere. Missed: standing labels at the end that are not the truth, less those set aside. Both
  are lower bounds, since the service says how many labels are set aside and not which;
- load: attempts a query at the failing large server over those before;
- rate: highest escalation rate of a version published from the trouble's beginning to 10,000 queries after its end,
  over that of the version before; in brackets the same with healthy servers, where versions follow labels alone;
- moved: against the same stream with honest labelers, the difference of expected micro-F1 over the whole stream (in
  brackets the largest of a block), and that of cost.

"""


def _messy(rows: list[Row]) -> str:
    own = of(rows, policy=OURS)
    if not own:
        return ""
    lines = []
    for family in names(own, "family"):
        mine = of(own, family=family)
        lines.append(
            [
                family,
                BY_NAME[family].about,
                _text(by_seed(mine, lambda row: row["pol"])),
                _text(by_seed(mine, lambda row: row["regret"]), percent=True),
                f"{max(row['worst_run'] for row in mine)}",
                f"{max(row['wrong_quarantined'] for row in mine):.0f} ({_mean(mine, 'wrong_quarantined_mean', '.0f')})",
                _mean(mine, "missed_lies", ".0f"),
                _mean(mine, "audits", ".1f"),
                _mean(mine, "all_alarms", ".1f"),
                _mean(mine, "load", ".2f"),
                f"{_mean(mine, 'highest_rate', '.2f')} ({_mean(mine, 'highest_rate_calm', '.2f')})",
                f"{_mean(mine, 'micro_f1_moved', '+.4f')} ({_mean(mine, 'micro_f1_moved_most', '.4f')})",
                _mean(mine, "cost_moved", "+.1%"),
            ]
        )
    header = ["family", "what happens", "pol", "regret, %", "worst run", "set aside", "missed", "audits", "alarms"]
    return _MESS + _demands_of_mess(own) + _table([*header, "load", "rate", "F1 moved", "cost moved"], lines)


def _demands_of_mess(own: list[Row]) -> str:
    honest = [row for row in own if row["missed_lies"] is None]
    wrongly = {row["family"]: row["wrong_quarantined"] for row in honest if row["wrong_quarantined"] > 0.0}
    troubled = [row for row in own if row["highest_rate"] is not None and row["highest_rate_calm"] is not None]
    raised = {
        family: by_how_much
        for family in names(troubled, "family")
        if (by_how_much := _raised(of(troubled, family=family))) > _RATE_SLACK
    }
    lines = [
        [
            "nobody lies: no true label set aside",
            ", ".join(f"{name} {count:.0f}" for name, count in wrongly.items()) or "none",
            _met(not wrongly),
        ],
        [
            f"a server in trouble: no version escalates more for it (by {_RATE_SLACK:.0%} of the rate before, at most)",
            ", ".join(f"{name} {share:+.0%}" for name, share in raised.items()) or "none",
            _met(not raised),
        ],
    ]
    return _table(["demand", "measured", ""], lines) + "\n"


def _raised(rows: list[Row]) -> float:
    return float(np.mean([row["highest_rate"] - row["highest_rate_calm"] for row in rows]))


def _mean(rows: list[Row], key: str, form: str) -> str:
    known = [row[key] for row in rows if row[key] is not None]
    return format(float(np.mean(known)), form) if known else "–"
