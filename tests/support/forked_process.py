"""Services as processes that are forked from a server with everything imported: a start takes no second of imports.

For tests that start services again and again. What they run, from its entry on, is the command; what they end as is a
process, to be signalled and killed, which ends with the test's. Tests of exit codes and of how a process ends have an
interpreter of their own.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import recalibrator.cli
import recalibrator.service
import stream_router.cascade.answerer
import stream_router.cli
from recalibrator.__main__ import main as recalibrator_main
from stream_router.__main__ import main as router_main
from tests.support.checkout import plain_environment

Service = Literal["stream_router", "recalibrator"]
Environ = Mapping[str, str]
Act = Callable[[], None]
_MAINS = {"stream_router": router_main, "recalibrator": recalibrator_main}
#: What a command loads when it is called, loaded before processes are forked.
_LOADED = (recalibrator.cli, recalibrator.service, stream_router.cascade.answerer, stream_router.cli)


class ForkedProcess:
    """One run of a service's command, with those methods of ``subprocess.Popen`` that tests call.

    ``log`` takes standard output and standard error, at its end. ``first`` is done in the process before the command.
    """

    _context = multiprocessing.get_context("forkserver")

    def __init__(self, service: Service, arguments: Sequence[str], environ: Environ, log: Path, *first: Act) -> None:
        # One server for all tests of a session: the first to use it decides what it has imported.
        self._context.set_forkserver_preload([__name__])
        run = partial(_serve, service, arguments, plain_environment(environ), log, *first)
        self._process = self._context.Process(target=run)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"process {self.pid} has not ended within {timeout:g} s")
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _serve(service: Service, arguments: Sequence[str], environ: Environ, log: Path, *first: Act) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environ)
    for act in first:
        act()
    sys.argv = [service, *arguments]
    _MAINS[service]()


def _end_with_parent() -> None:
    """End this forked process as soon as the process that ordered it has."""
    parent = multiprocessing.process.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
