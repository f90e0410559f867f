"""Every step at which a process can be struck, by name: the one list of them.

The services know nothing of it. The suite's own entry (:mod:`tests.faults.child`) wraps the one function that a strike
names, in the process that is to be struck; a process without a strike runs the product's code as it is. A strike is
SIGKILL, or SIGSTOP where somebody else will continue the process.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from typing import Any, Literal

Stage = Literal["router", "join", "fit"]
Moment = Literal["before", "during", "after"]

#: How long after the beginning of a call a strike may fall that hits it under way.
_DURING_S = 0.004


@dataclass(frozen=True, slots=True)
class FaultPoint:
    name: str
    stages: tuple[Stage, ...]
    #: ``module:name`` of what is wrapped.
    target: str
    #: Before it, under way or after it.
    moment: Moment
    #: Where the target makes calls for others: of which function of the Kafka client.
    call: str = ""
    #: A strike falls on one of the first so many passes.
    most: int = 12
    #: Whether a process passes it only when it starts.
    at_start: bool = False
    #: Whether it is passed only where records are misplaced.
    misplaced: bool = False


@dataclass(frozen=True, slots=True)
class Strike:
    point: FaultPoint
    #: At which pass, from 1.
    nth: int
    #: Passes count from when this file exists.
    armed: Path

    signal: int = signal.SIGKILL
    #: Of the moment within a call.
    seed: int = 0


_ALL: tuple[Stage, ...] = ("router", "join", "fit")
_PRODUCER = "ucci_runtime.broker.kafka_producer:TransactionalProducer"
_CLIENT = "ucci_runtime.broker.kafka_watched_calls:WatchedCalls.call"
_READER = "ucci_runtime.broker.kafka_group_reader"
_INTAKE = "stream_router.intake_thread:IntakeThread"
_LEDGER = "stream_router.commit.shared_ledger"
_STORE = "recalibrator.join.sqlite_store:SqliteJoinStore"
_JOIN = "recalibrator.join.stage:JoinStage"
_JOINING = "recalibrator.join.joining:Joining"
_FIT = "recalibrator.fit.stage:FitStage"
_OUTPUTS = "stream_router.commit.outcome:OutputTopics"
_MODEL = "stream_router.model_client.http_client:ModelClient"
_HOME_INPUTS = "recalibrator.join.home_inputs:HomeInputs"
_ONCE: dict[str, Any] = {"most": 1, "at_start": True}
_RECORDS = "recalibrator.fit.publish.version_topics:VersionRecords"
_SNAPSHOTS = "recalibrator.fit.file_snapshots:SnapshotFiles"


def _around(name: str, stages: tuple[Stage, ...], target: str, *moments: Moment, **more: Any) -> tuple[FaultPoint, ...]:
    return tuple(FaultPoint(f"{name}, {moment}", stages, target, moment, **more) for moment in moments)


FAULT_POINTS: tuple[FaultPoint, ...] = (
    # Every stage: the transaction, and what comes before the first one.
    *_around("fence the former process", _ALL, _CLIENT, "before", "during", "after", call="init_transactions", **_ONCE),
    *_around("ask the group's offsets", _ALL, f"{_READER}:ask_group_offsets", "before", "after", **_ONCE),
    *_around("begin transaction", _ALL, _CLIENT, "before", "after", call="begin_transaction"),
    *_around("produce", _ALL, f"{_PRODUCER}.produce", "before", "after", most=40),
    *_around("offsets to transaction", _ALL, _CLIENT, "before", "during", "after", call="send_offsets_to_transaction"),
    *_around("commit transaction", _ALL, _CLIENT, "before", "during", "after", call="commit_transaction"),
    # Router.
    *_around("router assigned", ("router",), f"{_INTAKE}.assigned", "before", "after", **_ONCE),
    *_around("take queries", ("router",), f"{_INTAKE}._hand_on", "before", "after"),
    *_around("call a model", ("router",), f"{_MODEL}.call", "before", most=60),
    *_around("make the result", ("router",), f"{_OUTPUTS}.result", "before", "after", most=40),
    *_around("finish a query", ("router",), f"{_LEDGER}:SharedLedger.finished", "after", most=40),
    *_around("take a batch", ("router",), f"{_LEDGER}:SharedLedger.take", "before", "after"),
    *_around("note the commit", ("router",), f"{_LEDGER}:SharedLedger.ended", "before", "after"),
    # Join.
    *_around("open the store", ("join",), f"{_STORE}.__init__", "before", "after", **_ONCE),
    *_around("join assigned", ("join",), f"{_JOIN}.assigned", "before", "after", **_ONCE),
    *_around("join goes live", ("join",), f"{_HOME_INPUTS}.go_live", "before", "after", **_ONCE),
    *_around("load rows", ("join",), f"{_STORE}.load", "before", "after"),
    *_around("join one event", ("join",), f"{_JOIN}._join", "before", "after", most=40),
    *_around("forward a record", ("join",), f"{_JOINING}.forward", "before", "after", most=40, misplaced=True),
    *_around("store rows", ("join",), f"{_STORE}.commit", "before", "during", "after"),
    *_around("store rows, rows written", ("join",), f"{_STORE}._note_requests", "before", "after"),
    # Fit.
    *_around("load snapshot", ("fit",), f"{_SNAPSHOTS}.load", "before", "after", **_ONCE),
    *_around("fit assigned", ("fit",), f"{_FIT}.assigned", "before", "after", **_ONCE),
    *_around("fit goes live", ("fit",), f"{_FIT}._begin", "before", "after", **_ONCE),
    *_around("fold one observation", ("fit",), f"{_FIT}._observe", "before", "after", most=40),
    *_around("publish a version", ("fit",), f"{_RECORDS}.of_version", "before", "after", most=1),
    *_around("save snapshot", ("fit",), f"{_SNAPSHOTS}.save", "before", "during", "after", most=2),
    *_around("replace snapshot", ("fit",), "pathlib:Path.replace", "before", "after", most=2),
)  # fmt: skip


def points_of(stage: Stage, *, misplaced: bool = False) -> tuple[FaultPoint, ...]:
    """Return the points that a stage passes, where records are misplaced or where none is."""
    return tuple(point for point in FAULT_POINTS if stage in point.stages and (misplaced or not point.misplaced))


def point_named(name: str) -> FaultPoint:
    return next(point for point in FAULT_POINTS if point.name == name)


def install(strike: Strike) -> None:
    """Have this process struck at its point; wraps one function, for the rest of the process's life."""
    owner, name = resolved(strike.point.target)
    wrapped = _struck(getattr(owner, name), _Passes(strike))
    setattr(owner, name, wrapped)


