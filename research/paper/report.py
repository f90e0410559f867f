"""Results → JSON and a Markdown page: what was run, the tables, the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.paper import tables
from research.paper.claims import judge
from research.paper.inconsistencies import inconsistencies
from research.paper.published import escalation_rate
from research.results_json import write_results

_TITLES = {
    "recorded": "Recorded outputs of two real models",
    "addresses": "A public set: labelled US addresses",
    "synthetic": "Synthetic workload of the paper's statistics",
}


def write(results: dict[str, Any], made: dict[str, Any], knobs: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    ``results``: by workload, as :func:`research.paper.experiment.run` returns them. ``made``: how the results came
    about: command, seed, machine, day and the like. ``knobs``: what the synthetic workload was fitted with.
    """
    write_results(folder, {"made": made, "synthetic_knobs": knobs, "results": results})
    (folder / "README.md").write_text(_page(results, made, knobs), encoding="utf-8")


def _page(results: dict[str, Any], made: dict[str, Any], knobs: dict[str, Any]) -> str:
    parts = [
        "# The paper's experiment, run again",
        made_by(made),
        _INTRODUCTION,
        "## Where the claims hold",
        _claims(results),
        _CLAIM_NOTES,
        "## Where the text is inconsistent",
        "\n".join(f"{number}. {text}" for number, text in enumerate(inconsistencies(results), start=1)),
        "## Figures",
        "![Share of wrong small answers over the forecast error probability](reliability.png)",
        "![micro-F1 over the paper's cost](pareto.png)",
        "![Cost of each method at the matched target](cost_at_target.png)",
    ]
    for name, result in results.items():
        parts += _workload(name, result)
    if knobs:
        parts += ["## How the synthetic workload was fitted", _knobs(results["synthetic"], knobs)]
    return "\n\n".join(parts) + "\n"


def made_by(made: dict[str, Any]) -> str:
    """Return the line that names command, seed, day, machine and commit."""
    return (
        f"`{made['command']}`, seed {made['seed']}, {made['day']}, {made['machine']}, Python {made['python']}, "
        f"commit {made['commit']}, {made['seconds']:.0f} s. Numbers: [results.json](results.json)."
    )


_INTRODUCTION = (
    "Three workloads go through the paper's protocol (arXiv 2605.18796, section 6.1): 30 % calibration, 20 % "
    "validation, 50 % test, routing on actual answers. *Recorded*: 12,000 clean photo searches answered by the two "
    "demo models; the small model's micro-F1 near the paper's is a choice of the checkpoint, no finding. "
    "*Addresses*: 1,487 labelled US addresses, a public set, answered by two sequence labelers that are no language "
    "models. Either target lies as far between both models as the paper's. *Synthetic*: 75,000 queries drawn to the "
    "paper's summary statistics; what was fitted is marked *by construction* and shows only that the printed "
    "figures can stand together.\n\n"
    "Two costs stand side by side. The paper's counts the small call of a kept query and the large call of an "
    "escalated one. The sequential one counts what a cascade pays: the small call always. 1 is a small call, 3.02 a "
    "large one; none of the models was timed on a GPU, so the ratio is the paper's. Brackets are 95 % bootstrap "
    "intervals over test queries.\n\n"
    "The rate of proposition 2 and the falsification regime of heavy tails are simulated [apart](theory/README.md)."
)

_CLAIM_NOTES = (
    "A comparison *holds* where the paired bootstrap interval, each threshold chosen anew on the resampled test "
    "set, leaves out zero; *no difference* where it does not; *does not hold* where the sign is the other way. 'At "
    "−0.004' tells how far from the target the routing ended on the test set. A threshold *transfers* where 95 % of "
    "random splits meet the target."
)


