"""What moved between two samples of results: metadata, texts, models, answers, u. Pure.

Each property of a query is compared by a test of its own, all tests together by Benjamini and Hochberg's rule. What has
moved is in order of its effect; what merely comes with another movement stands behind that one.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json
from scipy import stats

from schemas.draws import uniform
from schemas.entities import equal
from schemas.errors import UcciError
from schemas.event import rfc3339
from schemas.routed import ModelRun, RoutedEvent
from ucci_runtime.broker.records import Record, event_of

#: Expected share of false ones among the movements, at most.
FALSE_SHARE = 0.01

#: A smaller one explains nothing; of large samples the tests notice any.
LEAST_EFFECT = 0.05

#: Of each sample.
LEAST_QUERIES = 100

#: Names of the quantiles that stand for a property which is a number.
NUMBERS = ("5%", "median", "95%")

_MILLISECONDS = 1_000
_DRAW = "what moved"
_LEAST_COUNT = 10
_BINS = 8
_BLOCK = 25
_READ = 200
_MOST_FIELDS = 64
_SHOWN = 5
_EXAMPLES = 3
_FOLLOWS = 0.5
_CLEARLY = 0.1
_WORD = re.compile(r"\w+")

#: Where a property arises: nothing follows what arises later. Another language, say, brings other words.
_METADATA, _TEXTS, _VOCABULARY, _MODELS, _ANSWERS, _SIGNALS = range(6)

#: From a text to the code of its language; None where languages are left out.
Language = Callable[[str], str] | None

Value = str | float | None
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Movement:
    """A property that moved."""

    #: Such as ``language`` or ``field camera``.
    what: str
    #: Of categories the total variation distance of their shares, of numbers the largest distance of the distribution
    #: functions (Kolmogorov and Smirnov): the share of queries that differ, at least. From 0 to 1.
    effect: float
    #: Of the test, adjusted by Benjamini and Hochberg.
    p: float
    #: Shares of those categories that differ most; of numbers the 5%, 50% and 95% quantiles.
    before: dict[str, float]
    after: dict[str, float]
    #: The movement that explains at least half of this one: among queries alike in that, less than half of it is left.
    follows: str | None
    #: Ids of queries after the change that show it.
    examples: tuple[str, ...]


class TooFewQueries(UcciError):
    """A side has too few results to be compared."""


class Sides:
    """A workload's results from before and after a time: all are counted, and a bounded number is compared.

    ``since``, ``until``: by the time at which results were committed. ``most``: results that are compared on either
    side, drawn by a hash of the query's id.
    """

    def __init__(self, workload: str, since: datetime, until: datetime, most: int) -> None:
        #: As long before the time as the results after it reach.
        self.start = since - (until - since)

        self._workload, self._since, self._until = workload, since, until
        self._wanted = b'"workload":' + to_json(workload)
        self._before, self._after = _Sample(most), _Sample(most)

    def offer(self, record: Record) -> None:
        """Take a record of the topic of results, in any order."""
        # Parsing is most of the work: only what was drawn is parsed.
        if record.timestamp_ms < self._until.timestamp() * _MILLISECONDS and self._wanted in (record.value or b""):
            is_before = record.timestamp_ms < self._since.timestamp() * _MILLISECONDS
            (self._before if is_before else self._after).offer(record)

    def compared(self, start: datetime, language: Language) -> dict[str, Any]:
        """Return what moved, as a document; what is older than ``start`` does not count. Raises TooFewQueries."""
        start_ms = int(start.timestamp() * _MILLISECONDS)
        sides = [one.results(self._workload, start_ms) for one in (self._before, self._after)]
        begun, since, until = map(rfc3339, (start, self._since, self._until))
        if min(map(len, sides)) < LEAST_QUERIES:
            raise TooFewQueries(
                f"{self._workload}: {len(sides[0])} results from {begun} on, and {len(sides[1])} from {since} "
                f"to {until}; {LEAST_QUERIES} of each are needed: give another time to compare from (since)"
            )
        seen = [sum(at >= start_ms for at in one.times_ms) for one in (self._before, self._after)]
        return {
            "workload": self._workload,
            "before": {"since": begun, "results": seen[0], "compared": len(sides[0])},
            "after": {"since": since, "results": seen[1], "compared": len(sides[1])},
            "until": until,
            "moved": [asdict(one) for one in movements(sides[0], sides[1], language)],
        }


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return what :meth:`Sides.compared` found, for people: the samples, then a line for each movement."""
    before, after = found["before"], found["after"]
    head = (
        f"{found['workload']}: {before['results']} results from {before['since']}, {after['results']} from "
        f"{after['since']} to {found['until']}; {before['compared']} and {after['compared']} compared"
    )
    said = [head] if found["moved"] else [head, "Nothing moved."]
    for one in found["moved"]:
        changes = ", ".join(
            f"{name} {_figure(former, name)} → {_figure(one['after'][name], name)}"
            for name, former in one["before"].items()
        )
        with_what = "" if one["follows"] is None else f" (with {one['follows']})"
        examples = f"; such as {', '.join(one['examples'])}" if one["examples"] else ""
        said.append(f"{one['effect']:4.0%}  {one['what']}{with_what}: {changes}{examples}")
    return said


