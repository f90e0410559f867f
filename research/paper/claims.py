"""Results → where the paper's claims hold here and where not: each verdict is computed from the numbers it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from research.paper import published
from research.paper.tables import percent, percents, signed

HOLDS, FAILS, TIE, GIVEN = "holds", "does not hold", "no difference", "by construction"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of the paper and how it fares on one workload.

    ``text``, ``printed``: the claim in our words, and the paper's number. ``found``, ``verdict``: by workload.
    """

    text: str
    printed: str
    found: dict[str, str]
    verdict: dict[str, str]


def judge(results: dict[str, Any]) -> list[Claim]:
    """Return every claim with its verdicts.

    ``results``: by workload, as :func:`research.paper.experiment.run` returns them.
    """
    claims = []
    for text, printed, measure, given in _CLAIMS:
        found, verdict = {}, {}
        for name, result in results.items():
            found[name], verdict[name] = measure(result)
            if given and name == "synthetic":
                verdict[name] = GIVEN
        claims.append(Claim(text, printed, found, verdict))
    return claims


def _row(result: dict[str, Any], block: str, name: str) -> dict[str, Any]:
    return next(row for row in result[block] if row["name"] == name)


def _verdict(true: bool) -> str:
    return HOLDS if true else FAILS


def _saving(result: dict[str, Any]) -> tuple[str, str]:
    row = _row(result, "at_target", "ucci")
    found = f"{percent(row['paper_saving'])} {percents(row['paper_saving_interval'], 1)} at {signed(row['gap'])}"
    return found, _verdict(row["paper_saving"] >= published.UCCI_SAVING)


def _sequential_saving(result: dict[str, Any]) -> tuple[str, str]:
    row = _row(result, "at_target", "ucci")
    found = (
        f"{percent(row['sequential_saving'])} {percents(row['sequential_saving_interval'], 1)} at {signed(row['gap'])}"
    )
    return found, _verdict(row["sequential_saving"] >= published.UCCI_SAVING)


def _cheaper_than(name: str) -> Callable[[dict[str, Any]], tuple[str, str]]:
    def measure(result: dict[str, Any]) -> tuple[str, str]:
        row = _row(result, "matched", name)
        low, high = row["over_ucci_interval"]
        found = f"{signed(100 * row['over_ucci'], 1)} % {percents((low, high), 1)}"
        return found, HOLDS if low > 0.0 else FAILS if high < 0.0 else TIE

    return measure


def _budget(result: dict[str, Any]) -> tuple[str, str]:
    ours, entropy = (_row(result, "at_budget", name)["gap"] for name in ("ucci", "entropy"))
    verdict = "both above" if min(ours, entropy) >= 0.0 else _verdict(ours >= 0.0 > entropy)
    return f"{signed(ours)} / {signed(entropy)}", verdict


def _calibrated(result: dict[str, Any]) -> tuple[str, str]:
    isotonic, raw = (_row(result, "calibration", name)["ece"] for name in ("isotonic", "none"))
    return f"{raw:.3f} → {isotonic:.3f}, out-of-sample", _verdict(isotonic <= published.CALIBRATION_ERROR["isotonic"])


def _temperature(result: dict[str, Any]) -> tuple[str, str]:
    isotonic, scaled = (_row(result, "calibration", name) for name in ("isotonic", "temperature"))
    apart = isotonic["ece_interval"][1] < scaled["ece_interval"][0]
    return f"{isotonic['ece']:.3f} against {scaled['ece']:.3f}", HOLDS if apart else TIE


def _routes_better(result: dict[str, Any]) -> tuple[str, str]:
    row = _row(result, "matched", "margin")
    low, high = row["over_ucci_interval"]
    found = f"uncalibrated costs {signed(100 * row['over_ucci'], 1)} % {percents((low, high), 1)}"
    return found, HOLDS if low > 0.0 else FAILS if high < 0.0 else TIE


