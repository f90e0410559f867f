"""Results → the paper's tables in Markdown, our numbers beside the printed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from research.paper import published

NONE = "–"
_FIELD_TITLES = {"shutter_speed": "shutter speed", "iso": "ISO", "focal_length": "focal length"}
_SIGNAL_TITLES = {
    "margin": "token margin",
    "entropy": "entropy",
    "max_probability": "max probability",
    "minimum_margin": "least margin of a token",
    "likelihood": "negative log-likelihood",
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are set to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def percent(value: float, digits: int = 0) -> str:
    """Return a share as a percentage, with a true minus sign."""
    return f"{100.0 * value:.{digits}f} %".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def between(interval: Sequence[float], digits: int = 3) -> str:
    """Return an interval."""
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]".replace("-", "−")


def percents(interval: Sequence[float], digits: int = 0) -> str:
    """Return an interval of shares."""
    low, high = (f"{100.0 * value:.{digits}f}" for value in interval)
    return f"[{low}, {high}] %".replace("-", "−")


def single_models(result: dict[str, Any]) -> str:
    """Return table 1: both models alone."""
    printed = {"small": published.SMALL_F1, "large": published.LARGE_F1}
    rows = [
        [
            row["title"],
            f"{row['micro_f1']:.3f} {between(row['micro_f1_interval'])}",
            f"{printed[row['name']]:.3f}",
            f"{row['paper_cost']:.2f}",
        ]
        for row in result["at_target"]
        if row["name"] in printed
    ]
    return table(("model", "micro-F1, 95 % interval", "paper", "cost"), rows)


def cascade(result: dict[str, Any], block: str) -> str:
    """Return one block of table 2: routings chosen on the validation set, scored on the test set."""
    printed = {"at_target": published.AT_TARGET, "at_budget": dict.fromkeys(published.GAP_AT_BUDGET, published.BUDGET)}
    gaps = {"at_target": published.GAP_AT_TARGET, "at_budget": published.GAP_AT_BUDGET}.get(block, {})
    costs = printed.get(block, {})
    rows = [
        [
            row["title"],
            percent(row["escalated"], 1),
            f"{row['micro_f1']:.3f} {between(row['micro_f1_interval'])}",
            signed(row["gap"]),
            f"{row['paper_cost']:.2f}",
            f"{row['sequential_cost']:.2f}",
            f"{percent(row['paper_saving'])} {percents(row['paper_saving_interval'], 1)}",
            f"{percent(row['sequential_saving'])} {percents(row['sequential_saving_interval'], 1)}",
            f"{costs[row['name']]:.2f} / {signed(gaps[row['name']], 2)}" if row["name"] in costs else NONE,
        ]
        for row in result[block]
    ]
    head = ("method", "escalated", "micro-F1", "over target", "cost: paper's", "sequential")
    return table((*head, "saving: paper's", "sequential", "printed: cost / gap"), rows)


def matched(result: dict[str, Any]) -> str:
    """Return costs with every threshold chosen on the test set itself, and how they compare with UCCI's."""
    ours = published.AT_TARGET["ucci"]
    rows = [
        [
            row["title"],
            f"{row['paper_cost']:.3f} {between(row['paper_cost_interval'], 2)}",
            f"{row['sequential_cost']:.3f}",
            f"{signed(100 * row['over_ucci'], 1)} % {percents(row['over_ucci_interval'], 1)}",
            f"{signed(100 * (published.AT_TARGET[row['name']] / ours - 1.0), 0)} %"
            if row["name"] in published.AT_TARGET
            else NONE,
        ]
        for row in result["matched"]
    ]
    return table(("method", "paper's cost", "sequential", "over UCCI, paired", "printed"), rows)


def ratios(result: dict[str, Any]) -> str:
    """Return table 3."""
    rows = []
    for row in result["ratios"]:
        cost, saving = published.RATIOS[row["ratio"]]
        rate = published.escalation_rate(cost, row["ratio"])
        sequential = 1.0 + rate * row["ratio"]
        rows.append(
            [
                f"{row['ratio']:.2f}",
                f"{row['paper_cost']:.2f}",
                percent(row["paper_saving"]),
                f"{row['sequential_cost']:.2f}",
                percent(row["sequential_saving"]),
                f"{cost:.2f} / {percent(saving)}",
                f"{sequential:.2f} / {percent(1.0 - sequential / row['ratio'])}",
            ]
        )
    head = ("large / small", "paper's cost", "saving", "sequential", "saving", "printed", "printed, made sequential")
    return table(head, rows)


