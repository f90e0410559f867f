"""What the recalibrator keeps on disk is deleted, cut short or refused, and a router's clock jumps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.faults.archive import wall_ms
from tests.faults.arena import Arena
from tests.faults.child import ClockJump
from tests.faults.episodes import Episode, Kind, recovered
from tests.faults.fault_points import Stage

#: A process that may not write ends within this time, or goes on.
_EXIT_S = 6.0

_RUN_S = 3.0
JUMP_S = 3_600.0
_JUMPS_AFTER_S = 2.0


def state(stage: Stage, kind: str, harm: Callable[[Path], None]) -> Kind:
    """Return the kind that harms a stage's files while its process is dead."""

    def fault(arena: Arena, _draw: Random, times: int) -> Iterator[Episode]:
        for _ in range(times):
            child = arena.child(stage)
            child.kill()
            for path in _files(arena, stage):
                harm(path)
            since_s = time.monotonic()
            child.start()
            code = child.await_end(_RUN_S)
            if code is not None:
                # It has set the file aside and says so; the next start rebuilds it.
                child.start()
            what = stage if code is None else f"{stage}, after an exit with {code}"
            yield recovered(arena, kind, what, stage, since_s=since_s)

    return fault


def read_only(stage: Stage, kind: str) -> Kind:
    """Return the kind that starts a process which may read its files and not write them."""

    def fault(arena: Arena, _draw: Random, times: int) -> Iterator[Episode]:
        for _ in range(times):
            child = arena.child(stage)
            child.kill()
            directories = {path.parent for path in _files(arena, stage)}
            _set_modes(directories, 0o500, 0o400)
            began_s, began_ms = time.monotonic(), wall_ms()
            child.start(replace(child.orders, obeys_modes=True))
            code = child.await_end(_EXIT_S)
            what = f"{stage} goes on" if code is None else f"{stage} ends with {code}"
            if code is None and not arena.committed_since(stage, began_ms):
                what += " without a commit"
            _set_modes(directories, 0o700, 0o600)
            child.kill()
            fault_s = time.monotonic() - began_s
            child.start()
            said = "" if code in {None, 1} else f": {child.tail(1)}"
            yield recovered(arena, kind, what + said, stage, fault_s=fault_s)

    return fault


def delete(path: Path) -> None:
    path.unlink(missing_ok=True)


def truncate(path: Path) -> None:
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)


def clock_jumps(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
    """Have a router's wall clock jump by an hour, ahead or back, while it runs."""
    for number in range(times):
        by_s = JUMP_S if number % 2 == 0 else -JUMP_S
        child = arena.child(draw.choice(("router-0", "router-1")))
        child.kill()
        child.start(replace(child.orders, clock=ClockJump(_JUMPS_AFTER_S, by_s)))
        time.sleep(_JUMPS_AFTER_S)
        yield recovered(arena, "clock jump", f"{child.name} by {by_s:+g} s", child.name)
        time.sleep(_RUN_S)
        child.kill()
        child.start()


def _files(arena: Arena, stage: Stage) -> list[Path]:
    pattern = "*/*/join.sqlite3*" if stage == "join" else "*/*/fit-*.snapshot"
    return [path for path in sorted(arena.state.glob(pattern)) if ".damaged-" not in path.name]


def _set_modes(directories: set[Path], directory_mode: int, file_mode: int) -> None:
    for directory in directories:
        for path in directory.iterdir():
            path.chmod(file_mode)
        directory.chmod(directory_mode)
