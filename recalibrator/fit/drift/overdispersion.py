"""By how much counts scatter more than those of independent queries (McCullagh and Nelder, 1989, chapter 4.5).

Queries come in bursts, and change with the hours of a day: a thousand of them tell less than as many independent ones
would. The log likelihood ratio of counts is divided by the factor that the variance of whole blocks has. Blocks are
longer than bursts and shorter than days, so that they show both. A lasting change fills one or two before its alarm.
"""

from __future__ import annotations

from dataclasses import dataclass

_BLOCK = 1_000
"""Observations in a block, at least."""

_HALF_LIFE_BLOCKS = 20.0
_PRIOR_BLOCKS = 4.0
"""Without overdispersion: a handful of blocks must not make the factor extreme."""


@dataclass(slots=True)
class Overdispersion:
    """The decayed variance of the sums of blocks, over that of independent observations.

    Examples
    --------
    >>> bursts = Overdispersion()
    >>> for hits in (600.0, 400.0) * 50:
    ...     bursts.add(0.5, 1_000.0, hits, known=1e9)
    >>> round(bursts.factor)
    35
    """

    #: ``squares`` and ``blocks``: decayed sums over blocks: of squared standardised residuals, and of 1.
    squares: float = 0.0
    blocks: float = 0.0
    #: ``residual``, ``variance`` and ``observations``: of the block that is not full yet; the variance as if its
    #: observations were independent.
    residual: float = 0.0
    variance: float = 0.0
    observations: float = 0.0

    @property
    def factor(self) -> float:
        """By which variances exceed those of independent observations; at least 1."""
        return max(1.0, (self.squares + _PRIOR_BLOCKS) / (self.blocks + _PRIOR_BLOCKS))

    def add(self, expected: float, trials: float, hits: float, known: float) -> None:
        """Take counts in; ``known`` is the number of observations that ``expected`` was estimated from."""
        self.residual += hits - trials * expected
        # What is expected is an estimate, too.
        self.variance += trials * expected * (1.0 - expected) * (1.0 + trials / known)
        self.observations += trials
        if self.observations >= _BLOCK:
            self.close()

    def close(self) -> None:
        """End a block, full or not: what comes next is compared with something else."""
        if self.variance > 0.0:
            kept = 0.5 ** (1.0 / _HALF_LIFE_BLOCKS)
            self.squares = kept * self.squares + self.residual**2 / self.variance
            self.blocks = kept * self.blocks + 1.0
        self.residual = self.variance = self.observations = 0.0
