"""Simulated rates and tails → a Markdown page: each statement of the paper, what was found, the tables behind it."""

from __future__ import annotations

from typing import Any

from research.paper.claims import FAILS, HOLDS
from research.paper.report import made_by
from research.paper.tables import NONE, percent, signed, table

_TOLERANCE = 0.05
_CURVES = {"rising": "smooth and rising", "steps": "three steps", "hump": "not monotone"}
_SHIFT = 0.01


def page(results: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the page.

    ``results``: as :func:`research.paper.theory.simulate` returns them. ``made``: how the results came about: command,
    seed, machine, day and the like.
    """
    parts = [
        "# Two statements of the paper's theory, simulated",
        made_by(made),
        "## How fast calibration improves with labels (proposition 2)",
        _RATES,
        table(("statement", "found", "verdict"), [*_rate_verdicts(results["rates"]), _floor(results["recorded"])]),
        "![Error of the isotonic map over the number of calibration labels](calibration_rate.png)",
        *(part for name, found in results["rates"].items() for part in (f"### g {_CURVES[name]}", _rate_table(found))),
        "### Recorded outputs",
        _recorded_table(results["recorded"]),
        "## Heavy tails (the falsification regime, appendix B.5)",
        _TAILS,
        table(("statement", "found", "verdict"), _tail_verdicts(results["tails"])),
        "![Savings, entropy's excess and what becomes of risky queries, by tail](heavy_tails.png)",
        "### What each regime costs",
        _cost_table(results["tails"]),
        "### Whom the threshold escalates, and how well the maps are calibrated",
        _fate_table(results["tails"]),
    ]
    return "\n\n".join(parts) + "\n"


_RATES = (
    "Proposition 2 claims E[ECE] = O(n^(−1/3)) for isotonic regression on n labels; the proof bounds ECE by the "
    "root mean square distance between the fitted map and the true g, which falls as n^(−1/3). Here g is known: u "
    "is uniform, labels are drawn from g, and the map is compared with g on a fine grid, so that no noise of a test "
    "set is in the figures. Theory gives even the constant of the mean distance for a smooth rising g, .4127 ∫(4 "
    "g(1−g) g′)^(1/3) du (Brunk 1970; Groeneboom and Wellner 2001): the dashed line. Exponents are least-squares "
    "slopes of log error over log n; ± is a standard error over repetitions."
)

_TAILS = (
    "The paper says: where margins are heavy-tailed, some queries sit in the body of u with a high error "
    "probability, calibration cannot correct this, threshold routing escalates fewer of them than an oracle, the "
    "gain over entropy persists and the saving may shrink; none of it is measured there. Simulated here: the logit "
    "of each query's error probability plus noise is the logit of u; the noise is normal, Student's with few "
    "degrees of freedom (same quartiles), or normal with a share of *hidden errors*, wrong with probability .9 but "
    "with a u like any query's. The entropy is a noisier signal of the same kind: that it is worse is assumed, how "
    "much worse under heavy tails is found. The large model is right on 95 % of any queries (assumption ii holds), "
    "the target is 90 %, thresholds meet it on the test set exactly, UCCI's ties are broken by u, and the oracle "
    "knows each error probability. *Risky*: error probability above .8."
)


def _rate_verdicts(rates: dict[str, Any]) -> list[list[str]]:
    slope = {name: found["exponents"] for name, found in rates.items()}
    regular, last = slope["rising"], rates["rising"]["rows"][-1]
    ratio = last["l1"] / last["theory"]
    listed = ", ".join(f"{signed(one['binned'], 2)} ({_CURVES[name]})" for name, one in slope.items())
    bounded = all(one["binned"] <= -1.0 / 3.0 + _TOLERANCE for one in slope.values())
    steady = abs(regular["l2"] + 1.0 / 3.0) <= _TOLERANCE
    return [
        ["root mean square distance to g falls as n^(−1/3), g regular", signed(regular["l2"], 2), _verdict(steady)],
        [
            "mean distance as the theory's constant has it, g regular",
            f"{ratio:.2f} of it at n = {last['labels']:,}",
            _verdict(abs(ratio - 1.0) < 0.1),
        ],
        ["ECE over deciles falls at least as n^(−1/3)", listed, _verdict(bounded)],
        [
            "… and no faster, g regular",
            f"{signed(regular['binned'], 2)}; ten bins of fixed edges would have −0.50",
            _verdict(abs(regular["binned"] + 1.0 / 3.0) <= _TOLERANCE),
        ],
        [
            "the distance to g vanishes where g is not monotone ('standard regularity' left out)",
            f"{rates['hump']['rows'][-1]['l2']:.3f} is left at n = {last['labels']:,}",
            _verdict(slope["hump"]["l2"] <= -1.0 / 3.0 + _TOLERANCE),
        ],
    ]


def _floor(rows: list[dict[str, float]]) -> list[str]:
    near = next((row for row in rows if row["binned"] <= 1.25 * row["floor"]), None)
    found = "; ".join(f"{row['binned']:.3f} at n = {row['labels']:,}" for row in (rows[0], rows[-1]))
    reached = f"; within a quarter of the floor from n = {near['labels']:,}" if near else ""
    return [
        "ECE of .03 on new queries needs few labels (recorded outputs)",
        f"{found}; a right map shows {rows[-1]['floor']:.3f}{reached}",
        _verdict(rows[-1]["binned"] <= 0.03),
    ]


def _verdict(true: bool) -> str:
    return HOLDS if true else FAILS


def _rate_table(found: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['labels']:,}",
            *(f"{row[part]:.4f} ± {row[f'{part}_error']:.4f}" for part in ("l2", "l1")),
            f"{row['theory']:.4f}" if "theory" in row else NONE,
            f"{row['binned']:.4f} ± {row['binned_error']:.4f}",
        ]
        for row in found["rows"]
    ]
    slopes = {part: signed(value, 2) for part, value in found["exponents"].items()}
    rows.append(
        ["exponent", slopes["l2"], slopes["l1"], "−0.33" if "theory" in found["rows"][0] else NONE, slopes["binned"]]
    )
    return table(("labels", "root mean square distance", "mean distance", "its theory", "ECE over deciles"), rows)


def _recorded_table(rows: list[dict[str, float]]) -> str:
    cells = [
        [f"{row['labels']:,}", f"{row['binned']:.4f} ± {row['binned_error']:.4f}", f"{row['floor']:.4f}"]
        for row in rows
    ]
    return table(("labels", "ECE over deciles, 6,000 held-out queries", "the same of a right map"), cells)


def _tail_verdicts(rows: list[dict[str, Any]]) -> list[list[str]]:
    normal = rows[0]
    hidden = [row for row in rows if row["hidden_ucci"] is not None]
    caught = "; ".join(f"{percent(row['hidden_ucci'])} against {percent(row['hidden_oracle'])}" for row in hidden)
    calibrated = ", ".join(f"{row['ece_isotonic']:.3f}" for row in (normal, *hidden))
    return [
        [
            "fewer of the hidden errors are escalated than by an oracle",
            caught,
            _verdict(all(row["hidden_ucci"] < row["hidden_oracle"] for row in hidden)),
        ],
        [
            "calibration cannot correct this",
            f"with or without them the map is calibrated: ECE {calibrated}",
            _verdict(max(row["ece_isotonic"] for row in hidden) < normal["ece_isotonic"] + _SHIFT),
        ],
        [
            "the saving shrinks with hidden errors",
            _listed([normal, *hidden], "ucci_saving"),
            _falling([normal, *hidden]),
        ],
        [
            "… by more than a worse small model explains: UCCI over the oracle",
            _listed([normal, *hidden], "ucci_over_oracle"),
            _verdict(hidden[-1]["ucci_over_oracle"] > normal["ucci_over_oracle"] + _SHIFT),
        ],
        *_noise_verdicts(rows),
    ]


def _noise_verdicts(rows: list[dict[str, Any]]) -> list[list[str]]:
    normal, stretched = rows[0], rows[1]
    noisy = [row for row in rows[2:] if row["hidden_ucci"] is None]
    dearer = [row["entropy_over_ucci"] > 2.0 * row["entropy_over_ucci_error"] for row in rows]
    same = abs(stretched["ucci_saving"] - normal["ucci_saving"]) < 1e-9
    parametric = "; ".join(
        f"{title} {normal[f'ece_{name}']:.3f} → {noisy[-1][f'ece_{name}']:.3f}"
        for name, title in (("isotonic", "isotonic"), ("platt", "Platt"), ("temperature", "temperature"))
    )
    return [
        ["the saving shrinks with heavier noise", _listed([normal, *noisy], "ucci_saving"), _falling([normal, *noisy])],
        ["the gain over entropy persists", _listed(rows, "entropy_over_ucci"), _verdict(all(dearer))],
        [
            "u must be bounded or light-tailed",
            f"longer tails in the same order {'leave the saving as it was' if same else 'change the saving'}",
            _verdict(not same),
        ],
        [
            "maps of one or two parameters stand heavy noise too (ECE, normal → Cauchy)",
            parametric,
            _verdict(noisy[-1]["ece_platt"] < normal["ece_platt"] + _SHIFT),
        ],
    ]


def _listed(rows: list[dict[str, Any]], name: str) -> str:
    return ", ".join(percent(row[name], 1) for row in rows)


def _falling(rows: list[dict[str, Any]]) -> str:
    """Judge whether the saving ends below where it began by more than two standard errors."""
    first, last = rows[0], rows[-1]
    spread = 2.0 * (first["ucci_saving_error"] ** 2 + last["ucci_saving_error"] ** 2) ** 0.5
    return _verdict(last["ucci_saving"] < first["ucci_saving"] - spread)


def _cost_table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [
            row["title"],
            f"{row['small']:.3f}",
            f"{row['ucci_paper_cost']:.2f}",
            f"{row['ucci_sequential_cost']:.2f}",
            f"{percent(row['ucci_saving'], 1)} ± {100.0 * row['ucci_saving_error']:.1f}",
            percent(row["ucci_sequential_saving"], 1),
            f"{percent(row['entropy_over_ucci'], 1)} ± {100.0 * row['entropy_over_ucci_error']:.1f}",
            f"{row['oracle_paper_cost']:.2f}",
            f"{percent(row['ucci_over_oracle'])}",
        ]
        for row in rows
    ]
    head = ("regime", "small model right", "cost: paper's", "sequential", "saving: paper's", "sequential")
    return table((*head, "entropy over UCCI", "oracle's cost", "UCCI over oracle"), cells)


def _fate_table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [
            row["title"],
            *(
                NONE if row[name] is None else percent(row[name], 1)
                for name in ("risky_ucci", "risky_oracle", "hidden_ucci", "hidden_oracle")
            ),
            *(f"{row[f'ece_{name}']:.3f}" for name in ("isotonic", "platt", "temperature")),
        ]
        for row in rows
    ]
    head = ("regime", "risky escalated: UCCI", "oracle", "hidden escalated: UCCI", "oracle")
    return table((*head, "ECE isotonic", "Platt", "temperature"), cells)
