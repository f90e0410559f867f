"""Results → JSON and a Markdown page: what was run, who held the target, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.paper.tables import percent, percents, signed, table
from research.recorded.scoring import BLOCK, TOLERANCE
from research.recorded.stream import EXPLORED, LABELLED_ESCALATED, LABELLED_KEPT
from research.results_json import write_report


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    Parameters
    ----------
    results : dict
        As :func:`research.recorded.experiment.run` returns them.
    made : dict
        How the results came about: command, seed, machine, day and the like.
    folder : Path
    """
    write_report(folder, results, made, _page)


def _page(results: dict[str, Any], made: dict[str, Any]) -> str:
    parts = [
        "# Policies on streams of recorded queries",
        _made(made),
        _introduction(results),
        "## What it shows",
        _findings(results),
        "## All phases together",
        _overall(results),
        _NOTES,
        "![Blocks on target over sequential cost](compliance.png)",
        "## Along the stream",
        f"Seed {results['seeds'][0]}; each point is a block.",
        "![micro-F1 and escalation along the stream](stream.png)",
        "## By phase: queries until the first block whose expected micro-F1 is on target",
        "In brackets the share of the streams in which one is, where it is not all.",
        _recovery(results),
        "## By phase: share of blocks on target, realised",
        _phases(results, "on_target", percent),
        "## By phase: share of blocks on target, expected",
        _phases(results, "expected_on_target", percent),
        "## By phase: realised micro-F1",
        _phases(results, "realised", "{:.3f}".format),
        "## By phase: queries for which the large model ran",
        _phases(results, "escalated", percent),
        "## The oracle of each phase",
        _oracle(results),
    ]
    return "\n\n".join(parts) + "\n"


def _made(made: dict[str, Any]) -> str:
    return (
        f"`{made['command']}`, seed {made['seed']}, {made['day']}, {made['machine']}, Python {made['python']}, "
        f"commit {made['commit']}, {made['seconds']:.0f} s. Numbers: [results.json](results.json)."
    )


def _streams(results: dict[str, Any]) -> str:
    count = len(results["seeds"])
    return "1 stream" if count == 1 else f"{count} streams"


def _introduction(results: dict[str, Any]) -> str:
    phases = ", ".join(phase["title"] for phase in results["phases"])
    return (
        f"{_streams(results)} of {len(results['phases']) * results['queries']:,} recorded queries, drawn with "
        f"replacement: {phases}; {results['queries']:,} each. Both models' answers are real, the drift is a mix of "
        f"recorded sets. Target micro-F1 {results['target']}. Every policy starts from the same 4,000 labelled "
        f"queries, which the stream never shows again. Then labels are asked for {percent(LABELLED_KEPT)} of the "
        f"kept and {percent(LABELLED_ESCALATED)} of the escalated queries and come 2,000 queries later on average; "
        f"policies that need it run the large model on {percent(EXPLORED)} of the kept queries. All meet the same "
        "queries and the same draws; large answers that did not run stay unknown to them."
    )


_NOTES = (
    f"A block is {BLOCK:,} queries and on target when micro-F1 is at most {TOLERANCE} below the target, or below the "
    "best that any threshold reaches in its phase where the target is out of reach. *Realised* is the micro-F1 of "
    "the answers served; its noise (about .005 a block) fails even the oracle now and then. *Expected* is over all "
    "draws from the recordings and has none. A policy cheaper than the oracle misses the target. *Shortfall* is the "
    "mean of what the expected micro-F1 lacks. Brackets are the least and the largest of the seeds. Costs are given "
    "twice: by *calls*, a small one 1 and a large one 3.02, whatever its length; and by the *tokens* that were really "
    "generated, a large one at 3.02 small ones, in mean small answers of the offline set, so that 1 is a small call in "
    "both. Answers of escalated queries are longer than others, and only tokens show what the handoff saves. The "
    "*paper's* cost leaves out the small call of escalated queries.\n\n"
    "With [handoff](../../handoff.md) the large model goes on from what the small one was certain of "
    "(`token@0.9`). That changes what is served, and so the share of blocks on target: what it saves at an equal share "
    "is on [a page of its own](levers/README.md)."
)


