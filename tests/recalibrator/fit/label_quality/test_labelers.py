"""The evidence that somebody labels differently: against beta-binomials, all possible counts and brute force.

Who is set aside, since when and until when: liars who turn, honest people, few labelers, trusted ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, comb
from scipy.stats import betabinom

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_table import LabelTable, Span
from recalibrator.fit.data.prequential import latest_by_labeler
from recalibrator.fit.label_quality.labelers import BLOCK, WINDOWS, Labelers, Tally, log_evidence, tally
from recalibrator.grid import Grid
from schemas import LabelledExample, OutcomeCounts
from schemas.event import from_us, to_us
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, example, typo_world
from tests.support.cores import present

CELLS, TARGET = 8, 0.9


def counts(labels: object, errors: object) -> Tally:
    """Return counts of one window, shape (1, kinds, places)."""
    made = np.array(labels, dtype=float)[None], np.array(errors, dtype=float)[None]
    return Tally(*made, np.zeros_like(made[0]))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 400), st.integers(0, 400))
def test_one_cell_is_a_ratio_of_beta_binomials(errors: int, right: int, their_errors: int, their_right: int) -> None:
    own, others = errors + right, their_errors + their_right
    found = log_evidence(counts([[own]], [[errors]]), counts([[others]], [[their_errors]]))
    apart = betabinom.logpmf(errors, own, 0.5, 0.5) + betabinom.logpmf(their_errors, others, 0.5, 0.5)
    together = (
        np.log(comb(own, errors))
        + np.log(comb(others, their_errors))
        + betaln(errors + their_errors + 0.5, right + their_right + 0.5)
        - betaln(0.5, 0.5)
    )
    assert found[0] == pytest.approx(apart - together, abs=1e-6)


def test_its_mean_is_1_where_all_are_alike() -> None:
    """Over all counts of two cells, by their probability under one rate drawn from Jeffreys' prior for each."""
    own, others = (3, 2), (4, 3)
    mean = 0.0
    for first in itertools.product(*(range(n + 1) for n in own)):
        for second in itertools.product(*(range(n + 1) for n in others)):
            chance = 1.0
            for k, n, j, m in zip(first, own, second, others, strict=True):
                whole = betaln(k + j + 0.5, n + m - k - j + 0.5) - betaln(0.5, 0.5)
                chance *= float(comb(n, k) * comb(m, j) * np.exp(whole))
            mean += chance * float(np.exp(log_evidence(counts([own], [first]), counts([others], [second]))[0]))
    assert mean == pytest.approx(1.0)


def rows_of(rng: np.random.Generator, labels: int, labelers: int) -> Floats:
    """Return labels in the order of time, of which half are pairs."""
    rows = np.zeros((labels, at.COLUMNS))
    rows[:, at.GROUP] = rng.integers(0, 3 * CELLS, labels)
    rows[:, at.LABELER] = rng.integers(1, labelers + 1, labels)
    rows[:, at.ROUTED_US] = np.arange(labels) * 1_000.0
    rows[:, at.SIZE_SMALL] = rows[:, at.SIZE_LARGE] = 6.0
    rows[:, at.HITS_SMALL], rows[:, at.HITS_LARGE] = 2.0 * rng.integers(0, 4, (2, labels))
    rows[:, at.ERROR] = rows[:, at.HITS_SMALL] < 6.0
    return rows


@pytest.mark.parametrize("labels", [0, 1, 100, 700, 2_500])
def test_windows_hold_the_latest_blocks(labels: int) -> None:
    rows = rows_of(np.random.default_rng(labels), labels, 3)
    found = tally(rows, CELLS, 3, TARGET)
    for place, blocks in enumerate(WINDOWS.tolist()):
        latest = rows[-blocks * BLOCK :]
        kind = latest[:, at.GROUP] // CELLS
        z = latest[:, at.HITS_SMALL] - TARGET * latest[:, at.SIZE_SMALL]
        for labeler in range(3):
            theirs = latest[:, at.LABELER] == labeler + 1
            for one in range(3):
                rows_here = theirs & (kind == one)
                assert found.labels[place, labeler, one].sum() == rows_here.sum()
                assert found.errors[place, labeler, one].sum() == latest[rows_here, at.ERROR].sum()
                assert found.score[place, labeler, one].sum() == pytest.approx(z[rows_here].sum())
            large = theirs & (kind == 1)
            assert found.errors[place, labeler, 3].sum() == (latest[large, at.HITS_LARGE] < 6.0).sum()


WORLD = typo_world(400, 200, seed=8)
GRID = Grid(GridSpec())
FIELDS = ("iso", "lens")
PEOPLE = ("ann", "ben", "cat", "dan", "eve")
GOLD = 3


def said(label: LabelledExample, *, exact: bool) -> LabelledExample:
    """Return a label of a query of which the small answer has all pairs right, or all but one."""
    both = OutcomeCounts(true_positives=GOLD if exact else GOLD - 1, predicted=GOLD)
    changed = {"small_exact": exact, "small": both, "large": both, "gold_count": GOLD, "agree": True}
    return label.model_copy(update=changed)


