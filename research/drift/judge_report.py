"""The ordinary suite as Markdown: rows flow in, tables for people flow out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from research.drift.families import BY_NAME
from research.drift.harm import harm
from research.drift.oracle import LARGE_COST, TARGET
from research.drift.ordinary import HARMS, ORDINARY
from research.drift.paired import PRICE
from research.drift.policies import OURS
from research.drift.policies.ordinary import STATIC
from research.drift.summary import Row, names, of

_HINDSIGHT = "static, best margin"
_PAGE = """\
# Ordinary life, and harm where real harm lies

Streams of {queries:,} queries; target micro-F1 {target}, one large call costs {large} small ones; the labelled set of
the start has 4,000 queries. `{command}`; half of the streams: {half}, {streams}; {machine}, Python {python}, commit
{commit}, {day}.

## Blocks on target, and cost over the oracle's

From the first change on; where nothing changes of the whole stream, after a cold start of the ten blocks from the first
threshold on. *Best margin*: static calibration with the margin of {price} regret against compliance that suits each
family best, known afterwards ({margins}). *Foreseeing*: ours told when the world changes, and the truth of every label.
Means over seeds; in parentheses the worst seed where several were walked.

{overall}
{means}
## What an operator of ours would complain of

*Recovery*: queries until three blocks in a row are on target, mean over changes. *Set aside*: true labels at once, at
worst of all seeds. Alarms in 100,000 queries, and *false* those before anything changes. *Drifted*: share of looks at
the status that said so. *Audits* opened, and labels asked of trusted people for them.

{complaints}
## Where the harm of the last families lies

Points of micro-F1 at the old threshold, drawn anew from 400,000 queries; *by agreement*: the share of it that
agreement, which needs no label, tells.

{harms}"""


class _Cell(NamedTuple):
    pol: float
    regret: float
    text: str


def markdown(rows: list[Row], made: dict[str, Any]) -> str:
    """Return the whole report."""
    families = [family.name for family in ORDINARY if of(rows, family=family.name)]
    cells = {family: _cells(of(rows, family=family)) for family in families}
    margins = [name.removeprefix(f"{STATIC}+") for name in names(rows, "policy") if name.startswith(f"{STATIC}+")]
    return _PAGE.format(
        **made,
        target=TARGET,
        large=LARGE_COST,
        price=f"{PRICE:g}",
        margins=", ".join(margins) or "none walked",
        overall=_overall(cells),
        means=_means(cells),
        complaints=_complaints(of(rows, policy=OURS), families),
        harms=_harms([family for family in families if family in HARMS]),
    )


def _cells(rows: list[Row]) -> dict[str, _Cell]:
    """Return one family's results by policy, with the best static margin as a policy of its own."""
    found = {}
    for policy in names(rows, "policy"):
        pol, regret = (
            [row[key] for row in of(rows, policy=policy) if row[key] is not None] for key in ("pol", "regret")
        )
        if pol:
            worst = f" ({min(pol):.2f})" if len(pol) > 1 else ""
            text = f"{np.mean(pol):.2f}{worst} / {100 * np.mean(regret):+.1f}"
            found[policy] = _Cell(float(np.mean(pol)), float(np.mean(regret)), text)
    static = [cell for policy, cell in found.items() if policy.partition("+")[0] == STATIC]
    if len(static) > 1:
        found[_HINDSIGHT] = max(static, key=lambda cell: cell.pol - PRICE * cell.regret)
    return found


def _overall(cells: dict[str, dict[str, _Cell]]) -> str:
    policies = dict.fromkeys(policy for some in cells.values() for policy in some)
    columns = [policy for policy in policies if not policy.startswith(f"{STATIC}+")]
    lines = [
        [family, BY_NAME[family].about, *(some[one].text if one in some else "–" for one in columns)]
        for family, some in cells.items()
    ]
    return _table(["family", "what happens", *columns], lines)


def _means(cells: dict[str, dict[str, _Cell]]) -> str:
    """Return means over the families in which all policies were walked, every static margin by itself."""
    policies = dict.fromkeys(policy for some in cells.values() for policy in some)
    shared = [some for some in cells.values() if len(some) == len(policies)]
    if not shared:
        return ""
    lines = []
    for policy in policies:
        own = [some[policy] for some in shared]
        pol, regret = float(np.mean([one.pol for one in own])), float(np.mean([one.regret for one in own]))
        lines.append([policy, f"{pol:.3f}", f"{100 * regret:+.1f}", f"{min(one.pol for one in own):.2f}"])
    head = f"Means over the {len(shared)} families in which all of them were walked:\n\n"
    return head + _table(["policy", "pol", "regret, %", "worst family"], lines)


def _complaints(rows: list[Row], families: list[str]) -> str:
    lines = []
    for own in (found for family in families if (found := of(rows, family=family))):
        first = _mean(own, "first_threshold")
        lines.append(
            [
                own[0]["family"],
                _mean(own, "recovery") if first == "–" else f"first threshold after {first}",
                f"{max(row['set_aside'] for row in own):,.0f}",
                *(_mean(own, one, ".1f") for one in ("alarms", "false_alarms")),
                _mean(own, "drifted", ".0%"),
                *(_mean(own, one, ",.1f") for one in ("audits", "audited")),
            ]
        )
    return _table(["family", "recovery", "set aside", "alarms", "false", "drifted", "audits", "audited"], lines)


def _mean(rows: list[Row], key: str, shown: str = ",.0f") -> str:
    found = [row[key] for row in rows if row[key] is not None]
    return format(float(np.mean(found)), shown) if found else "–"


def _harms(families: list[str]) -> str:
    lines = []
    for family in families:
        lost = harm(HARMS[family])
        lines.append([family, *(f"{100 * one:.2f}" for one in lost), f"{lost.by_agreement:.0%}"])
    where = ["u's distribution", "agreement given u", "z given agreement", "z given disagreement", "by agreement"]
    return _table(["family", *where], lines)


def _table(header: list[str], lines: list[list[str]]) -> str:
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n{body}\n" if lines else "None was walked.\n"
