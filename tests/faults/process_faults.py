"""Processes are killed at every step, stopped past their session, doubled under one id, added and removed."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.faults.arena import SESSION_S, Arena, NotRecovered, stage_of
from tests.faults.child import Child
from tests.faults.episodes import Episode, Kind, await_stopped, recovered, thaw
from tests.faults.fault_points import FaultPoint, Stage, Strike, point_named, points_of

#: A step that is not passed within this time is not reached; the process is then killed where it stands.
STRIKE_S = 15.0

PAST_SESSION_S = SESSION_S + 2.0
_EXIT_S = 30.0


def kills(stage: Stage) -> Kind:
    """Return the kind that kills a stage's processes, each time at another step."""

    def kill(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
        points = points_of(stage)
        # Every point once, in drawn order, before any comes again.
        shuffled = itertools.chain.from_iterable(draw.sample(points, len(points)) for _ in itertools.count())
        names = itertools.cycle(("router-0", "router-1") if stage == "router" else (stage,))
        for number, point, name in zip(range(times), shuffled, names, strict=False):
            yield killed_at(arena, name, point, number, draw)

    return kill


def killed_at(arena: Arena, name: str, point: FaultPoint, number: int, draw: Random) -> Episode:
    """Start a process that will be struck, see it die, start it again and wait for its next commit."""
    child, armed = arena.child(name), arena.directory / f"{name}-{number}.armed"
    strike = Strike(point, draw.randint(1, point.most), armed, seed=draw.getrandbits(32))
    child.kill()
    if point.at_start:
        armed.touch()
    child.start(replace(child.orders, strike=strike))
    if not point.at_start:
        # It is struck in the middle of its work, not on its way there.
        _await_any_commit(arena, name)
        armed.touch()
    code = child.await_end(STRIKE_S)
    what = f"{name}: {point.name}"
    if code is None:
        what += " (not reached)"
        child.kill()
    elif code != -signal.SIGKILL:
        what += f" (ended with {code}: {child.tail(1)})"
    child.start()
    return recovered(arena, f"kill {stage_of(name)}", what, name)


def killed_anywhere(arena: Arena, name: str) -> Episode:
    child = arena.child(name)
    child.kill()
    child.start()
    return recovered(arena, f"kill {stage_of(name)}", f"{name}: anywhere", name)


def _await_any_commit(arena: Arena, name: str) -> None:
    # Whatever holds it up shows in the recovery that is measured after the kill.
    with suppress(NotRecovered):
        arena.recovery_s(name, time.monotonic(), STRIKE_S)


#: A process that is stopped here has something to commit when it goes on.
STOPPED_AT = ("begin transaction, before", "offsets to transaction, before", "commit transaction, before")


def stops(stage: Stage) -> Kind:
    """Return the kind that stops a process past its session, while another takes its partitions over."""

    def stop(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
        for number in range(times):
            name = draw.choice(("router-0", "router-1")) if stage == "router" else stage
            yield _stopped(arena, name, point_named(STOPPED_AT[number % len(STOPPED_AT)]), number)

    return stop


def _stopped(arena: Arena, name: str, point: FaultPoint, number: int) -> Episode:
    child, armed = arena.child(name), arena.directory / f"{name}-stop-{number}.armed"
    # Where no other runs, a recalibrator with a state directory of its own takes over.
    stands_in = stage_of(name) != "router"
    other = arena.another(stage_of(name), f"{name}-stand-in-{number}") if stands_in else None
    child.kill()
    child.start(replace(child.orders, strike=Strike(point, 1, armed, signal.SIGSTOP)))
    _await_any_commit(arena, name)
    armed.touch()
    is_stopped = await_stopped(child, STRIKE_S)
    if not is_stopped:
        child.signal(signal.SIGSTOP)
    began_s = time.monotonic()
    if other is not None:
        other.start()
    time.sleep(PAST_SESSION_S)
    try:
        # Whoever took over has committed what the stopped process is about to commit too.
        arena.recovery_s("router-1" if name == "router-0" else "router-0" if other is None else stage_of(name), began_s)
    except NotRecovered as error:
        thaw(child)
        return Episode(f"stop {stage_of(name)}", f"{name}: nobody took over: {error}", 0.0, None)
    stopped_s = time.monotonic() - began_s
    thaw(child)
    found = _after_a_thaw(arena, child, name, other, f"{name}: {point.name}", stopped_s)
    armed.unlink()
    return found


def _after_a_thaw(arena: Arena, child: Child, name: str, other: Child | None, what: str, stopped_s: float) -> Episode:
    """See the one that was stopped go on, or end and start again, beside the one that took over."""
    kind = f"stop {stage_of(name)}"
    if other is None:
        return recovered(arena, kind, what, name, fault_s=stopped_s)
    found = recovered(arena, kind, what, stage_of(name), fault_s=stopped_s)
    other.signal(signal.SIGTERM)
    other.await_end(_EXIT_S)
    other.kill()
    if not child.is_alive:
        child.start()
    try:
        arena.recovery_s(name, time.monotonic())
    except NotRecovered as error:
        return Episode(kind, f"{what}: alone again: {error}", stopped_s, None)
    return found


def twins(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
    """Start a second process under an id that is in use: the older one ends with one line, the newer goes on."""
    for number in range(times):
        name = draw.choice(("router-0", "join", "fit"))
        older = arena.child(name)
        newer = Child(name, replace(older.orders, log=arena.directory / f"{name}-twin-{number}.log"))
        if name != "router-0":
            copy = arena.directory / f"state-twin-{number}"
            copy.mkdir(mode=0o700)
            (copy / "instance-id").write_text(_instance_id(arena, older))
            settings = {"UCCI_RECALIBRATOR__STATE_DIR": str(copy)}
            newer.orders = replace(newer.orders, environment=settings)
        newer.start()
        code = older.await_end(_EXIT_S)
        older.kill()
        arena.children[name] = newer
        said = "" if code == 1 else f" (the older one ended with {code}: {older.tail(1)})"
        yield recovered(arena, "two under one id", f"{name}{said}", name)


def _instance_id(arena: Arena, child: Child) -> str:
    state = child.orders.environment.get("UCCI_RECALIBRATOR__STATE_DIR", str(arena.state))
    return (Path(state) / "instance-id").read_text()


def rebalances(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
    """Add and remove routers, some with SIGTERM, some with SIGKILL, each before the last change is over."""
    extra = [arena.child(f"router-{number}") for number in range(2, 5)]
    for _ in range(times):
        began_s = time.monotonic()
        for _ in range(6):
            router = draw.choice(extra)
            if not router.is_alive:
                router.start()
            elif draw.random() < 0.5:
                router.signal(signal.SIGTERM)
            else:
                router.kill()
            time.sleep(draw.uniform(0.1, 1.5))
        for router in extra:
            router.kill()
        fault_s = time.monotonic() - began_s
        yield recovered(arena, "rebalance storm", "six changes of up to three routers", "router-0", fault_s=fault_s)
