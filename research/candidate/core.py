"""The candidate for the core: traffic by cell and labels flow in, a threshold and an exploration rate come out.

A block is 1,000 queries in the order in which they were routed; a late label falls into its block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from recalibrator.grid import Grid
from research.candidate.curves import (
    DIMENSIONS,
    Curves,
    Floats,
    Labels,
    Outlook,
    equations,
    fit_curves,
    gradients,
    grouped,
    kept_info,
    outlook,
)
from research.candidate.worlds import (
    Kind,
    Since,
    Weighed,
    World,
    agreement_info,
    agreement_modes,
    weigh,
)
from schemas.traffic import GridSpec


def _eta(
    level: float, slope: float, small: float, small_slope: float, large: float, large_slope: float, both: float
) -> Floats:
    return np.array((level, slope, small, small_slope, large, large_slope, both))


@dataclass(frozen=True, slots=True)
class Constants:
    """The method's constants; the receipts stand in docs/results/candidate/README.md.

    ``safety``: standard deviations of F(t) by which it must exceed 0: the users' knob. ``gain``: of micro-F1: what
    escalating more must gain where the target is out of reach. ``block``, ``kept``: queries a block, and blocks kept.
    ``ages``: blocks ago, when something may have changed. ``narrow``, ``wide``: bandwidths of the offline curves, as
    shares of the labels: of agreement, and of z given agreement. ``overdispersion``: by which all information about η,
    and counts of queries by bin, are divided. ``hazard_small``, ``hazard_large``, ``hazard_mix``, ``hazard_back``,
    ``hazard_both``, ``hazard_novel``, ``hazard_novel_mix``: chance of each kind of change a block. ``novel_scale``: how
    far queries of an unknown kind may lie along the one direction in which both models are worse. ``bins``: of u, of
    equal mass offline, by which mixes of queries are compared. ``mix_spread``, ``mix_most``: queries that the former
    mix is worth as a prior for another, and that a known one is worth at most. ``traffic_blocks``: latest blocks whose
    queries count as the current traffic. ``traffic_known``: queries that a known mix counts for beside them.
    ``commit``, ``commit_age``: probability, and age, at which a change is taken as certain and another world begins.
    ``least_world``, ``worlds``: blocks from which a world is remembered, and how many are, the offline one included.
    ``forget``, ``forget_age``: share of a small change's probability by which blocks before it lose weight, with every
    block. ``explore_rest``, ``explore_alert``, ``alert``: exploration, and the probability of a change from which it is
    the larger one. ``pruned``: probability below which a hypothesis is left out of the choice of t.
    """

    safety: float = 0.6
    gain: float = 0.0007
    block: int = 1_000
    kept: int = 48
    ages: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48)
    narrow: float = 0.02
    wide: float = 0.08
    overdispersion: float = 1.3
    hazard_small: float = 0.05
    hazard_large: float = 0.01
    hazard_mix: float = 0.01
    hazard_back: float = 0.06
    hazard_both: float = 0.003
    hazard_novel: float = 0.01
    hazard_novel_mix: float = 0.01
    novel_scale: float = 0.4
    bins: int = 8
    mix_spread: float = 2_000.0
    mix_most: float = 20_000.0
    traffic_blocks: int = 8
    traffic_known: float = 2_000.0
    commit: float = 0.9
    commit_age: int = 4
    least_world: int = 6
    worlds: int = 4
    forget: float = 0.08
    forget_age: int = 6
    explore_rest: float = 0.002
    explore_alert: float = 0.03
    alert: float = 0.3
    refit_queries: int = 500
    pruned: float = 0.003


_SMALL = _eta(0.105, 0.06, 0.06, 0.03, 0.06, 0.03, 0.018)
_LARGE = _eta(0.4, 0.2, 0.25, 0.12, 0.35, 0.15, 0.1)
_BACK = _eta(0.05, 0.03, 0.03, 0.015, 0.03, 0.015, 0.01)
_BOTH = _eta(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1)
_NOVEL = _eta(0.25, 0.0, 0.35, 0.0, 1.0, 0.0, 0.2)
"""How queries of an unknown kind are worse, both models at once; the sign is that of getting better."""
_GROUP = 4


@dataclass(slots=True)
class Blocks:
    """Sums by block, oldest first; first axis: blocks, the open one last."""

    start: Floats
    queries: Floats
    pairs: Floats
    agreeing: Floats
    kept: Floats
    kept_z: Floats
    info: Floats
    vec: Floats
    weight: Floats
    used: int = 1

    @classmethod
    def empty(cls, kept: int, cells: int) -> Blocks:
        """Return room for so many blocks, one of them open."""
        groups = cells // _GROUP
        return cls(
            np.full(kept + 1, np.inf),
            np.zeros((kept + 1, cells)),
            np.zeros((kept + 1, groups)),
            *(np.zeros((kept + 1, groups)) for _ in range(3)),
            np.zeros((kept + 1, DIMENSIONS, DIMENSIONS)),
            np.zeros((kept + 1, DIMENSIONS)),
            np.ones(kept + 1),
        )

    def shift(self) -> None:
        """Drop the oldest block."""
        for name in ("start", "queries", "pairs", "agreeing", "kept", "kept_z", "info", "vec", "weight"):
            column = getattr(self, name)
            column[:-1] = column[1:].copy()
            column[-1] = {"start": np.inf, "weight": 1.0}.get(name, 0.0)
        self.used -= 1


class Core:
    """Keeps a threshold true."""

    def __init__(self, constants: Constants, grid: Grid | None = None) -> None:
        self.constants = constants
        self.grid = Grid(GridSpec()) if grid is None else grid
        self.threshold, self.exploration = -1.0, constants.explore_alert
        self.alarms = 0
        self.weighed: Weighed | None = None
        self._blocks = Blocks.empty(constants.kept, self.grid.cells)
        self._first = 0
        self._open = 0.0
        self._since_refit = 0.0

    def bootstrap(self, labels: Labels) -> None:
        """Fit the offline curves, and know the offline world."""
        c = self.constants
        self.curves = fit_curves(labels, self.grid.logits, c.narrow, c.wide)
        weight = np.bincount(labels.cell, minlength=self.grid.cells) + 1e-3
        self._grouped = grouped(self.curves, weight, _GROUP)
        self._logit, self._place = self._grouped.logit, self._grouped.place
        mass = np.cumsum(weight) / weight.sum()
        self._edges = np.unique(np.searchsorted(mass, np.arange(1, c.bins) / c.bins))
        self._edges = np.concatenate(([0], self._edges + 1))
        pairs = np.bincount(labels.cell[labels.agree >= 0] // _GROUP, minlength=len(self._logit)).astype(np.float64)
        chance = 1.0 / (1.0 + np.exp(-self._logit))
        agreeing = (pairs * chance)[None]
        info, _ = self._label_sums(labels)
        of_pairs, _ = agreement_info(self._logit, self._place, pairs[None], agreeing, np.zeros(2))
        info[:2, :2] += of_pairs[0]
        info /= c.overdispersion
        prior = np.diag(1.0 / (3.0 * _LARGE) ** 2)
        histogram = weight
        self._now = World(info + prior, np.zeros(DIMENSIONS), self._mix(histogram[None])[0], histogram)
        self._known: list[World] = [self._now]
        self._now_mean = np.zeros(DIMENSIONS)
        self._origin: World | None = self._now
        zero = np.zeros(DIMENSIONS)
        self._kinds = (
            Kind("small", c.hazard_small, _SMALL, zero),
            Kind("large", c.hazard_large, _LARGE, zero),
            Kind("both", c.hazard_both, _BOTH, zero),
            Kind("mix", c.hazard_mix, _LARGE, zero, mixed=True),
            # At one hazard each: with the mix as it was, and with another.
            Kind("novel", c.hazard_novel, _BACK, zero, along=c.novel_scale * _NOVEL),
            Kind("novel mix", c.hazard_novel_mix, _BACK, zero, mixed=True, along=c.novel_scale * _NOVEL),
        )
        self._back = Kind("back", c.hazard_back, _BACK, zero)
        self._refit()

    def _mix(self, queries: Floats) -> Floats:
        return np.add.reduceat(queries, self._edges, axis=1)

    def _label_sums(self, labels: Labels) -> tuple[Floats, Floats]:
        h, r, v, _ = equations(self.curves, labels)
        scaled = h / v[:, None]
        return scaled.T @ h, scaled.T @ r

    def see(self, at: float, queries: Floats, pairs: Floats, agreeing: Floats) -> None:
        """Take in a summary of traffic: counts by cell, and the time of its first query."""
        blocks = self._blocks
        count = float(queries.sum())
        if self._open >= self.constants.block:
            self._close()
        last = blocks.used - 1
        if not np.isfinite(blocks.start[last]):
            blocks.start[last] = at
        blocks.queries[last] += queries
        blocks.pairs[last] += pairs.reshape(-1, _GROUP).sum(axis=1)
        blocks.agreeing[last] += agreeing.reshape(-1, _GROUP).sum(axis=1)
        self._open += count
        self._since_refit += count
        if self._since_refit >= self.constants.refit_queries:
            self._since_refit = 0.0
            self._refit()

    def learn(self, labels: Labels) -> None:
        """Take in labels; each goes to the block in which its query was routed."""
        blocks = self._blocks
        place = np.searchsorted(blocks.start[: blocks.used], labels.at, side="right") - 1
        known = place >= 0
        labels, place = Labels(*(column[known] for column in labels)), place[known]
        h, r, v, label = equations(self.curves, labels)
        scaled = h / v[:, None]
        np.add.at(blocks.info, place[label], scaled[:, :, None] * h[:, None, :])
        np.add.at(blocks.vec, place[label], scaled * r[:, None])
        alone = labels.agree < 0
        at = (place[alone], labels.cell[alone] // _GROUP)
        np.add.at(blocks.kept, at, 1.0)
        np.add.at(blocks.kept_z, at, labels.small[alone])

    def _close(self) -> None:
        """End the open block: forget, commit to a change that is certain, and make room."""
        self._refit()
        self._forget()
        self._commit()
        blocks = self._blocks
        if blocks.used > self.constants.kept:
            if self._first == 0:
                self._now = self._before(blocks.used - 1)
            else:
                self._first -= 1
            blocks.shift()
        blocks.used += 1
        self._open = 0.0

    def _label_info(self) -> tuple[Floats, Floats]:
        """Return what labels of each block say, those of small answers alone expanded at the present world."""
        blocks = self._blocks
        info, vec = kept_info(self._grouped, self._now_mean, blocks.kept, blocks.kept_z)
        return info + blocks.info, vec + blocks.vec

    def _sums(self) -> tuple[Floats, Floats]:
        """Return info and vec of each block, labels and pairs together, agreement expanded at the present world."""
        blocks, c = self._blocks, self.constants
        of_pairs, vec_pairs = agreement_info(
            self._logit, self._place, blocks.pairs, blocks.agreeing, self._now_mean[:2]
        )
        info, vec = self._label_info()
        info[:, :2, :2] += of_pairs
        vec[:, :2] += vec_pairs
        return info / c.overdispersion, vec / c.overdispersion

    def _before(self, age: int) -> World:
        """Return the present world as its blocks before the latest ``age`` tell it."""
        blocks = self._blocks
        part = slice(self._first, max(self._first, blocks.used - age))
        info, vec = self._sums()
        weight = blocks.weight[part]
        cells = blocks.queries[part].sum(axis=0)
        return World(
            self._now.info + np.tensordot(weight, info[part], 1),
            self._now.vec + np.tensordot(weight, vec[part], 1),
            self._now.mix + self._mix(cells[None])[0],
            self._now.cells + cells,
        )

    def _since(self) -> Since:
        blocks, c = self._blocks, self.constants
        own = blocks.used - self._first
        ages = np.array([age for age in c.ages if age <= own])
        widths = np.diff(np.concatenate(([0], ages)))
        info, vec = self._sums()
        begins = blocks.used - ages
        weight = blocks.weight.copy()
        weight[: self._first] = weight[blocks.used :] = 0.0
        prefix_info = np.concatenate(
            ([np.zeros((DIMENSIONS, DIMENSIONS))], np.cumsum(weight[:, None, None] * info, axis=0))
        )
        prefix_vec = np.concatenate(([np.zeros(DIMENSIONS)], np.cumsum(weight[:, None] * vec, axis=0)))
        counts = self._mix(blocks.queries)
        counts[: self._first] = 0.0
        prefix_mix = np.concatenate(([np.zeros(counts.shape[1])], np.cumsum(counts, axis=0)))

        def after(values: Floats) -> Floats:
            total = np.cumsum(values[::-1], axis=0)
            return total[len(values) - 1 - begins]

        used = slice(0, len(info))
        late_info, late_vec = (after(values[used]) / c.overdispersion for values in self._label_info())
        pairs, agreeing = after(blocks.pairs), after(blocks.agreeing)
        mode = agreement_modes(self._logit, self._place, pairs, agreeing, self._now_mean[:2], 4.0)
        of_pairs, vec_pairs = agreement_info(self._logit, self._place, pairs, agreeing, mode)
        late_info[:, :2, :2] += of_pairs / c.overdispersion
        late_vec[:, :2] += vec_pairs / c.overdispersion
        return Since(
            ages,
            widths,
            late_info,
            late_vec,
            self._now.info + prefix_info[begins],
            self._now.vec + prefix_vec[begins],
            after(counts),
            self._now.mix + prefix_mix[begins],
        )

    def _refit(self) -> None:
        c = self.constants
        whole = self._before(0)
        self._now_mean = whole.mean
        known = tuple(world for world in self._known if world is not self._origin)
        self._candidates = known
        self.weighed = weigh(
            self._since(),
            whole,
            self._kinds,
            known,
            self._back,
            mix_spread=c.mix_spread,
            mix_scale=c.overdispersion,
            mix_most=c.mix_most,
        )
        self._choose(self.weighed.take(np.flatnonzero(self.weighed.weight >= c.pruned)))

    def _traffic(self, blocks: int, known: Floats, worth: float) -> tuple[Floats, float]:
        """Return the share of queries by cell in the latest blocks, and how many they are.

        ``known``: ndarray, shape (cells,); queries that are like these. ``worth``: how many they count for at most.
        """
        used = self._blocks.used
        counts = self._blocks.queries[max(0, used - blocks) : used].sum(axis=0)
        counts = counts + min(1.0, worth / known.sum()) * known
        total = float(counts.sum())
        return counts / total, total

    def _shares(self, age: int, kind: int) -> tuple[Floats, float]:
        """Return how queries spread over u where the latest blocks are as one hypothesis says."""
        c, own, kinds = self.constants, self._blocks.used - self._first, len(self._kinds)
        if kind >= kinds:
            return self._traffic(min(age, c.traffic_blocks), self._candidates[kind - kinds].cells, c.traffic_known)
        if kind >= 0 and self._kinds[kind].mixed:
            return self._traffic(min(age, c.traffic_blocks), self._now.cells, c.block / 4)
        return self._traffic(min(own, c.traffic_blocks), self._now.cells, c.traffic_known)

    def _choose(self, some: Weighed) -> None:
        c, curves = self.constants, self.curves
        spreads = [self._shares(*one) for one in zip(some.age.tolist(), some.kind.tolist(), strict=True)]
        shares, counts = (np.array([one[place] for one in spreads]) for place in (0, 1))
        value, variance = expected(curves, some, shares, counts, self.exploration)
        mean = some.weight @ value
        spread = np.sqrt(some.weight @ (variance + (value - mean) ** 2))
        size = float(shares[0] @ curves.size)
        secured = mean - c.safety * spread
        at = int(np.flatnonzero(secured >= min(0.0, secured.max() - c.gain * size))[-1])
        self.threshold = -1.0 if at == 0 else float(np.append(self.grid.edges, 1.0)[at - 1])
        self.estimate = (float(mean[at]) / size, float(spread[at]) / size)
        changed = float(some.weight[(some.age > 0) & (some.kind != 0)].sum())
        self.exploration = c.explore_alert if changed > c.alert else c.explore_rest
        self.changed = changed

    def _forget(self) -> None:
        c, weighed, blocks = self.constants, self.weighed, self._blocks
        old = (weighed.age >= c.forget_age) & (weighed.kind == 0)
        for age in np.unique(weighed.age[old]):
            share = c.forget * float(weighed.weight[old & (weighed.age == age)].sum())
            blocks.weight[: max(0, blocks.used - age)] *= 1.0 - share
            keep = 1.0 - share
            self._now = replace(self._now, info=self._now.info * keep, vec=self._now.vec * keep)

    def _commit(self) -> None:
        """Begin another world where a change is next to certain."""
        c, weighed, blocks = self.constants, self.weighed, self._blocks
        hard = (weighed.kind > 0) & (weighed.age >= c.commit_age)
        if float(weighed.weight[hard].sum()) < c.commit:
            return
        best = int(np.flatnonzero(hard)[np.argmax(weighed.weight[hard])])
        age, kind = int(weighed.age[best]), int(weighed.kind[best])
        former = self._before(age)
        back = self._candidates[kind - len(self._kinds)] if kind >= len(self._kinds) else None
        if blocks.used - age - self._first >= c.least_world:
            self._remember(former, back)
        self.alarms += 1
        if back is not None:
            cov = np.linalg.inv(back.info) + self._back.covariance
            mean, self._origin, like = back.mean, back, back
        else:
            change = self._kinds[kind]
            cov = np.linalg.inv(former.info) + change.covariance
            mean, self._origin = former.mean + change.mean, None
            like = former
        info = np.linalg.inv(cov)
        most = c.mix_spread if back is None and change.mixed else c.mix_most
        share = min(1.0, most / like.mix.sum())
        self._now = World(info, info @ mean, share * like.mix, share * like.cells)
        self._first = blocks.used - age
        blocks.weight[self._first :] = 1.0
        self._refit()

    def _remember(self, world: World, wanted: World | None) -> None:
        """Keep what is known of the world that ends, in place of what it began as; the offline one stays as it was."""
        offline, *others = self._known
        others = [one for one in others if one is not self._origin]
        room = self.constants.worlds - 2
        while len(others) > room:
            others.pop(next(place for place, one in enumerate(others) if one is not wanted))
        self._known = [offline, *others, world]


def expected(
    curves: Curves, some: Weighed, shares: Floats, queries: Floats, exploration: float
) -> tuple[Floats, Floats]:
    """Return F(t) = E[z] of what is served, and its variance, for each hypothesis and threshold.

    ``shares``: ndarray, shape (hypotheses, cells); of queries. ``queries``: ndarray, shape (hypotheses,); behind them.

    Returns value and variance, of shape (hypotheses, cells + 1): column 0 escalates all, column k keeps the cells below
    k.
    """
    seen = outlook(curves, some.mean)
    agree = seen.agree
    of_small, of_large = (agree * seen.equal + (1.0 - agree) * model for model in (seen.small, seen.large))
    rest = 1.0 - exploration
    gain = rest * shares * (of_small - of_large)
    value = np.concatenate(((shares * of_large).sum(axis=1, keepdims=True), gain), axis=1).cumsum(axis=1)
    small, large = (shares[0][:, None] * one for one in gradients(curves, Outlook(*(one[0] for one in seen))))
    slope = np.concatenate((large.sum(axis=0, keepdims=True), rest * (small - large))).cumsum(axis=0)
    variance = ((slope @ some.covariance) * slope).sum(axis=2)
    square = np.concatenate(
        ((shares * of_large**2).sum(axis=1, keepdims=True), rest * shares * (of_small**2 - of_large**2)), axis=1
    ).cumsum(axis=1)
    return value, variance + np.maximum(square - value**2, 0.0) / queries[:, None]