def _overall(results: dict[str, Any]) -> str:
    rows = [
        [
            row["title"],
            f"{percent(row['on_target'])} {percents(row['on_target_range'])}",
            f"{percent(row['expected_on_target'])} {percents(row['expected_on_target_range'])}",
            f"{row['shortfall']:.4f}",
            signed(row["worst_block"]),
            percent(row["escalated"]),
            f"{row['sequential']:.2f}",
            f"{signed(100 * row['over_oracle'], 1)} %",
            f"{row['paper']:.2f}",
            f"{row['sequential_tokens']:.2f}",
            f"{signed(100 * row['over_oracle_tokens'], 1)} %",
            f"{row['paper_tokens']:.2f}",
        ]
        for row in results["policies"].values()
    ]
    held = ("policy", "on target, realised", "expected", "shortfall", "worst block", "large ran")
    by_calls = ("sequential cost, calls", "over the oracle", "paper's cost, calls")
    return table((*held, *by_calls, "sequential cost, tokens", "over the oracle", "paper's cost, tokens"), rows)


def _phases(results: dict[str, Any], name: str, shown: Any) -> str:
    rows = [[row["title"], *(shown(phase[name]) for phase in row["phases"])] for row in results["policies"].values()]
    return table(("policy", *(phase["title"] for phase in results["phases"])), rows)


def _recovery(results: dict[str, Any]) -> str:
    rows = []
    for row in results["policies"].values():
        cells = []
        for phase in row["phases"]:
            share = "" if phase["recovered"] == 1.0 else f" ({percent(phase['recovered'])})"
            cells.append(f"{phase['recovery']:,.0f}{share}" if phase["recovered"] else "never")
        rows.append([row["title"], *cells])
    return table(("policy", *(phase["title"] for phase in results["phases"])), rows)


def _findings(results: dict[str, Any]) -> str:
    """Say in a few lines what the table shows; every number comes from it."""
    rows = results["policies"]
    drifted = [place for place, phase in enumerate(results["phases"]) if phase["share"]]

    def held(name: str) -> str:
        return percent(sum(rows[name]["phases"][place]["expected_on_target"] for place in drifted) / len(drifted))

    def over(name: str) -> str:
        return f"{signed(100 * rows[name]['over_oracle'], 1)} %"

    lines = [
        (
            f"While traffic is shifted, the static threshold is on target in {held('static')} of the blocks "
            f"(expected micro-F1) and the released package in {held('released')}: refitting g keeps theta an error "
            "probability, but which theta meets the target changes with the traffic and with the large model's own "
            "errors."
        ),
        (
            f"Refitting on the pairs as they come holds {held('naive')}, at {over('naive')} of the oracle's cost, "
            f"and re-selecting theta on them {held('reselected')} at {over('reselected')}: escalated queries crowd "
            "the pairs, so that far too many are escalated once the drift is over."
        ),
        (
            f"Weighted windows of 4,000 labels forget too slowly: {held('propensity')} (inverse propensity) and "
            f"{held('stratified')} (post-stratified)."
        ),
        (
            f"This project holds {held('service')} of the shifted blocks at {over('service')}, with a safety of 1 "
            f"{held('service_strict')} at {over('service_strict')}."
        ),
        (
            "By the tokens that are generated, this project pays "
            f"{rows['service_handoff']['sequential_tokens']:.2f} with a handoff and "
            f"{rows['service']['sequential_tokens']:.2f} without (the paper's cost: "
            f"{rows['service_handoff']['paper_tokens']:.2f} and {rows['service']['paper_tokens']:.2f}), and holds "
            f"{percent(rows['service_handoff']['expected_on_target'])} and "
            f"{percent(rows['service']['expected_on_target'])} of all blocks. [At an equal share](levers/README.md) "
            "both are compared on more streams."
        ),
        (
            "The clairvoyant is this project told at each change of phase that something has changed, though not what, "
            f"with the same labels and margins: {held('clairvoyant')} at {over('clairvoyant')}, with a safety of 1 "
            f"{held('clairvoyant_strict')} at {over('clairvoyant_strict')}. What it holds beyond this project is the "
            "price of detecting; what it lacks, so few and so late labels do not tell in time."
        ),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _oracle(results: dict[str, Any]) -> str:
    rows = [
        [
            phase["title"],
            f"{row['threshold']:.4f}",
            percent(row["escalated"], 1),
            f"{row['goal']:.3f}",
            "yes" if row["feasible"] else "no",
        ]
        for phase, row in zip(results["phases"], results["oracle"], strict=True)
    ]
    return table(("phase", "threshold on u", "escalated", "goal", "target in reach"), rows)
