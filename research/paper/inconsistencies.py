"""Where the paper's text contradicts itself: arithmetic on its printed figures, beside what was measured here."""

from __future__ import annotations

from math import sqrt
from typing import Any

from research.paper import published
from research.paper.measures import LARGE_COST, sequential_cost
from research.paper.tables import percent


def inconsistencies(results: dict[str, Any]) -> list[str]:
    """Return one paragraph for each, as Markdown.

    ``results``: by workload, as :func:`research.paper.experiment.run` returns them.
    """
    return [
        _small_call(),
        _smallest_theta(results),
        _in_sample(results),
        _same_order(results),
        _budget(),
        _interval(results),
        _monotone(results),
        _separation(results),
        _small_slips(),
        *_WORDS,
    ]


_WORDS = (
    (
        "**Two accuracies.** Equation 2 and the threshold rule average a score over queries, and theorem 1 takes "
        "that score to be `1 − p̂`, the chance of an exact match; the target and all tables are micro-F1, a ratio "
        "of sums over pairs. They differ: on the recorded queries the small model's exact-match rate (72 %) is far "
        "below its micro-F1. Here the target is always micro-F1, at selection as well as at scoring."
    ),
    (
        "**Ties are not of measure zero.** The proof calls the level sets of p̂ a matter of measure-zero "
        "tie-breaking, yet an isotonic map has few values, so that a threshold on p̂ moves whole blocks of queries "
        "at once. Breaking ties by u (the row *token margin, uncalibrated*) is never dearer in the matched tables "
        "above."
    ),
    (
        "**What FrugalGPT-style means.** The text calls it a learned threshold, a tuned confidence threshold and "
        "the closest learning-based comparator. If the confidence is u, it is UCCI up to ties. Here a learned "
        "scorer stands in the row, and *max probability* is the plain confidence threshold."
    ),
)


def _small_call() -> str:
    rate = published.escalation_rate(published.UCCI_COST)
    cost = float(sequential_cost(rate))
    entropy = float(sequential_cost(published.escalation_rate(published.AT_TARGET["entropy"])))
    return (
        "**The cost leaves out the small call of escalated queries.** u comes from the small model's own "
        f"generation, so an escalated query pays both calls. The printed cost {published.UCCI_COST} means "
        f"{percent(rate, 1)} escalated; counted in sequence that is {cost:.2f} instead of {published.UCCI_COST}, a "
        f"saving of {percent(1.0 - cost / LARGE_COST)} instead of {percent(published.UCCI_SAVING)}. Entropy's "
        f"{entropy:.2f} would save {percent(1.0 - entropy / LARGE_COST, 1)}. Above "
        f"{percent(1.0 - 1.0 / LARGE_COST, 1)} escalated, the cascade costs more than the large model alone."
    )


def _smallest_theta(results: dict[str, Any]) -> str:
    rates = ", ".join(f"{percent(result['smallest_theta'])} ({name})" for name, result in results.items())
    return (
        "**'Smallest theta'.** Section 4.3 minimises the cost, which asks for the *largest* feasible theta; the "
        "proof of theorem 1 implements it by the *smallest*. Queries above theta are escalated, so the smallest "
        f"feasible theta is the dearest choice: taken at its word it escalates {rates}."
    )


def _in_sample(results: dict[str, Any]) -> str:
    found = "; ".join(
        f"{name}: {row['ece_in_sample']:.3f} in-sample, {row['ece']:.3f} out-of-sample"
        for name, result in results.items()
        for row in result["calibration"]
        if row["name"] == "isotonic"
    )
    return (
        "**In-sample ECE.** The paper measures ECE on the set on which the map was fitted. There the isotonic fit "
        "equals the observed rate on each of its level sets, so that ECE is 0 by construction wherever bins keep "
        f"equal forecasts together ({found}). A printed 0.03 can come only from bins that cut level sets, or from "
        "other data, or from resampling the set under the map as fitted, which adds noise to an error of 0 (see the "
        "in-sample intervals below). None of these tells of new queries."
    )


