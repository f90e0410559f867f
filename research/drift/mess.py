"""What goes wrong beside drift: servers that fail, labels that lie or are corrected, clocks and traffic that jump.

Everything here is a declaration; :mod:`~research.drift.servers` and :mod:`~research.drift.desk` act on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

BLOCK = 2_000
"""Queries over which quality and the oracle are taken; a spell begins and ends with a block."""

LABELERS = ("l1", "l2", "l3", "l4", "l5")
EXPERT = "expert"
"""Whom the workload trusts: answers all audits, truly in the end."""

CHUNK = 250

Lie = Literal["small_wrong", "small_right", "one_field", "careless"]

EXPLORED, LABELLED_KEPT, LABELLED_ESCALATED = 0.03, 0.05, 0.10


class Sampling(NamedTuple):
    """Shares of queries for which a label is asked, as settings have them."""

    kept: float = LABELLED_KEPT
    escalated: float = LABELLED_ESCALATED

    @property
    def explored(self) -> float:
        """The share of kept queries that the large model answers too; settings want each of them labelled."""
        return min(EXPLORED, self.kept)


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of whole blocks.

    ``begin``: share of the stream before it. ``most``: of the stream, the longest it lasts.
    """

    begin: float
    queries: int
    most: float = 0.5

    def span(self, queries: int) -> tuple[int, int]:
        """Return its first query, and the first one after it, in a stream of so many.

        Examples
        --------
        >>> Spell(0.4, 6_000).span(200_000), Spell(0.4, 60_000).span(20_000)
        ((80000, 86000), (8000, 18000))
        """
        blocks = queries // BLOCK
        first = min(round(self.begin * blocks), blocks - 1)
        length = max(1, min(round(self.queries / BLOCK), int(self.most * blocks)))
        return first * BLOCK, min(first + length, blocks) * BLOCK


@dataclass(frozen=True, slots=True)
class LargeTrouble:
    """A large server that answers only so many calls.

    ``capacity``: calls that it answers, for each query of the stream that comes meanwhile; 0: it is absent. ``waste``:
    beyond the capacity a call succeeds with probability (capacity / load) to this power. At 1 the server stays as busy
    as it can; above 1 it answers the fewer, the more it is called. ``retries``: times that a failed call is tried
    again, each adding to the load.
    """

    spell: Spell
    capacity: float = 0.0
    waste: float = 1.0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Relabelling:
    """One key that labels anew what others have labelled.

    ``begin``: share of the stream before it; labels of the 20,000 queries before then are reached too. ``share``: of
    labels, over which it speaks last.
    """

    begin: float
    share: float
    says: Lie


@dataclass(frozen=True, slots=True)
class Habits:
    """How five named labelers work; all zero: truly, once, in time.

    ``wrong``: share of labels that are wrong at first, careless and flattering ones alike often; the same labeler
    corrects them later. ``later``: by how much later than usual; a label is usually corrected 1,000 queries later.
    ``trusted_err``: whether answers to audits are wrong at first as often as other labels, and corrected as late.
    ``withdrawn``: share of labels that are withdrawn later. ``shared``: share of queries that one or two further people
    label too. ``noise``: share of careless labels, never corrected. ``resent``: share of labels sent twice: as often
    under a new id as delivered twice. ``lies``: what the last labeler says in its own labels. ``liars``: how many of
    the labelers, the last ones, say so. ``lie_share``: share of their labels in which they do. ``lie_where``: they lie
    only where the chance that the small answer is wrong lies between these. ``doubted``: A label is careless with this
    times the chance that the small answer is wrong. ``skipped``: share of labels that never come where the small answer
    is wrong. ``kept_skipped``: whether only escalated queries are labelled, whatever is asked. ``begin``: share of the
    stream before those who lie, doubt, skip, withdraw or slip begin to; before, all are honest. ``relabels``: what the
    last labeler makes of those of others. ``flood``: while every query is labelled, asked for or not. ``backlog``:
    whose labels all arrive when it ends.
    """

    wrong: float = 0.0
    later: float = 1.0
    trusted_err: bool = False
    withdrawn: float = 0.0
    shared: float = 0.0
    noise: float = 0.0
    resent: float = 0.0
    lies: Lie | None = None
    liars: int = 1
    lie_share: float = 1.0
    lie_where: tuple[float, float] = (0.0, 1.0)
    doubted: float = 0.0
    skipped: float = 0.0
    kept_skipped: bool = False
    begin: float = 0.0
    relabels: Relabelling | None = None
    flood: Spell | None = None
    backlog: Spell | None = None


@dataclass(frozen=True, slots=True)
class ClockAhead:
    """One of three routers, whose clock is ahead: by so many seconds as reach the core, on every third query."""

    spell: Spell
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Traffic that stops for a time of events, once at each share of the stream."""

    at: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Mess:
    """Everything that goes wrong in a stream; by default nothing, with labelers that have names.

    ``small_outage``: while the small server is absent: every query escalates, u is unknown. ``chunk``: queries to a
    summary of traffic. ``expert``: whether the workload names a trusted labeler; if not, ordinary labelers answer
    audits. ``named_start``: whether the labelled set of the start names its five labelers. ``cold``: whether there is
    no labelled set to start from.
    """

    large: LargeTrouble | None = None
    small_outage: Spell | None = None
    habits: Habits = field(default_factory=Habits)
    clock: ClockAhead | None = None
    pause: Pause | None = None
    chunk: int = CHUNK
    sampling: Sampling = field(default_factory=Sampling)
    expert: bool = True
    named_start: bool = False
    cold: bool = False

    @property
    def attacked(self) -> bool:
        """Whether a labeler lies."""
        return self.habits.lies is not None or self.habits.relabels is not None

    def calm(self) -> Mess:
        """Return the same with healthy servers, and with an honest labeler in the place of the one who lies."""
        return replace(self, large=None, small_outage=None, habits=replace(self.habits, lies=None, relabels=None))

    @property
    def trouble(self) -> Spell | None:
        """While a server is in trouble."""
        return self.large.spell if self.large is not None else self.small_outage