def _figure(value: float, name: str) -> str:
    return f"{value:.3g}" if name in NUMBERS else f"{value:.0%}"


class _Sample:
    """A bounded number of records, those with the least hashes of their keys: any order gives the same."""

    def __init__(self, most: int) -> None:
        self.times_ms, self._most = array("q"), most
        self._kept: list[tuple[float, int, Record]] = []

    def offer(self, record: Record) -> None:
        self.times_ms.append(record.timestamp_ms)
        place = -uniform((record.key or b"").decode("utf-8", "replace"), _DRAW)
        push = heapq.heappush if len(self._kept) < self._most else heapq.heappushpop
        push(self._kept, (place, len(self.times_ms), record))

    def results(self, workload: str, start_ms: int) -> list[RoutedEvent]:
        found = (event_of(record, RoutedEvent) for _, _, record in self._kept if record.timestamp_ms >= start_ms)
        ours = (one for one in found if one is not None and one.workload == workload)
        return sorted(ours, key=lambda one: one.routed_at)


class _Column(NamedTuple):
    """A property of all queries: its category in each (-1: not known), and how much it moved."""

    name: str
    stage: int
    codes: Codes
    effect: float
    p: float
    before: dict[str, float]
    after: dict[str, float]


def movements(before: Sequence[RoutedEvent], after: Sequence[RoutedEvent], language: Language) -> list[Movement]:
    """Return what moved from one sample of a workload's results to another, the likely cause first.

    Parameters
    ----------
    before, after : sequence of RoutedEvent
        In any order; with fewer than ``LEAST_QUERIES`` on either side nothing is found.
    language : callable or None
        From a text to the code of its language; None leaves languages out.

    Notes
    -----
    Categories are compared by the chi-square test, numbers by that of Kolmogorov and Smirnov, words by Fisher's exact
    test of each, corrected for their number. These take queries for independent; but they come in bursts, so that each
    p-value is that of its statistic divided by the dispersion of what it compares (:func:`_dispersion`).
    """
    if min(len(before), len(after)) < LEAST_QUERIES:
        return []
    rows = [one for side in (before, after) for one in sorted(side, key=lambda one: (one.routed_at, one.query_id))]
    size = len(before)
    columns = [*(_column(*one, size) for one in _properties(rows, language)), _words(rows, size)]
    found = [one for one in columns if one is not None]
    adjusted = stats.false_discovery_control([_in_bursts(one, size) for one in found])
    moved = [
        one._replace(p=float(p))
        for one, p in zip(found, adjusted, strict=True)
        if p <= FALSE_SHARE and one.effect >= LEAST_EFFECT
    ]
    return _ordered(moved, rows, size)


