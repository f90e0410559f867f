"""The entry of a process under test: the product's own command, after what the suite has ordered for this process.

Processes are forked from a server that has the services imported, since a start would otherwise take seconds of CPU. A
forked process runs ``stream-router run`` or ``recalibrator run`` to its end, and ends with the suite's.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.process
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import recalibrator.cli
import recalibrator.service
import stream_router.cascade.answerer
import stream_router.cli
from tests.faults.fault_points import Strike, install
from tests.faults.switched_off import MECHANISMS
from ucci_runtime.process import SystemClock

PRELOADED = ["tests.faults.child"]
_OURS = ("UCCI_", "KAFKA_BOOTSTRAP_SERVERS")
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2
_CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class ClockJump:
    """From so many seconds after its start, the process's wall clock is off by ``by_s``."""

    after_s: float
    by_s: float


@dataclass(frozen=True)
class Orders:
    service: Literal["router", "recalibrator"]
    config: Path
    log: Path
    #: After ``run --config …``.
    arguments: tuple[str, ...] = ()
    #: Overrides of settings.
    environment: Mapping[str, str] = field(default_factory=dict)

    strike: Strike | None = None
    #: Names of mechanisms to switch off.
    off: tuple[str, ...] = ()

    clock: ClockJump | None = None
    #: Give up root's right to write whatever a file's mode says.
    obeys_modes: bool = False


def serve(orders: Orders) -> None:
    """Run the process to its end; its exit code is the command's."""
    log = os.open(orders.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    end_with_parent()
    for name in [name for name in os.environ if name.startswith(_OURS)]:
        del os.environ[name]
    os.environ.update(orders.environment)
    for name in orders.off:
        MECHANISMS[name]()
    if orders.clock is not None:
        _jump(orders.clock)
    if orders.strike is not None:
        install(orders.strike)
    if orders.obeys_modes:
        _obey_modes()
    sys.argv = [orders.service, "run", "--config", str(orders.config), "--log-format", "json", *orders.arguments]
    command = stream_router.cli if orders.service == "router" else recalibrator.cli
    command.main()


def end_with_parent() -> None:
    """Have this forked process end as soon as the process that ordered it has."""

    def wait() -> None:
        parent = multiprocessing.process.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _jump(jump: ClockJump) -> None:
    began_s, true_now = time.monotonic(), SystemClock.now

    def now(clock: SystemClock) -> datetime:
        is_off = time.monotonic() - began_s >= jump.after_s
        return true_now(clock) + timedelta(seconds=jump.by_s if is_off else 0.0)

    clocks: Any = SystemClock
    clocks.now = now


def _obey_modes() -> None:
    """Drop the capabilities by which root ignores the modes of files; for this thread and those that it starts."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # Version and process, then twice the effective, the permitted and the inheritable ones.
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    kept = ~(1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH) & 0xFFFFFFFF
    sets[0], sets[1] = sets[0] & kept, sets[1] & kept
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


class Child:
    """One process under test, started again and again under the same orders or others."""

    _context = multiprocessing.get_context("forkserver")

    def __init__(self, name: str, orders: Orders) -> None:
        self.name = name
        self.orders = orders
        self._process: multiprocessing.context.ForkServerProcess | None = None

    def start(self, orders: Orders | None = None) -> None:
        self._context.set_forkserver_preload(PRELOADED)
        self._process = self._context.Process(target=serve, args=(orders or self.orders,), name=self.name)
        self._process.start()

    @property
    def process(self) -> multiprocessing.context.ForkServerProcess:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def has_ended(self) -> bool:
        return self._process is not None and not self._process.is_alive()

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self.is_alive:
            self.process.kill()
            self.process.join()

    def await_end(self, timeout_s: float) -> int | None:
        """Return its exit code, negative for a signal, or None where it still runs after this time."""
        self.process.join(timeout_s)
        return self.process.exitcode

    def tail(self, lines: int = 5) -> list[str]:
        return self.orders.log.read_text().splitlines()[-lines:] if self.orders.log.exists() else []
