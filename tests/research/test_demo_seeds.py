"""The demo on several seeds: what its page says follows from the summaries."""

from research.demo import page

PHASES = ("clean", "whole stream")


def _summary(seed: int, ours: float, hindsight_cost: float) -> dict[str, object]:
    def phases(micro_f1: float, cost: float) -> dict[str, dict[str, float]]:
        one = {"micro_f1": micro_f1, "escalation_rate": 0.2, "cost_sequential": cost, "cost_paper": cost - 0.2}
        return dict.fromkeys(PHASES, one)

    rivals = {"static calibration": phases(0.9, 1.6), f"static + {seed}.00 points": phases(0.92, hindsight_cost)}
    facts = {"queries": 12_000, "target": 0.91, "cost_unit": "small calls", "large_only_cost": 3.0, "held": ours > 0.91}
    return {"seed": seed, **facts, "missing": 0, "duplicated": 0, "service": phases(ours, 2.0), "rivals": rivals}


def test_page_counts_who_met_the_target_and_at_what_cost() -> None:
    text = page([_summary(1, 0.912, 2.1), _summary(2, 0.904, 1.9)])
    assert "| this service | 0.9080 (0.9040 to 0.9120) |" in text
    assert "this service 1, static calibration 0, static, its best margin in hindsight 2" in text
    assert "on 1 it costs more than the service" in text
    assert "Held again after the first drift, within the tolerance: 1" in text