def _properties(rows: Sequence[RoutedEvent], language: Language) -> Iterable[tuple[str, int, Sequence[Value]]]:
    """Yield each property's name, stage and values."""
    for key in _keys(one.metadata or {} for one in rows):
        yield f"metadata {key}", _METADATA, [_scalar((one.metadata or {}).get(key)) for one in rows]
    if language is not None:
        yield "language", _TEXTS, [language(one.text[:_READ]) for one in rows]
    yield "length of texts", _TEXTS, [float(len(one.text)) for one in rows]
    yield "capitals", _TEXTS, [_capitals(one.text) for one in rows]
    yield "prompt, fields and models", _MODELS, [one.basis for one in rows]
    smalls, larges = [one.small for one in rows], [one.large for one in rows]
    for role, runs in (("small", smalls), ("large", larges)):
        yield f"{role} model", _MODELS, [None if run is None else run.model for run in runs]
        yield f"{role} model's calls", _ANSWERS, [None if run is None else _outcome(run) for run in runs]
        yield f"{role} model's latency", _SIGNALS, [None if run is None else _latency(run) for run in runs]
    answers = [run.entities if run is not None and run.valid else None for run in smalls]
    for field in _keys(one or {} for one in answers):
        yield f"field {field}", _ANSWERS, [_given(one.get(field)) if one is not None else None for one in answers]
    margins = [None if run is None else run.field_margins for run in smalls]
    for field in _keys(one or {} for one in margins):
        yield f"margin of {field}", _SIGNALS, [(one or {}).get(field) for one in margins]
    yield "u", _SIGNALS, [one.decision.uncertainty for one in rows]
    yield "agreement", _SIGNALS, [_agreement(one) for one in rows]
    yield "reason of decisions", _SIGNALS, [one.decision.reason for one in rows]
    yield "escalation", _SIGNALS, ["escalated" if one.decision.escalated else "kept" for one in rows]


def _keys(mappings: Iterable[Iterable[str]]) -> list[str]:
    """Return the most frequent keys, in alphabetical order."""
    counted = Counter(key for one in mappings for key in one)
    return sorted(key for key, _ in sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:_MOST_FIELDS])


def _scalar(value: object) -> str:
    return "absent" if value is None else str(value) if isinstance(value, str | int | float) else "nested"


def _capitals(text: str) -> float | None:
    upper, lower = sum(map(str.isupper, text)), sum(map(str.islower, text))
    return upper / (upper + lower) if upper + lower else None


def _outcome(run: ModelRun) -> str:
    return "valid" if run.valid else "invalid" if run.error is None else "failed"


def _latency(run: ModelRun) -> str | None:
    """Return the power of two of milliseconds: load alone moves the rest all the time."""
    milliseconds = int(run.latency_s * 1_000)
    return f"from {2 ** (milliseconds.bit_length() - 1)} ms" if milliseconds else None


def _given(value: object) -> str:
    return "missing" if value in (None, "", [], {}) else "given"


def _agreement(routed: RoutedEvent) -> str | None:
    small, large = routed.small, routed.large
    if small is None or large is None or not (small.valid and large.valid):
        return None
    return "agree" if equal(small.entities or {}, large.entities or {}) else "differ"


