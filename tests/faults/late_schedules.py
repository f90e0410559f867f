"""One transactional request that arrives late, and what else befalls its sender: the schedules, drawn or by name.

A connection breaks after a request of transaction A was sent. The client sends it again on another connection, is
answered, and begins transaction B. In the middle of B the first one arrives: same producer, same epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from threading import Event
from typing import Literal, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.faults.arena import Arena
from tests.support.kafka_proxy import Hold, KafkaProxy, Passage
from tests.support.kafka_wire import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Request,
)

Then = Literal["nothing", "kill", "kill after commit", "silence"]
STRUCK = "struck"
#: Longest wait for a request of a process that works.
REACH_S = 20.0

_ANSWER_S = 5.0
_GROUP_S = 10.0
_LOOK_S = 0.05
_SILENCE_S = 0.3
_ALL = 1_000


@dataclass(frozen=True, slots=True)
class Schedule:
    #: Kind of the late request.
    late: str
    #: Kind of B's request that is held back until the late one was answered.
    strikes: str
    #: Whether a late EndTxn commits; for the other kind, A is made to fail.
    commits: bool = True
    #: Strike before the answer to B's request, not before the request.
    answer: bool = False
    #: Kind of B's request that must be answered first, where B comes so far.
    behind: str = ""
    #: Break the connection of B's AddOffsets too, so that the records go before the offsets.
    inverted: bool = False
    #: What befalls the process: nothing; SIGKILL, so that the held request never arrives; SIGKILL once B is committed,
    #: before the next begins; or a held request so late that the process gives its producer up.
    then: Then = "nothing"

    @property
    def kind(self) -> str:
        late = f"late {'commit' if self.commits else 'abort'}" if self.late == END_TXN else f"late {self.late}"
        return f"{late}, then {self.then}"

    def __str__(self) -> str:
        order = " with the records first" if self.inverted else ""
        moment = "the answer to " if self.answer else ""
        return f"{self.kind} (before {moment}{self.strikes}{order})"


LATE_COMMIT_BEFORE_RECORDS = Schedule(END_TXN, PRODUCE, behind=TXN_OFFSET_COMMIT)
LATE_COMMIT_AND_KILL = Schedule(END_TXN, ADD_PARTITIONS, behind=TXN_OFFSET_COMMIT, then="kill")
LATE_COMMIT_AND_SILENCE = Schedule(END_TXN, ADD_PARTITIONS, behind=TXN_OFFSET_COMMIT, then="silence")
LATE_ABORT_AFTER_RECORDS = Schedule(END_TXN, ADD_OFFSETS, commits=False, behind=PRODUCE, inverted=True)
LATE_COMMIT_AFTER_RECORDS = Schedule(END_TXN, ADD_OFFSETS, behind=PRODUCE, inverted=True, then="kill")
LATE_ABORT_AFTER_OFFSETS = Schedule(
    END_TXN, ADD_PARTITIONS, commits=False, behind=TXN_OFFSET_COMMIT, then="kill after commit"
)
LATE_OFFSETS = Schedule(TXN_OFFSET_COMMIT, END_TXN, then="kill after commit")


def drawn(draw: Random) -> Schedule:
    """Return a schedule; most have a late EndTxn."""
    kinds = (END_TXN, ADD_OFFSETS, TXN_OFFSET_COMMIT, ADD_PARTITIONS, PRODUCE, INIT_PRODUCER_ID)
    (late,) = draw.choices(kinds, (20, 2, 4, 2, 2, 1))
    thens: tuple[Then, ...] = ("nothing", "kill", "kill after commit", "silence")
    (then,) = draw.choices(thens, (8, 8, 6, 1))
    return Schedule(
        late=late,
        strikes=draw.choice((ADD_OFFSETS, TXN_OFFSET_COMMIT, ADD_PARTITIONS, PRODUCE, END_TXN)),
        commits=draw.random() < 0.75,
        answer=draw.random() < 0.3,
        inverted=draw.random() < 0.35,
        then=then,
    )


@dataclass(frozen=True, slots=True)
class Played:
    #: How far it came: ``struck`` where the late request arrived as wanted, else what did not happen.
    reached: str
    #: What the broker answered to the late request.
    error: int | None = None


class _Traps(NamedTuple):
    """What is laid for a schedule.

    ``late`` holds A's request; ``is_over`` says that A has ended; ``begins`` that B may begin; ``is_behind`` that B has
    what must be answered first; and ``stop`` holds B's request.
    """

    late: Hold
    is_over: Event
    begins: Event
    is_behind: Event
    stop: Hold


class Player:
    """Plays schedules on one process of an arena whose processes find the broker behind a proxy."""

    def __init__(self, arena: Arena, proxy: KafkaProxy, name: str) -> None:
        self._arena = arena
        self._proxy = proxy
        self._name = name
        stage = name.partition("-")[0]
        self._id = f"{arena.prefix}-{stage}-"
        self._group = f"{arena.prefix}-{stage}"
        self._is_busy = stage != "fit"
        """Whether traffic alone has it write what counts; few of a fit's transactions publish a version."""

        self._admin = AdminClient({"bootstrap.servers": arena.broker.bootstrap, "log_level": 2})

    def play(self, schedule: Schedule) -> Played:
        """Let a schedule befall the process, which works on afterwards; blocks until all is over."""
        try:
            return self._played(schedule)
        finally:
            self._proxy.lift()
            child = self._arena.child(self._name)
            if not child.is_alive:
                child.start()

    def _played(self, schedule: Schedule) -> Played:
        traps = self._laid(schedule)
        self._begin()
        if schedule.late == INIT_PRODUCER_ID:
            self._arena.child(self._name).kill()
            self._arena.child(self._name).start()
        if schedule.late == END_TXN and not schedule.commits:
            self._have_it_abort()
        missing = self._missing(traps)
        if missing:
            return Played(missing)
        traps.late.release()
        if not traps.late.answered.wait(_ANSWER_S):
            return Played("the late request was not answered")
        self._end(schedule.then, traps.stop)
        return Played(STRUCK, traps.late.error)

    def _laid(self, schedule: Schedule) -> _Traps:
        """Lay everything before the first of it can come."""
        is_of_a = (lambda request: request.committed is schedule.commits) if schedule.late == END_TXN else None
        late = self._lay(schedule.late, breaks=True, where=is_of_a)
        is_over = self._when(END_TXN, after=late.taken, answered=True)
        begins = is_over if self._is_busy else Event()
        is_behind = self._when(schedule.behind, after=begins, answered=True) if schedule.behind else begins
        if schedule.inverted:
            self._lay(ADD_OFFSETS, breaks=True, after=begins).drop()
        most = _ALL if schedule.then == "silence" else 1
        stop = self._lay(schedule.strikes, after=begins, answer=schedule.answer, most=most)
        return _Traps(late, is_over, begins, is_behind, stop)

    def _missing(self, traps: _Traps) -> str:
        """Wait until B stands where it is to be struck; return what did not happen."""
        if not traps.late.taken.wait(REACH_S):
            return "nothing to hold back"
        if not traps.is_over.wait(REACH_S):
            return "the second attempt was not answered"
        if not self._is_busy:
            self._proxy.await_silence(self._id, _SILENCE_S, REACH_S)
            traps.begins.set()
        self._begin()
        if not traps.stop.taken.wait(REACH_S):
            return "B did not come so far"
        if not traps.is_behind.wait(_ANSWER_S):
            return "B came another way"
        self._proxy.await_answers(self._id, _ANSWER_S)
        return ""

    def _begin(self) -> None:
        if self._is_busy:
            self._arena.senders.go_on()
        else:
            self._arena.senders.refit()

    def _end(self, then: Then, stop: Hold) -> None:
        child = self._arena.child(self._name)
        if then == "kill":
            child.kill()
            stop.drop()
        elif then == "kill after commit":
            is_committed = self._when(END_TXN, answered=True)
            self._lay(ADD_OFFSETS, after=is_committed)
            stop.release()
            is_committed.wait(REACH_S)
            child.kill()
        elif then == "silence":
            self._when(INIT_PRODUCER_ID).wait(2 * REACH_S)
            stop.release()
        else:
            stop.release()

    def _have_it_abort(self) -> None:
        """Let the member's session end before its offsets arrive, so that the group refuses them."""
        offsets = self._lay(TXN_OFFSET_COMMIT)
        beats = Hold(HEARTBEAT, self._name, most=_ALL, after=offsets.taken)
        self._proxy.lay(beats)
        if offsets.taken.wait(REACH_S):
            # A transaction that follows with thousands of records would go another way than others do.
            self._arena.senders.stop_asking()
            deadline_s = time.monotonic() + _GROUP_S
            while self._has_members() and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
        beats.release()
        offsets.release()

    def _has_members(self) -> bool:
        with suppress(KafkaException):
            return bool(self._admin.describe_consumer_groups([self._group])[self._group].result(_GROUP_S).members)
        return True

    def _lay(self, kind: str, *, where: Callable[[Request], bool] | None = None, **more: object) -> Hold:
        return self._proxy.lay(Hold(kind, self._id, where, **more))  # type: ignore[arg-type]

    def _when(self, kind: str, *, after: Event | None = None, answered: bool = False) -> Event:
        def fits(passage: Passage) -> bool:
            is_mine = passage.request.kind == kind and self._id in passage.request.transactional_id
            is_so_far = passage.error == (0 if answered else None)
            return is_mine and is_so_far and (after is None or after.is_set())

        return self._proxy.when(fits)
