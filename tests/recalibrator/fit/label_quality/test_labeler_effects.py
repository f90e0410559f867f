"""Labelers compared with each other: against least squares by brute force, and against liars and honest people."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalibrator.fit.label_quality.labeler_effects import ByLabeler, Effects, deviations, labeler_effects, set_aside

STRATA = 12
SIZE = 6.0
"""E[d]: pairs predicted and pairs in gold of one answer."""


def drawn(rng: np.random.Generator, shares: list[float], biases: list[float], labels: int) -> ByLabeler:
    """Draw labels: strata differ in level, kinds in noise, labelers in what they add."""
    labeler = rng.choice(len(shares), labels, p=shares)
    stratum = rng.integers(0, STRATA, labels)
    kind = stratum % 2
    noise = rng.normal(0.0, np.where(kind == 0, 0.4, 1.5))
    return ByLabeler(labeler, stratum, kind, 0.3 * stratum + np.array(biases)[labeler] + noise)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
@settings(max_examples=30)
def test_effects_are_those_of_weighted_least_squares(seed: int, labelers: int) -> None:
    rng = np.random.default_rng(seed)
    biases = rng.normal(0.0, 1.0, labelers).tolist()
    labels = drawn(rng, [1.0 / labelers] * labelers, biases, 400)
    found = labeler_effects(labels, labelers)
    design = np.zeros((400, labelers + STRATA))
    design[np.arange(400), labels.labeler] = 1.0
    design[np.arange(400), labelers + labels.stratum] = 1.0
    means = np.array([labels.score[labels.stratum == one].mean() for one in range(STRATA)])
    residual = labels.score - means[labels.stratum]
    noise = np.array([np.square(residual[labels.kind == kind]).mean() for kind in (0, 1)])
    weight = 1.0 / np.sqrt(noise[labels.kind])
    expected = np.linalg.lstsq(design * weight[:, None], labels.score * weight, rcond=None)[0][:labelers]
    np.testing.assert_allclose(found.effect, expected - expected.mean(), atol=1e-6)


@pytest.mark.parametrize("share", [0.2, 0.46])
def test_one_liar_among_five_is_set_aside(share: float) -> None:
    """One liar among five labelers is set aside, whatever share of the labels is theirs."""
    honest = (1.0 - share) / 4.0
    labels = drawn(np.random.default_rng(1), [share, *[honest] * 4], [-1.0, 0.0, 0.0, 0.0, 0.0], 1_000)
    found = deviations(labeler_effects(labels, 5))
    assert found is not None
    assert set_aside(found, SIZE, ()) == {0}


def test_honest_people_are_not_set_aside() -> None:
    """Two hundred groups of five, judged each time on 12,000 labels; people differ a little in what counts as right."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        biases = rng.normal(0.0, 0.02, 5).tolist()
        found = deviations(labeler_effects(drawn(rng, [0.2] * 5, biases, 12_000), 5))
        assert found is not None
        assert not set_aside(found, SIZE, ())


def test_a_few_slips_among_thirty_labels_made_a_liar() -> None:
    """Five errors among thirty labels, where others make one in fifty: rare and large, so no proof of a liar yet.

    Whoever goes on like that is found out as soon as there are a hundred.
    """
    for labels, suspected in ((30, set()), (120, {0})):
        counts = [labels, 600, 600, 600, 600]
        wrong = [labels // 6, 12, 12, 12, 12]
        labeler = np.repeat(np.arange(5), counts)
        score = np.concatenate([np.arange(n) < k for n, k in zip(counts, wrong, strict=True)]) * -6.0
        nothing = np.zeros(len(labeler), dtype=int)
        found = deviations(labeler_effects(ByLabeler(labeler, nothing, nothing, score), 5))
        assert found is not None
        assert set_aside(found, SIZE, ()) == suspected


def test_of_two_labelers_none_deviates_unless_one_is_trusted() -> None:
    labels = drawn(np.random.default_rng(3), [0.5, 0.5], [-1.0, 0.0], 1_000)
    effects = labeler_effects(labels, 2)
    assert deviations(effects) is None
    found = deviations(effects, trusted=(1,))
    assert found is not None
    assert set_aside(found, SIZE, ()) == {0}
    assert set_aside(deviations(effects, trusted=(0,)) or found, SIZE, ()) == {1}


def test_trust_returns_only_well_within_the_usual() -> None:
    """The bound to be believed again is lower than the one to be set aside."""
    labels = drawn(np.random.default_rng(4), [0.2] * 5, [-0.16, 0.0, 0.0, 0.0, 0.0], 1_200)
    found = deviations(labeler_effects(labels, 5))
    assert found is not None
    assert 3.0 < found.in_errors[0] < 4.5
    assert not set_aside(found, SIZE, ())
    assert set_aside(found, SIZE, (0,)) == {0}


def test_a_rounding_error_hid_a_labeler() -> None:
    """A variance of -1e-18 made the distance in standard errors no number, which is never beyond a bound."""
    effects = Effects(np.array([0.0, 0.5]), np.diag([-1e-18, 0.0]), np.array([100.0, 100.0]), np.ones(2))
    found = deviations(effects, trusted={0})
    assert found is not None
    assert set_aside(found, 1.0, former=()) == {1}