def _column(name: str, stage: int, values: Sequence[Value], size: int) -> _Column | None:
    """Return a property's comparison; None where it is hardly known or the same everywhere."""
    known = np.array([value is not None for value in values])
    if min(known[:size].sum(), known[size:].sum()) < _LEAST_COUNT:
        return None
    if isinstance(next(value for value in values if value is not None), str):
        return _of_categories(name, stage, values, size)
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    former, latter = numbers[:size][known[:size]], numbers[size:][known[size:]]
    if np.ptp(numbers[known]) == 0.0:
        return None
    found = stats.ks_2samp(former, latter, method="asymp")
    edges = np.unique(np.quantile(numbers[known], np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
    codes = np.where(known, np.searchsorted(edges, numbers), -1)
    effect, p = float(found.statistic), float(found.pvalue)
    return _Column(name, stage, codes, effect, p, _quantiles(former), _quantiles(latter))


def _of_categories(name: str, stage: int, values: Sequence[Value], size: int) -> _Column | None:
    counted = Counter(value for value in values if value is not None)
    kept = sorted(str(value) for value, count in counted.items() if count >= _LEAST_COUNT)
    names = {value: number for number, value in enumerate(kept)}
    codes = np.array([-1 if value is None else names.get(str(value), len(kept)) for value in values])
    labels = [*kept, "other"]
    counts = np.stack([np.bincount(part[part >= 0], minlength=len(labels)) for part in (codes[:size], codes[size:])])
    counts = counts[:, counts.any(axis=0)]
    labels = [label for number, label in enumerate(labels) if (codes == number).any()]
    if len(labels) < 2:  # noqa: PLR2004 one category cannot move
        return None
    shares = counts / counts.sum(axis=1, keepdims=True)
    shown = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")[:_SHOWN]
    former, latter = ({labels[place]: float(side[place]) for place in shown} for side in shares)
    return _Column(name, stage, codes, _distance(shares), float(stats.chi2_contingency(counts).pvalue), former, latter)


def _in_bursts(column: _Column, size: int) -> float:
    """Return a column's p-value as if queries of a burst counted less; as the square of a normal number."""
    return float(stats.chi2.sf(stats.chi2.isf(column.p, 1) / _dispersion(column.codes, size), 1))


def _dispersion(codes: Codes, size: int) -> float:
    """Return by how much neighbouring blocks of queries differ more than by chance, in variance; 1 at least.

    Of neighbours, so that neither a slow change nor a sudden one within a sample counts for much.
    """
    seen = usual = 0.0
    for part in (codes[:size], codes[size:]):
        blocks = part[: len(part) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
        counts = (blocks[:, :, np.newaxis] == np.arange(codes.max() + 1)).sum(axis=1)
        totals = counts.sum(axis=1, keepdims=True)
        counts, totals = counts[totals[:, 0] > 0], totals[totals[:, 0] > 0]
        shares = counts.sum(axis=0) / totals.sum()
        seen += float((np.diff(counts / totals, axis=0) ** 2).sum())
        usual += float((shares * (1.0 - shares) * (1.0 / totals[1:] + 1.0 / totals[:-1])).sum())
    return max(1.0, seen / usual) if usual > 0.0 else 1.0


def _quantiles(numbers: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(NUMBERS, np.quantile(numbers, [0.05, 0.5, 0.95]).tolist(), strict=True))


def _distance(shares: NDArray[np.float64]) -> float:
    return float(np.abs(shares[1] - shares[0]).sum() / 2.0)


def _words(rows: Sequence[RoutedEvent], size: int) -> _Column | None:
    """Return how the words moved: more are new, or one is more or less frequent, whichever has the larger effect.

    New is what half of the former queries had not; the other half of these is what the latter are compared with.
    """
    present = [frozenset(_WORD.findall(one.text.casefold())) for one in rows]
    learnt = [number < size and number // _BLOCK % 2 == 0 for number in range(len(rows))]
    known = frozenset[str]().union(*(words for words, is_learnt in zip(present, learnt, strict=True) if is_learnt))
    news = [
        None if is_learnt or not words else len(words - known) / len(words)
        for words, is_learnt in zip(present, learnt, strict=True)
    ]
    new = _column("words", _VOCABULARY, news, size)
    counts = [Counter(word for words in part for word in words) for part in (present[:size], present[size:])]
    frequent = sorted(word for word, count in (counts[0] + counts[1]).items() if count >= _LEAST_COUNT)
    if not frequent:
        return new
    former, latter = (np.array([side[word] for word in frequent]) for side in counts)
    below = stats.hypergeom.cdf(former, len(rows), former + latter, size)
    above = stats.hypergeom.sf(former - 1, len(rows), former + latter, size)
    # The best of as many tests as there are words, and of the two ways in which words move.
    p = min(1.0, 4.0 * len(frequent) * float(np.minimum(below, above).min()))
    shares = np.stack([former / size, latter / (len(rows) - size)])
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")
    effect = float(abs(shares[1, order[0]] - shares[0, order[0]]))
    details = [{frequent[place]: float(side[place]) for place in order[:_SHOWN]} for side in shares]
    if new is not None and (new.effect >= effect or p > FALSE_SHARE):
        means = [float(np.mean([one for one in part if one is not None])) for part in (news[:size], news[size:])]
        shown = [{"(new)": mean, **part} for mean, part in zip(means, details, strict=True)]
        return new._replace(p=min(p, 1.0, 2.0 * new.p), before=shown[0], after=shown[1])
    codes = np.array([frequent[order[0]] in words for words in present]).astype(np.int64)
    return _Column("words", _VOCABULARY, codes, effect, p, details[0], details[1])


def _ordered(moved: list[_Column], rows: Sequence[RoutedEvent], size: int) -> list[Movement]:
    """Return movements by effect, those that follow another one behind the others."""
    found = sorted(moved, key=lambda one: (-round(one.effect, 2), one.stage))
    explained = {(of.name, by.name): _explained(of.codes, by.codes, size) for of, by in permutations(found, 2)}
    ordered = []
    for one in found:
        causes = [
            by
            for by in found
            if by is not one
            and by.stage <= one.stage
            and (share := explained[one.name, by.name]) >= _FOLLOWS
            and (by.stage < one.stage or share > explained[by.name, one.name] + _CLEARLY)
        ]
        cause = max(causes, key=lambda by: explained[one.name, by.name], default=None)
        follows = None if cause is None else cause.name
        examples = _examples(one.codes, rows, size)
        ordered.append(Movement(one.name, one.effect, one.p, one.before, one.after, follows, examples))
    return sorted(ordered, key=lambda one: one.follows is not None)


def _explained(of: Codes, by: Codes, size: int) -> float:
    """Return which share of a movement is gone among queries that are alike in another property.

    Former queries are weighted so that their categories of the other property have the shares of the latter.
    """
    known = (of >= 0) & (by >= 0)
    shape = (int(by.max()) + 1, int(of.max()) + 1)
    tables = np.zeros((2, *shape))
    for side, part in zip(tables, (slice(None, size), slice(size, None)), strict=True):
        np.add.at(side, (by[part][known[part]], of[part][known[part]]), 1.0)
    totals = tables.sum(axis=2, keepdims=True)
    if not tables.any(axis=(1, 2)).all():
        return 0.0
    whole = _distance(tables.sum(axis=1) / totals.sum(axis=1))
    both = (totals > 0.0).all(axis=0)[:, 0]
    if whole == 0.0 or not both.any():
        return 1.0
    rates = tables[:, both] / totals[:, both]
    weights = totals[1, both] / totals[1].sum()
    return 1.0 - _distance((weights * rates).sum(axis=1)) / whole


def _examples(codes: Codes, rows: Sequence[RoutedEvent], size: int) -> tuple[str, ...]:
    """Return queries of the category that has grown most."""
    shares = [np.bincount(part[part >= 0], minlength=codes.max() + 1) for part in (codes[:size], codes[size:])]
    grown = np.argmax(shares[1] / shares[1].sum() - shares[0] / shares[0].sum())
    return tuple(rows[size + place].query_id for place in np.flatnonzero(codes[size:] == grown)[:_EXAMPLES].tolist())
