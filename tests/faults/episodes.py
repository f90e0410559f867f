"""What befell the arena, one fault at a time, and how soon it was over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.arena import Arena, NotRecovered
from tests.faults.child import Child


@dataclass(frozen=True, slots=True)
class Episode:
    #: A row of the report.
    kind: str
    #: Which process, at which step, and the like.
    what: str
    #: How long the fault itself lasted; 0 for a kill.
    fault_s: float
    #: From its end to the next commit; None where there was none in time.
    recovery_s: float | None


#: Lets so many faults of one kind befall an arena; yields each once it is over.
Kind = Callable[[Arena, Random, int], Iterator[Episode]]


def recovered(
    arena: Arena, kind: str, what: str, name: str, *, fault_s: float = 0.0, since_s: float | None = None
) -> Episode:
    """Wait until a process commits again, from ``since_s`` on or from now: the end of its fault."""
    since_s = time.monotonic() if since_s is None else since_s
    try:
        return Episode(kind, what, fault_s, arena.recovery_s(name, since_s))
    except NotRecovered as error:
        return Episode(kind, f"{what}: {error}", fault_s, None)


def await_stopped(child: Child, timeout_s: float) -> bool:
    """Wait until a process is stopped by SIGSTOP; False where it is not by then."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if _process_state(child.pid) == "T":
            return True
        time.sleep(0.01)
    return False


def thaw(child: Child) -> None:
    child.signal(signal.SIGCONT)


def _process_state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return text.rpartition(")")[2].split()[0]
