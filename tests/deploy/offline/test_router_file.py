"""A router of the ucci-router package decides the same before and after it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.calibration import CalibrationMap
from schemas.errors import DecodeError
from ucci_stream.offline.bootstrap import read_router_file

ucci = pytest.importorskip("ucci")


@st.composite
def maps(draw: st.DrawFn) -> CalibrationMap:
    size = draw(st.integers(1, 12))
    unit = st.floats(0.0, 1.0, width=32)
    xs = sorted(draw(st.lists(unit, min_size=size, max_size=size, unique=True)))
    ys = sorted(draw(st.lists(unit, min_size=size, max_size=size)))
    return CalibrationMap(uncertainty=tuple(xs), error_probability=tuple(ys))


@given(maps(), st.floats(0.0, 1.0), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_the_threshold_on_u_keeps_what_theta_keeps(g: CalibrationMap, theta: float, us: list[float]) -> None:
    threshold = g.inverse(theta)
    p = np.interp(us, g.uncertainty, g.error_probability)
    for u, escalated_by_theta in zip(us, p > theta, strict=True):
        # Interpolation rounds: only within one part in 1e12 of theta may the two rules differ.
        if abs(float(np.interp(u, g.uncertainty, g.error_probability)) - theta) > 1e-12:
            assert (u > threshold) == escalated_by_theta


def test_a_file_written_by_the_package_decides_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    u = rng.beta(1.0, 20.0, 3_000)
    error = rng.random(3_000) < np.clip(6.0 * u, 0.0, 0.9)
    router = ucci.UCCIRouter(c_small=1.0, c_large=3.02)
    router.calibrate(u, error.astype(float))
    router.choose_threshold(u, 1.0 - error, np.full_like(u, 0.95), tau=0.9)
    path = tmp_path / "router.json"
    router.save(path)
    read = read_router_file(path.read_text())
    fresh = rng.beta(1.0, 20.0, 2_000)
    np.testing.assert_array_equal(fresh > read.uncertainty_threshold, router.escalate(fresh))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"format": "ucci-router", "version": 2}', "version"),
        ('{"format": "ucci-router", "version": 1, "theta": 0.5, "c_small": 1, "c_large": 3}', "calibrator"),
        (
            '{"format": "ucci-router", "version": 1, "theta": 7, "c_small": 1, "c_large": 3, "calibrator": KNOTS}',
            "theta",
        ),
    ],
)
def test_a_faulty_file_names_the_field(text: str, field: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_router_file(text.replace("KNOTS", '{"x": [0.1], "y": [0.2]}'))
    assert caught.value.field == field