def _best_signal(result: dict[str, Any]) -> tuple[str, str]:
    names = ("margin", "entropy", "max_probability")
    costs = [_row(result, "matched", name)["paper_cost"] for name in names]
    bounds = [_row(result, "matched", name)["over_margin_interval"] for name in names[1:]]
    best = all(low > 0.0 for low, _ in bounds)
    worse = any(high < 0.0 for _, high in bounds)
    return " / ".join(f"{cost:.3f}" for cost in costs), HOLDS if best else FAILS if worse else TIE


def _invariant(result: dict[str, Any]) -> tuple[str, str]:
    found = result["assumption"]
    drop = found["large_all"] - found["large_escalated"]
    high = found["large_escalated_interval"][1]
    text = f"{found['large_escalated']:.3f} against {found['large_all']:.3f}, {drop:.3f} lower"
    return text, _verdict(drop < 0.01 or high >= found["large_all"])


def _transfers(result: dict[str, Any]) -> tuple[str, str]:
    row = _row(result, "splits", "ucci")
    found = f"met in {percent(row['met'])} of {row['splits']} splits; deviation {row['gap_deviation']:.3f}"
    return found, _verdict(row["met"] >= 0.95)


def _heterogeneous(result: dict[str, Any]) -> tuple[str, str]:
    gaps = [row["large"] - row["small"] for row in result["fields"] if row["field"] != "overall"]
    return f"{min(gaps):.3f} to {max(gaps):.3f}", _verdict(max(gaps) > 2.0 * min(gaps))


def _residual(result: dict[str, Any]) -> tuple[str, str]:
    left = {row["field"]: row["large"] - row["ucci"] for row in result["fields"] if row["field"] != "overall"}
    worst = sorted(left, key=left.__getitem__)[::-1][:2]
    gap = {row["field"]: row["large"] - row["small"] for row in result["fields"] if row["field"] in left}
    widest = {"camera", "lens"} if "camera" in left else set(sorted(gap, key=gap.__getitem__)[-2:])
    return ", ".join(f"{name} {left[name]:.3f}" for name in worst), _verdict(set(worst) == widest)


def _ratio(result: dict[str, Any]) -> tuple[str, str]:
    savings = [row["paper_saving"] for row in result["ratios"]]
    return " / ".join(percent(value) for value in savings), _verdict(savings == sorted(savings))


_CLAIMS: tuple[tuple[str, str, Callable[[dict[str, Any]], tuple[str, str]], bool], ...] = (
    ("UCCI saves 31 % against large-only at the target (the paper's cost)", "31 % [27, 35] %", _saving, True),
    ("… and 31 % when the small call of escalated queries is counted", "not given (13 %)", _sequential_saving, False),
    ("at the matched target entropy costs more than UCCI", "+11 %", _cheaper_than("entropy"), True),
    ("… split conformal costs more than UCCI", "+5 %", _cheaper_than("conformal"), False),
    ("… a FrugalGPT-style router costs more than UCCI", "+8 %", _cheaper_than("frugal"), False),
    ("at a cost of 2.00 UCCI is above the target, entropy below", "+0.01 / −0.02", _budget, False),
    ("isotonic calibration brings ECE down to 0.03", "0.12 → 0.03, in-sample", _calibrated, False),
    ("isotonic is better calibrated than temperature scaling", "0.03 against 0.08", _temperature, False),
    ("calibration makes routing by u cheaper", "the headline", _routes_better, False),
    ("cost by margin / entropy / max probability: the margin is best", "margin best", _best_signal, True),
    ("the large model is as good on escalated queries (assumption ii)", "0.928 against 0.932", _invariant, True),
    ("a threshold from the validation set meets the target on the test set", "+0.00", _transfers, False),
    ("the gap of the models varies between fields", "0.018 to 0.143", _heterogeneous, True),
    ("what the cascade leaves to the large model lies where their gap is widest", "camera, lens", _residual, False),
    ("the saving grows with the cost ratio", "31 / 37 / 42 %", _ratio, False),
)
