"""A process under test: ``stream-router run`` or ``recalibrator run``, after what the suite has ordered for it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.fault_points import Strike, install
from tests.faults.switched_off import MECHANISMS
from tests.support.forked_process import ForkedProcess, Service
from ucci_runtime.process import SystemClock

_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2
_CAPABILITY_VERSION_3 = 0x20080522
_KILLED_S = 60.0


@dataclass(frozen=True)
class ClockJump:
    """From so many seconds after its start, the process's wall clock is off by ``by_s``."""

    after_s: float
    by_s: float


@dataclass(frozen=True)
class Orders:
    service: Service
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


def _carry_out(orders: Orders) -> None:
    """Do what is ordered, in the process and before its command."""
    for name in orders.off:
        MECHANISMS[name]()
    if orders.clock is not None:
        _jump(orders.clock)
    if orders.strike is not None:
        install(orders.strike)
    if orders.obeys_modes:
        _obey_modes()


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

    def __init__(self, name: str, orders: Orders) -> None:
        self.name = name
        self.orders = orders
        self._process: ForkedProcess | None = None

    def start(self, orders: Orders | None = None) -> None:
        ours = orders or self.orders
        arguments = ("run", "--config", str(ours.config), "--log-format", "json", *ours.arguments)
        self._process = ForkedProcess(ours.service, arguments, ours.environment, ours.log, partial(_carry_out, ours))

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self.is_alive:
            self.signal(signal.SIGKILL)
            self.await_end(_KILLED_S)

    def await_end(self, timeout_s: float) -> int | None:
        """Return its exit code, negative for a signal, or None where it still runs after this time."""
        assert self._process is not None, f"{self.name} was not started"
        with suppress(TimeoutError):
            return self._process.wait(timeout_s)
        return None

    def tail(self, lines: int = 5) -> list[str]:
        return self.orders.log.read_text().splitlines()[-lines:] if self.orders.log.exists() else []