def _same_order(results: dict[str, Any]) -> str:
    found = "; ".join(
        f"{name} {row['paper_cost']:.3f} against {ours['paper_cost']:.3f}"
        for name, result in results.items()
        for ours in result["matched"]
        for row in result["matched"]
        if ours["name"] == "ucci" and row["name"] == "conformal"
    )
    return (
        "**One order, four prices.** UCCI, split conformal on raw u, temperature scaling and the uncalibrated "
        "margin all threshold a monotone function of the same u: they rank queries alike and share one "
        "cost-accuracy curve up to ties. At a matched micro-F1 their costs must agree, so the printed 5 % between "
        "conformal and UCCI is luck of the validation set or a threshold that was not matched. Here, conformal "
        f"against UCCI: {found}."
    )


def _budget() -> str:
    rate = published.escalation_rate(published.BUDGET)
    coin = published.SMALL_F1 + rate * (published.LARGE_F1 - published.SMALL_F1)
    return (
        "**Cheaper and better at once.** Table 2 has UCCI on the target at 2.08 and 0.01 *above* it at 2.00: fewer "
        "escalations, higher micro-F1. Then 2.08 was not the least cost that meets the target. In the same block "
        f"entropy at 2.00 lies 0.02 below: {published.TARGET - 0.02:.3f}, where a coin flip with as many escalations "
        f"gives {coin:.3f}; yet at 2.31 it is said to reach the target."
    )


def _interval(results: dict[str, Any]) -> str:
    rate = published.escalation_rate(published.UCCI_COST)
    half = 1.96 * (LARGE_COST - 1.0) / LARGE_COST * sqrt(rate * (1.0 - rate) / (published.QUERIES * 0.5))
    low, high = published.UCCI_SAVING_INTERVAL
    text = (
        "**The interval of the saving.** A bootstrap over 37,500 test queries with the threshold as chosen gives ± "
        f"{percent(half, 1)}, since only the escalation rate varies; the paper prints [{percent(low)}, "
        f"{percent(high)}]."
    )
    for row in results["synthetic"]["splits"]:
        if row["name"] == "ucci":
            least, most = (1.0 - cost / LARGE_COST for cost in row["paper_cost_range"][::-1])
            text += (
                f" Over {row['splits']} repetitions of the protocol on the synthetic workload, threshold chosen anew, "
                f"it spans {percent(least)} to {percent(most)} (95 % of them), which is as wide as printed."
            )
    return text


def _monotone(results: dict[str, Any]) -> str:
    found = "; ".join(
        f"{name} {scaled['ece']:.3f}, Platt {platt['ece']:.3f}, isotonic {isotonic['ece']:.3f}"
        for name, result in results.items()
        for isotonic, scaled, platt in [result["calibration"][:3]]
    )
    return (
        "**Non-monotone, cured by a monotone map.** Appendix B.4 blames temperature scaling for being monotone "
        "where the miscalibration is not; isotonic regression is monotone too. What one temperature lacks is an "
        f"offset: with one (Platt) nearly all is won (out-of-sample ECE, temperature first: {found})."
    )


def _separation(results: dict[str, Any]) -> str:
    rate = published.escalation_rate(published.UCCI_COST)
    kept = (published.TARGET - rate * published.LARGE_ON_ESCALATED) / (1.0 - rate)
    escalated = (published.SMALL_F1 - (1.0 - rate) * kept) / rate
    auroc = "; ".join(f"{name} {result['signals'][0]['auroc']:.2f}" for name, result in results.items())
    coin = (published.TARGET - published.SMALL_F1) / (published.LARGE_F1 - published.SMALL_F1)
    return (
        f"**A weak signal, read from its own numbers.** {percent(rate)} escalated, .928 on them and .91 in all leave "
        f"about {kept:.3f} for the small model on kept queries and {escalated:.3f} on escalated ones (pairs spread "
        f"evenly): little separation. A coin flip reaches .91 at {percent(coin)} escalated, cost "
        f"{1.0 + 2.02 * coin:.2f}. AUROC of the margin: {auroc}, the last what reproduces the printed costs. "
        "'Close to optimal' does not describe this."
    )


def _small_slips() -> str:
    ratio = published.LATENCY_MS["large"] / published.LATENCY_MS["small"]
    small, large = published.FIELD_F1["lens"]
    return (
        f"**Slips.** 142.3 ms / 47.2 ms is {ratio:.3f}, not 3.02. The gap on lens is said to be 14.3 points; table 4 "
        f"has {100 * (large - small):.0f} there and 18 on camera. Costs come from 100 queries with a cold cache, but "
        "the savings' intervals take 3.02 as exact."
    )
