"""``python -m research.drift --suite ordinary``: ordinary life, and harm where real harm lies.

Ours, the paper's static calibration (as it is, and with margins of which the report takes the best in hindsight), a
fixed rate of escalation, a conformal controller that steps by what labels say, and ours foreseeing: told when the world
changes and the truth of each label. A coin for each family and seed has drawn a half of the streams to tune on; the
unseen half is walked with --unseen alone, once, in the end.

Examples
--------
python -m research.drift --suite ordinary --quick
python -m research.drift --suite ordinary --families cut_short bursts --policies ours aci
python -m research.drift --suite ordinary --families harm --seeds 5 6 --json rows.json
python -m research.drift --suite ordinary --most 2 --out docs/results/ordinary
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from threadpoolctl import threadpool_limits

from research.drift.halves import half, is_unseen
from research.drift.judge_report import markdown
from research.drift.judge_score import judge_score
from research.drift.oracle import oracle
from research.drift.ordinary import HARMS, JUDGED_QUERIES, ORDINARY
from research.drift.policies.clairvoyant import Clairvoyant
from research.drift.policies.ordinary import JUDGED, KNOWN, STATIC
from research.drift.report import provenance
from research.drift.run import Row, Task, rows_shown
from research.drift.simulate import Policy, Routed, offline_labels, walk
from research.drift.streams import BLOCK, Stream, offline, stream
from research.results_json import rounded, tell

SETS = {
    "ordinary": tuple(family.name for family in ORDINARY if family.name not in HARMS),
    "harm": tuple(HARMS),
}
_QUICK_QUERIES, _QUICK_FAMILIES = 12_000, ("quiet", "cut_short", "harm_names_8")
_QUICK_SEED = 5


def parser() -> argparse.ArgumentParser:
    """Return the command's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m research.drift --suite ordinary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [family.name for family in ORDINARY]
    shown = ", ".join(names)
    known = [name for name in KNOWN if "-no-" not in name]
    made.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_QUERIES:,} queries of {', '.join(_QUICK_FAMILIES)}, one seed of neither half",
    )
    made.add_argument(
        "--families", nargs="+", choices=[*SETS, *names], metavar="FAMILY", help=f"{', '.join(SETS)} (both), or {shown}"
    )
    made.add_argument("--policies", nargs="+", choices=list(KNOWN), metavar="POLICY", help=f"of {', '.join(known)}")
    made.add_argument("--seeds", type=int, nargs="+", help="instead of those of the half to tune on")
    made.add_argument("--unseen", action="store_true", help="walk the unseen half: once, when all is decided")
    made.add_argument("--most", type=int, help="streams of each family, at most")
    made.add_argument("--queries", type=int, help=f"in a stream, a multiple of {BLOCK} (default {JUDGED_QUERIES:,})")
    made.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    made.add_argument("--minutes", type=float, default=math.inf, help="begin no further stream after so long")
    made.add_argument("--json", type=Path, help="write the rows there and print them")
    made.add_argument("--out", type=Path, help="folder of README.md and rows.json")
    return made


def main(argv: Sequence[str]) -> int:
    """Run, write and print; returns the exit code."""
    given = parser().parse_args(argv)
    queries = given.queries or (_QUICK_QUERIES if given.quick else JUDGED_QUERIES)
    families = given.families or (_QUICK_FAMILIES if given.quick else list(SETS))
    seeds = given.seeds or ([_QUICK_SEED] if given.quick else None)
    if queries <= 0 or queries % BLOCK:
        return _refuse(f"--queries: must be a positive multiple of {BLOCK}, got {queries}")
    names = dict.fromkeys(name for one in families for name in SETS.get(one, (one,)))
    walked = {name: seeds or half(name, unseen=given.unseen) for name in names}
    unseen = [f"{name} {seed}" for name, some in walked.items() for seed in some if is_unseen(name, seed)]
    if unseen and not given.unseen:
        return _refuse(f"--seeds: in the unseen half, which is looked at once: {', '.join(unseen)}; say --unseen if so")
    cells = sorted((place, name) for name, some in walked.items() for place in range(len(some[: given.most])))
    policies = tuple(given.policies or JUDGED)
    tasks = [Task(name, walked[name][place], queries, policies) for place, name in cells]
    made, began_s = provenance(), time.perf_counter()
    rows = rows_shown(tasks, given.jobs, 60.0 * given.minutes, work)
    if not rows:
        return _refuse("nothing was walked: no stream of this half, or --minutes too few")
    facts = {
        "command": " ".join(["python -m research.drift --suite ordinary", *argv]),
        "queries": queries,
        "half": "unseen" if given.unseen else "to tune on",
        "streams": f"{len({(row['family'], row['seed']) for row in rows})} of {len(tasks)}",
        "wall_s": round(time.perf_counter() - began_s),
        **made,
    }
    document = {"made": facts, "rows": rounded(rows)}
    if given.json is not None:
        tell(document, given.json)
    else:
        print(markdown(rows, facts))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(row) for row in document["rows"])
        text = f'{{"made": {json.dumps(facts, indent=1)},\n"rows": [\n{lines}\n]}}\n'
        (given.out / "rows.json").write_text(text, encoding="utf-8")
        (given.out / "README.md").write_text(markdown(rows, facts), encoding="utf-8")
    return 0


def work(task: Task) -> list[Row]:
    """Walk one stream with each policy."""
    rows: list[Row] = []
    with threadpool_limits(1):
        drawn, start = stream(task.family, task.seed, task.queries), offline(task.seed)
        best = oracle(drawn)
        for name in task.policies:
            policy, began_s = KNOWN[name](), time.perf_counter()
            if isinstance(policy, Clairvoyant):
                if not drawn.family.changes:
                    continue
                policy.foresee(drawn)
            heedless = name.startswith(STATIC) and drawn.family.mess is not None and not drawn.family.mess.cold
            routed = _at_once(drawn, start, policy) if heedless else walk(drawn, start, policy)
            found = asdict(judge_score(drawn, routed, best))
            key = {"family": task.family, "seed": task.seed, "policy": name}
            rows.append({**key, **found, "seconds": round(time.perf_counter() - began_s, 2)})
    return rows


def _at_once(drawn: Stream, start: Stream, policy: Policy) -> Routed:
    """Route a whole stream at once by a policy that never changes; a walk with all its labels gives the same."""
    policy.start(offline_labels(start))
    routed = Routed.blank(len(drawn))
    routed.escalated = routed.large_ran = policy.escalates(drawn.u)
    return routed


def _refuse(why: str) -> int:
    sys.stderr.write(why + "\n")
    return 2