def resolved(target: str) -> tuple[Any, str]:
    """Return what holds the target, and the name that it has there."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, name


def target_of(point: FaultPoint) -> Callable[..., Any]:
    """Return the function that a point stands at, unwrapped."""
    owner, name = resolved(point.target)
    found: Callable[..., Any] = unwrap(getattr(owner, name))
    return found


class _Passes:
    """Counts passes of a point once it is armed, and strikes at the wanted one."""

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._draw = random.Random(strike.seed)
        self._lock = threading.Lock()
        self._count = 0

    def pass_by(self, moment: Moment, args: tuple[Any, ...]) -> None:
        """Note a pass; does not return from the one that is struck, unless the strike comes a little later."""
        point = self._strike.point
        if moment != ("before" if point.moment == "during" else point.moment):
            return
        # WatchedCalls.call(self, deadline_s, function, *args)
        if point.call and getattr(args[2], "__name__", "") != point.call:
            return
        with self._lock:
            if not self._strike.armed.exists():
                return
            self._count += 1
            if self._count != self._strike.nth:
                return
        if point.moment == "during":
            threading.Thread(target=self._hit, args=(self._draw.uniform(0.0, _DURING_S),), daemon=True).start()
        else:
            self._hit(0.0)

    def _hit(self, wait_s: float) -> None:
        time.sleep(wait_s)
        os.kill(os.getpid(), self._strike.signal)
        # A signal to the own process is delivered before kill returns, at the latest to another of its threads.
        time.sleep(0.05)


def _struck(function: Callable[..., Any], passes: _Passes) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        passes.pass_by("before", args)
        found = function(*args, **kwargs)
        passes.pass_by("after", args)
        return found

    return wrapper