def fields(result: dict[str, Any]) -> str:
    """Return table 4, with the cascade beside both models."""
    printed = {**published.FIELD_F1, "overall": (published.SMALL_F1, published.LARGE_F1)}
    rows = [
        [
            _FIELD_TITLES.get(row["field"], row["field"]),
            *(f"{row[name]:.3f}" for name in ("small", "large", "ucci")),
            f"{row['large'] - row['small']:.3f}",
            *_printed_field(printed.get(row["field"])),
        ]
        for row in result["fields"]
    ]
    return table(("field", "small", "large", "UCCI", "gap", "printed: small / large", "printed gap"), rows)


def _printed_field(scores: tuple[float, float] | None) -> tuple[str, str]:
    """Return the paper's two cells of a field; it has none of another set's."""
    if scores is None:
        return NONE, NONE
    small, large = scores
    return f"{small:g} / {large:g}", f"{large - small:.3f}"


def calibration(result: dict[str, Any]) -> str:
    """Return the calibration maps of appendix B.4, in-sample and on the test set."""
    titles = {
        "isotonic": "isotonic",
        "temperature": "temperature",
        "platt": "Platt (not in the paper)",
        "none": "none (raw margin)",
    }
    rows = [
        [
            titles[row["name"]],
            f"{row['ece_in_sample']:.3f} {between(row['ece_in_sample_interval'])}",
            f"{row['ece']:.3f} {between(row['ece_interval'])}",
            f"{row['ece_equal_width']:.3f}",
            f"{row['brier']:.4f}",
            f"{row['distinct']:,}",
            f"{row['paper_cost']:.3f} / {signed(row['gap'])}",
            f"{published.CALIBRATION_ERROR[row['name']]:.2f}" if row["name"] in published.CALIBRATION_ERROR else NONE,
        ]
        for row in result["calibration"]
    ]
    head = ("map", "ECE in-sample", "ECE out-of-sample", "equal width", "Brier", "distinct values", "cost / gap")
    return table((*head, "printed (in-sample)"), rows)


def signals(result: dict[str, Any]) -> str:
    """Return the uncertainty signals of section 6.3."""
    rows = [
        [
            _SIGNAL_TITLES[row["name"]],
            f"{row['auroc']:.3f}",
            f"{row['matched_cost']:.3f}",
            f"{row['paper_cost']:.3f} / {signed(row['gap'])}",
            f"{row['mean_f1']:.4f}",
        ]
        for row in result["signals"]
    ]
    head = ("signal", "AUROC of errors", "cost, matched on test", "cost / gap, chosen on validation")
    return table((*head, "mean micro-F1 over all rates"), rows)


def assumption(result: dict[str, Any]) -> str:
    """Return both models' micro-F1 on all, escalated and kept queries of the test set."""
    found = result["assumption"]
    printed = {"all": f"{published.LARGE_F1:.3f}", "escalated": f"{published.LARGE_ON_ESCALATED:.3f}", "kept": NONE}
    rows = [
        [
            name,
            *(
                f"{found[f'{role}_{name}']:.3f} {between(found[f'{role}_{name}_interval'])}"
                for role in ("small", "large")
            ),
            printed[name],
        ]
        for name in printed
        if f"small_{name}" in found
    ]
    return table(("queries", "small", "large", "printed: large"), rows)


def splits(result: dict[str, Any]) -> str:
    """Return how each method fares over many random splits."""
    rows = [
        [
            row["title"],
            percent(row["met"]),
            percent(row["within_tolerance"]),
            f"{signed(row['gap_mean'])} ± {row['gap_deviation']:.3f}",
            f"{row['paper_cost_mean']:.2f} {between(row['paper_cost_range'], 2)}",
        ]
        for row in result["splits"]
    ]
    head = ("method", "met the target", "within .005 of it", "over target, mean ± deviation")
    return table((*head, "paper's cost, 95 % of splits"), rows)
