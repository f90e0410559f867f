"""Child processes of the local stack: started with a log file each, awaited until ready, stopped in reverse order.

A child never outlives its parent: the kernel ends it when the parent dies, however that happens. Each child leads a
process group of its own, which is ended with it: a vLLM server has an engine in a further process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Self

from schemas.errors import UcciError

_PR_SET_PDEATHSIG = 1
_LOG_TAIL_LINES = 12
_HTTP_OK = 200
_POLL_S = 0.05
_LOOK_S = 1.0


class StackFailed(UcciError):
    """A part of the stack did not start or died; the message ends with what it last said."""


_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextmanager
def _signals_held() -> Iterator[set[int]]:
    """Hold the signals that end this process back until the block is left; gives the mask of before."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield {int(number) for number in former}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _begin_child(mask: set[int]) -> None:
    """Run in the child before exec: take signals again, and ask the kernel to kill it with its parent (Linux only)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Leave the block by :class:`SystemExit` on SIGTERM, SIGHUP or SIGINT; a second signal is ignored meanwhile."""

    def leave(number: int, _frame: FrameType | None) -> None:
        for each in former:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    former = {number: signal.signal(number, leave) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def await_signal(
    require_alive: Callable[[], None],
    announce: Callable[[], None],
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Block until one of these signals comes, looking each second whether all is alive; announce once they may come."""
    stop = Event()
    for number in signals:
        signal.signal(number, lambda *_: stop.set())
    announce()
    while not stop.wait(_LOOK_S):
        require_alive()


class RunsInBlock(ABC):
    """What is started when a ``with`` block is entered, and stopped when it is left."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and block until it answers."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except (SystemExit, KeyboardInterrupt):
            # A start that fails leaves nothing behind; one that a signal interrupts may.
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ChildProcess:
    """One child process; its output goes to its log. ``environ``: laid over this process's environment."""

    def __init__(
        self, name: str, argv: Sequence[str], log_path: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.log_path, self._argv = name, log_path, list(argv)
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, or start it again after it ended.

        A signal that ends this process meanwhile finds the child known, and ends it with all that it has started.
        """
        former, self._process = self._process, None
        try:
            with self.log_path.open("ab") as log, _signals_held() as mask:
                self._process = subprocess.Popen(
                    self._argv,
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=partial(_begin_child, mask),  # noqa: PLW1509  its two calls need no thread's lock
                )
        except BaseException:
            self.kill()
            self._process = self._process or former
            raise

    @property
    def pid(self) -> int:
        """Process id of the running child."""
        if self._process is None:
            raise StackFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def require_alive(self) -> None:
        """Raise StackFailed, with the last lines of its log, when the process has ended."""
        if self.exit_code is not None:
            raise StackFailed(
                f"{self.name} ended with exit code {self.exit_code}; {self.log_path} ends:\n{self.tail()}"
            )

    def await_http(self, url: str, timeout_s: float) -> None:
        """Block until a GET of ``url`` answers 200. Raises StackFailed when the process ends, or the time is up."""
        deadline = time.monotonic() + timeout_s
        answer = "no answer"
        while time.monotonic() < deadline:
            self.require_alive()
            try:
                with urllib.request.urlopen(url, timeout=2.0) as response:  # noqa: S310  a loopback http URL of ours
                    if response.status == _HTTP_OK:
                        return
            except urllib.error.HTTPError as error:
                answer = f"HTTP {error.code}"
            except OSError as error:
                answer = str(error)
            time.sleep(_POLL_S)
        raise StackFailed(
            f"{self.name} was not ready within {timeout_s:g} s ({url}: {answer}); {self.log_path} ends:\n{self.tail()}"
        )

    def kill(self) -> None:
        """End it with SIGKILL, with all that it started, and reap it."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # all of it has ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def terminate(self) -> None:
        """Ask it to end; does not wait."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def await_end(self, timeout_s: float) -> None:
        """Wait until it has ended; kill it when the time is up, and whatever it left running in any case."""
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and wait until it has."""
        self.terminate()
        self.await_end(timeout_s)

    def tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(lines[-_LOG_TAIL_LINES:])
