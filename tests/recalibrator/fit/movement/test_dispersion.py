"""Dispersion of counts: what comes in bursts is as dispersed as it is, category by category, and a guess is no fact."""

from __future__ import annotations

import numpy as np
import pytest

from recalibrator.fit.arrays import Floats
from recalibrator.fit.movement.dispersion import (
    Dispersion,
    Scatter,
    dispersion,
    log_evidence,
    pair_scatter,
    usual_dispersion,
)

BLOCKS, QUERIES, BURST = 200, 250, 8


def rare_in_bursts(series: int, seed: int = 3) -> Floats:
    """Return blocks of three categories: a rare one that comes in bursts, and two that are drawn query by query."""
    rng = np.random.default_rng(seed)
    rare = BURST * rng.binomial(QUERIES // BURST, 0.04, size=(series, BLOCKS))
    one = rng.binomial(QUERIES - rare, 0.5)
    return np.stack([rare, one, QUERIES - rare - one], axis=-1).astype(np.float64)


def known_of(blocks: Floats) -> tuple[Scatter, Scatter]:
    scatter = pair_scatter(blocks)
    return Scatter(*(one.sum(axis=1) for one in scatter)), Scatter(*(one[:, :1] for one in scatter))


def test_a_rare_category_in_bursts_has_a_factor_of_its_own() -> None:
    """It is about eight times as dispersed, and the frequent categories beside it are not."""
    factor = dispersion(*known_of(rare_in_bursts(20))).factor.mean(axis=(0, 1))
    assert factor[0] == pytest.approx(BURST, rel=0.2)
    assert factor[1:].max() < 1.6


def test_independent_queries_are_not_dispersed() -> None:
    rng = np.random.default_rng(5)
    blocks = rng.multinomial(QUERIES, (0.05, 0.45, 0.5), size=(20, BLOCKS)).astype(np.float64)
    found = dispersion(*known_of(blocks))
    assert found.factor.mean() < 1.15
    assert found.freedom.min() > 50.0


def test_the_pair_across_a_change_counts_for_nothing() -> None:
    """A step leaves the factor of its own beginning as it was, and raises that of any other one."""
    rng = np.random.default_rng(7)
    hits = rng.binomial(QUERIES, 0.1, size=(20, 24))
    hits[0, 12:] = rng.binomial(QUERIES, 0.4, size=12)
    blocks = np.stack([hits, QUERIES - hits], axis=-1).astype(np.float64)
    scatter = pair_scatter(blocks)
    known = Scatter(*(one.sum(axis=1) for one in scatter))
    spared = Scatter(*(np.concatenate([np.zeros_like(one[:, :1]), one], axis=1) for one in scatter))
    factor = dispersion(known, spared).factor[0, :, 0]
    assert factor[12] < 1.4
    assert min(*factor[:12], *factor[13:]) > 2.0


def test_a_category_hardly_seen_is_taken_for_the_usual() -> None:
    """Two queries in one burst say little of a category, so that its factor is nearly that of the others."""
    blocks = np.zeros((1, 24, 3))
    blocks[..., 1:] = np.random.default_rng(9).multinomial(QUERIES, (0.5, 0.5), size=24)
    blocks[0, 20] = [2.0, 120.0, 128.0]
    known, spared = known_of(blocks)
    usual = usual_dispersion(known)
    found = dispersion(known, spared)
    assert found.factor[0, 0, 0] == pytest.approx(float(usual.factor), abs=0.2)
    assert found.freedom[0, 0, 0] < float(usual.freedom) + 4.0


def test_a_factor_less_well_known_makes_weaker_evidence() -> None:
    """Evidence grows with the degrees of freedom, up to that of a factor which is known."""
    before, after, log_factor = np.array([900.0, 100.0]), np.array([60.0, 40.0]), np.array(24.4)
    found = [
        float(log_evidence(log_factor, before, after, Dispersion(np.full(2, 2.0), np.full(2, freedom))))
        for freedom in (2.0, 10.0, 100.0, 1e9)
    ]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(12.2, abs=1e-3)


def test_dispersion_is_that_of_the_categories_that_differ() -> None:
    """A category that differs and is known to come in bursts is not taken for as steady as its neighbours."""
    spread = Dispersion(np.array([8.0, 1.0, 1.0]), np.full(3, 1e9))
    before = np.array([100.0, 450.0, 450.0])
    bursty, steady = np.array([40.0, 80.0, 80.0]), np.array([20.0, 60.0, 120.0])
    assert float(log_evidence(np.array(20.0), before, bursty, spread)) < 4.0
    assert float(log_evidence(np.array(20.0), before, steady, spread)) == pytest.approx(20.0, rel=1e-3)


def test_blocks_without_queries_say_nothing() -> None:
    found = dispersion(*known_of(np.zeros((2, 5, 3))))
    assert np.array_equal(found.factor, np.ones_like(found.factor))
    assert np.isfinite(found.freedom).all()
