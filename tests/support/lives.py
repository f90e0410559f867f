"""A life: services over the broker in memory, driven step by step, with crashes and rebalances where a seed draws them.

Nothing runs in a thread and nothing waits: whatever a life finds, its seed finds again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from tests.support.clocks import ManualClock
from tests.support.memory_broker.broker import (
    TRANSACTION_TIMEOUT_S,
    DrawnFaults,
    MemoryBroker,
    MemoryCluster,
    ProcessCrashed,
    create_topics,
)
from tests.support.memory_broker.groups import SESSION_S
from ucci_runtime.broker.errors import BrokerError, Fenced

MAX_STEPS = 4_000
MOST_PROCESSES = 3
DISTURBANCES = ("kill", "stop", "twin", "rebalance", "evict", "silence", *("second",) * 2, *("freeze",) * 3)


class Process(Protocol):
    """A service's loops, as one process holds them."""

    instance_id: str

    def step(self) -> None: ...

    def stop(self) -> None:
        """Leave in good order, as on SIGTERM."""

    def kill(self) -> None:
        """Let go of what a dead process holds no longer: tasks, files, locks."""


class Life:
    """A cluster, its processes, and what befalls them; ``groups`` are the consumer groups to disturb."""

    def __init__(self, seed: int, groups: tuple[str, ...], *, partitions: int = 3) -> None:
        self.draw = random.Random(seed)
        self.clock = ManualClock()
        self.cluster = MemoryCluster(self.clock, self.clock.advance)
        create_topics(self.cluster, partitions)
        self.faults = DrawnFaults(self.draw.random, 0.2, 6)
        self.groups = groups
        self.processes: list[Process] = []
        self.events: list[str] = []
        self._frozen: dict[Process, int] = {}
        self._steps = 0

    def broker(self, instance_id: str) -> MemoryBroker:
        return MemoryBroker(self.cluster, instance_id, count_nothing, self.faults)

    def step(self) -> None:
        """Let one process go on, or die of it."""
        self._steps += 1
        self.clock.advance(self.draw.choice((0.0, 0.01, 0.05, 0.3)))
        awake = [process for process in self.processes if self._frozen.get(process, 0) <= self._steps]
        if not awake:
            return
        process = self.draw.choice(awake)
        try:
            process.step()
        except (ProcessCrashed, Fenced) as error:
            self.end(process, type(error).__name__)

    def end(self, process: Process, why: str) -> None:
        self.events.append(f"{process.instance_id} {why}")
        self.processes.remove(process)
        process.kill()

    def start(self, make: Callable[[str], Process], instance_id: str) -> None:
        self.events.append(f"{instance_id} started")
        try:
            self.processes.append(make(instance_id))
        except ProcessCrashed:
            self.events.append(f"{instance_id} ProcessCrashed")

    def disturb(self, make: Callable[[str], Process]) -> None:
        """Let one drawn thing happen to a process or a group."""
        process = self.draw.choice(self.processes) if self.processes else None
        kind = self.draw.choice(DISTURBANCES)
        self.events.append(kind)
        if kind == "second" and len(self.processes) < MOST_PROCESSES:
            self.start(make, self.draw.choice(("a", "b")))
        elif kind == "rebalance":
            self.cluster.group(self.draw.choice(self.groups)).rebalance()
        elif kind == "silence":
            self.clock.advance(SESSION_S + 1.0)
        elif process is not None:
            self._befall(process, kind, make)

    def _befall(self, process: Process, kind: str, make: Callable[[str], Process]) -> None:
        if kind == "kill":
            self.end(process, "killed")
        elif kind == "stop":
            try:
                process.stop()
            except (ProcessCrashed, BrokerError) as error:
                self.events.append(type(error).__name__)
            self.end(process, "stopped")
        elif kind == "twin":
            self.start(make, process.instance_id)
        elif kind == "freeze" and len(self.processes) == 1:
            # Nobody would take over: see to it that there is somebody next time.
            self.start(make, "b" if process.instance_id == "a" else "a")
        else:
            for group in self.groups:
                self.cluster.group(group).evict(process.instance_id)
            if kind == "freeze":
                # As by SIGSTOP, for longer than a session: others have its partitions when it goes on where it was.
                self._frozen[process] = self._steps + self.draw.randint(5, 60)

    def settle(self, make: Callable[[str], Process], is_settled: Callable[[], bool]) -> None:
        """Let nothing fail any more, and go on until everything is done."""
        self.faults.left = 0
        self._frozen.clear()
        for _ in range(MAX_STEPS):
            if not self.processes:
                self.start(make, self.draw.choice(("a", "b")))
            self.step()
            if is_settled():
                # A dead process may have left a transaction open, which hides what came after it until it times out.
                self.clock.advance(TRANSACTION_TIMEOUT_S)
                return
        raise AssertionError(f"did not settle: {self.events[-30:]}")

    def finish(
        self,
        make: Callable[[str], Process],
        is_settled: Callable[[], bool],
        check: Callable[[MemoryCluster], list[str]],
    ) -> list[str]:
        """Settle and end all processes; return what is wrong with the topics then."""
        try:
            self.settle(make, is_settled)
        except AssertionError as error:
            return [str(error), *check(self.cluster)]
        finally:
            for process in list(self.processes):
                self.end(process, "over")
        return check(self.cluster)


def count_nothing(name: str, amount: float = 1.0, **labels: str) -> None:
    """Count nothing."""