_ADDRESSES = (
    "The source archive of `usaddress` 0.5.16 on PyPI (MIT licence, copyright the Atlanta Journal Constitution) "
    "carries US addresses labelled token by token; 1,487 texts are distinct. Pairs are of a label and a value, 28 "
    "labels in all; the table by field adds them up by kind. Both models are sequence labelers trained here, **not "
    "language models**: logistic regressions that read from left to right and choose each label greedily, given "
    "those before. p₁ and p₂ of equation 4 are then over 29 labels, not over a vocabulary. The small one sees a "
    "token and the label before it; the large one its neighbours and parts of words too. Each address is answered "
    "by models that were trained on the other four fifths. That the small one trains on all of them, not on a few, "
    "brings it nearer to the paper's: a choice, no finding.\n\n"
    "With 743 test and 446 calibration queries intervals are wide: *no difference* here is weak evidence. Splits "
    "overlap more than independent data would. Only counts and signals are kept in the repository; `python -m "
    "research.paper.pack_addresses --seed 1` fetches the archive by its pinned hash, trains both models and makes "
    "them anew."
)


def _claims(results: dict[str, Any]) -> str:
    head = ["claim", "paper"] + [text for name in results for text in (name, "verdict")]
    rows = [
        [claim.text, claim.printed] + [text for name in results for text in (claim.found[name], claim.verdict[name])]
        for claim in judge(results)
    ]
    return tables.table(head, rows)


def _workload(name: str, result: dict[str, Any]) -> list[str]:
    sizes = ", ".join(f"{count:,} {part}" for part, count in result["queries"].items())
    parts = [
        f"## {_TITLES[name]}",
        f"{sizes}; target micro-F1 {result['target']:.4f}.",
        "### Each model alone (table 1)",
        tables.single_models(result),
        "### At the target (table 2, top): thresholds from the validation set",
        tables.cascade(result, "at_target"),
        "### At a cost of 2.00 (table 2, bottom)",
        tables.cascade(result, "at_budget"),
        "### At UCCI's own escalation rate",
        "Thresholds on the validation set that escalate no more than UCCI did above.",
        tables.cascade(result, "at_ucci_cost"),
        "### Target met exactly on the test set",
        "The luck of the validation set is out of this comparison. The last rows are not in the paper.",
        tables.matched(result),
        "### Over random splits of the same queries",
        tables.splits(result),
        "### Cost ratios (table 3)",
        tables.ratios(result),
        "### By field (table 4)",
        tables.fields(result),
        "### Calibration map (appendix B.4)",
        "ECE over deciles; cost and gap with a threshold from the validation set.",
        tables.calibration(result),
        "### Uncertainty signal (section 6.3)",
        tables.signals(result),
        "### Both models on escalated and kept queries (assumption ii)",
        tables.assumption(result),
    ]
    if name == "addresses":
        parts.insert(1, _ADDRESSES)
    if name == "recorded":
        parts += ["### At the paper's own target, 0.91", tables.cascade(result, "at_paper_target")]
    return parts


def _knobs(result: dict[str, Any], knobs: dict[str, Any]) -> str:
    found = result["assumption"]
    cost = next(row["paper_cost"] for row in result["matched"] if row["name"] == "margin")
    rate = escalation_rate(cost)
    others = "; ".join(f"{one['auroc']:.2f} at {one['difficulty']:g} logits" for one in knobs["others"])
    tried = f" With another difficulty the AUROC of u moves little: {others}." if others else ""
    share = ", ".join(f"{value:.2f}" for value in knobs["field_share"])
    return (
        "Each query has up to 4 of 6 fields (89 % at least one, mean 2.1, median 2) and one normal difficulty, "
        f"worth {knobs['difficulty']:g} logits to the small model for each standard deviation (assumed). Fitted: the "
        f"mix of fields ({share}), so that table 4 adds up to both overall figures; the large model's "
        f"{knobs['large_difficulty']:.2f} logits, so that it scores .928 on escalated queries (drawn: "
        f"{found['large_escalated']:.3f}); u's noise of {knobs['margin_noise']:.1f} logits, so that 53.5 % are "
        f"escalated at the target when u breaks ties (test set: {100 * rate:.1f} %); the entropy's noise of "
        f"{knobs['entropy_noise']:.1f} for 64.9 %; a shift of {knobs['shift']:.2f} for a raw ECE of .12. The entropy "
        "is u with further noise; max probability lies half-way, as no figure of it is printed. A wrong field "
        "carries a wrong value. Printed figures of conformal and FrugalGPT-style routing cannot be matched: see "
        f"*one order, four prices*.{tried}"
    )
