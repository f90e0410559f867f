"""The demo's plan: who labels what, equal in every run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.isotonic import IsotonicRegression

from schemas.settings_text import parse_settings
from ucci_demo.recorded.traffic import load_traffic
from ucci_stream.demo.scenario import (
    LABELERS,
    TRUSTED_LABELER,
    Scenario,
    offline_calibration,
    offline_set,
    plan_label,
)
from ucci_stream.local.stack import WORKLOAD, StackOptions, config_text, recorded_servers

SCENARIO = Scenario(queries=1_000)


def test_offline_calibration_equals_sklearns_isotonic_fit() -> None:
    offline = offline_set(load_traffic())
    fitted, _ = offline_calibration(offline, 0.91)
    answered = [q for q in offline if q.small.uncertainty is not None]
    reference = IsotonicRegression(out_of_bounds="clip").fit(
        [q.small.uncertainty for q in answered], [not q.small.exact for q in answered]
    )
    assert fitted.uncertainty == tuple(reference.X_thresholds_)
    np.testing.assert_allclose(fitted.error_probability, reference.y_thresholds_, rtol=0, atol=1e-15)


def test_audits_go_to_the_trusted_labeler_alone() -> None:
    ordinary = Counter(plan_label(f"q-{n}", SCENARIO, is_audit=False).labeler for n in range(3_000))
    assert set(ordinary) == set(LABELERS)
    assert all(800 < count < 1_200 for count in ordinary.values())
    assert {plan_label(f"q-{n}", SCENARIO, is_audit=True).labeler for n in range(100)} == {TRUSTED_LABELER}
    assert TRUSTED_LABELER in LABELERS


def test_stack_config_names_the_trusted_labelers(tmp_path: Path) -> None:
    servers = recorded_servers(tmp_path)
    for trusted in ((), (TRUSTED_LABELER, 'a "b"')):
        options = StackOptions(directory=tmp_path, trusted_labelers=trusted)
        text = config_text(options, "127.0.0.1:9092", servers, http_port=4711)
        settings = parse_settings(text, {})
        workload = settings.workloads[WORKLOAD]
        assert workload.trusted_labelers == trusted
        assert (workload.offered_handoff, workload.cost and workload.cost.unit) == (None, "token")
        assert settings.recalibrator.http_port == 4711, "where commands look for the API"