class Desk:
    """People who label one query after the other, each drawn by chance; errors are one in thirty."""

    def __init__(self, seed: int = 1, people: tuple[str, ...] = PEOPLE, trusted: tuple[str, ...] = ()) -> None:
        self.rng, self.people = np.random.default_rng(seed), people
        self.labels = LabelTable(GRID, 0.93, FIELDS, 20_000)
        self.labelers = Labelers(trusted)
        self.given: list[LabelledExample] = []

    def label(self, count: int, wrong: Callable[[str], float] = lambda _: 1 / 30) -> None:
        for _ in range(count):
            number = len(self.given)
            who = str(self.rng.choice(self.people))
            drawn = example(WORLD.draw(number % 400), f"q-{number}", "w", START + timedelta(seconds=number))[1]
            self.take(said(drawn, exact=self.rng.random() >= wrong(who)).model_copy(update={"labeler": who}))

    def take(self, label: LabelledExample) -> None:
        if label.revision == 1:
            self.given.append(label)
        self.labels.offer(label)
        if (distrust := self.labelers.on_label(self.labels)) is not None:
            self.labels.set_distrust(distrust)

    def began(self, number: int) -> int:
        """Return when a query was routed."""
        return to_us(START + timedelta(seconds=number))

    def spans_of_eve(self) -> tuple[Span, ...]:
        return self.labels.distrust[self.labels.labelers.index("eve") + 1]

    def set_aside(self) -> int:
        return len(self.given) - self.labels.counting


def liar(share: float, *names: str) -> Callable[[str], float]:
    return lambda who: share if who in names else 1 / 30


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_who_turns_is_set_aside_from_about_then(share: float) -> None:
    """True labels from before the turn still count, and those of all others."""
    desk = Desk()
    desk.label(2_000)
    desk.label(1_500, liar(share, "eve"))
    assert desk.labels.distrusted == ("eve",)
    ((begins_us, ends_us),) = desk.spans_of_eve()
    assert ends_us is None
    assert desk.began(1_500) < begins_us < desk.began(2_300)
    assert desk.set_aside() == desk.labels.distrusted_labels()["eve"]
    shown: Any = desk.labelers.details(desk.labels)["eve"]
    assert shown["micro_f1"] < -0.03
    assert shown["errors"] > 4.0
    assert shown["since"] == from_us(begins_us).isoformat()


def test_a_liar_from_the_start_is_set_aside_with_all_labels() -> None:
    """Labels from before the longest window too, where they say the same by themselves."""
    desk, given = Desk(), Desk()
    given.label(4_500)
    for one in given.given:
        desk.labels.offer(said(one, exact=one.labeler != "eve"))
    desk.labels.set_distrust(present(desk.labelers.look(desk.labels)))
    lies = sum(one.labeler == "eve" for one in given.given)
    assert len(given.given) - desk.labels.counting == desk.labels.distrusted_labels()["eve"] == lies


@pytest.mark.parametrize("seed", range(4))
def test_honest_people_are_not_set_aside(seed: int) -> None:
    """Who differ a little in what counts as right: errors are one in thirty for some, one in twenty for others."""
    desk = Desk(seed)
    desk.label(3_000, liar(1 / 20, "dan", "eve"))
    assert desk.set_aside() == 0


def test_who_labels_well_again_is_believed_again() -> None:
    """What was said meanwhile stays set aside, but for the last few lies; what is said now counts."""
    desk = Desk()
    desk.label(500)
    desk.label(500, liar(1.0, "eve"))
    desk.label(3_500)
    assert desk.labels.distrusted == ()
    ((begins_us, ends_us),) = desk.spans_of_eve()
    assert begins_us < desk.began(600) < desk.began(900) < present(ends_us)
    before = desk.set_aside()
    desk.label(500)
    assert desk.set_aside() == before


def test_who_puts_all_labels_right_loses_none() -> None:
    desk = Desk()
    desk.label(500)
    desk.label(400, liar(1.0, "eve"))
    assert desk.labels.distrusted == ("eve",)
    for one in [one for one in desk.given[500:] if one.labeler == "eve"]:
        desk.take(said(one, exact=True).model_copy(update={"revision": 2}))
    desk.label(500)
    assert desk.set_aside() == 0


def test_a_few_slips_among_thirty_labels_made_a_liar() -> None:
    """Five errors among thirty labels, where others make one in thirty: rare, so no proof of a liar yet."""
    desk = Desk()
    desk.label(1_500)
    for number in range(30):
        drawn = example(WORLD.draw(number), f"s-{number}", "w", START + timedelta(seconds=1_600 + number))[1]
        desk.take(said(drawn, exact=number >= 5).model_copy(update={"labeler": "new"}))
    desk.label(300)
    assert desk.set_aside() == 0


def test_of_two_labelers_none_is_set_aside_unless_one_is_trusted() -> None:
    for trusted, expected in (((), ()), (("ann",), ("eve",)), (("eve",), ("ann",))):
        desk = Desk(people=("ann", "eve"), trusted=trusted)
        desk.label(1_000, liar(0.5, "eve"))
        assert desk.labels.distrusted == expected


def test_a_good_past_hid_labels_that_are_worthless_now() -> None:
    """Of thousands of labels the last hundred are two in a hundred, and were not to be seen."""
    desk = Desk(people=("ann", "ben"))
    desk.label(2_000)
    desk.label(300, lambda who: 0.9 if who == "ben" else 1 / 30)
    latest = latest_by_labeler(desk.labels)
    (ann, ann_of), (ben, ben_of) = latest["ann"], latest["ben"]
    assert ann_of == ben_of == 100
    assert ann > 85
    assert ben < 25


def test_who_is_believed_makes_nobody_odd() -> None:
    """Two who label alike and differ from the rest: without the one believed, the other still differs."""
    desk = Desk()
    desk.label(500)
    desk.label(1_000, liar(1.0, "eve"))
    desk.labelers.believed.add("eve")
    lifted = desk.labelers.look(desk.labels)
    assert lifted == {}
    desk.labels.set_distrust(lifted)
    desk.label(1_000, liar(1.0, "eve"))
    assert desk.set_aside() == 0
    desk.labelers.believed.discard("eve")
    again = present(desk.labelers.look(desk.labels))
    assert [desk.labels.labelers[number - 1] for number in again] == ["eve"]
