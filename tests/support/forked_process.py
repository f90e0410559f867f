"""Services as processes that are forked from a server with everything imported: a start takes no second of imports.

For tests that start services again and again. What they run, from its entry on, is the command; what they end as is a
process, to be signalled and killed. Tests of exit codes and of how a process ends have an interpreter of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from recalibrator.__main__ import main as recalibrator_main
from stream_router.__main__ import main as router_main
from tests.faults.child import PRELOADED, end_with_parent

Service = Literal["stream_router", "recalibrator"]
_MAINS = {"stream_router": router_main, "recalibrator": recalibrator_main}


class ForkedProcess:
    """One run of a service's command, with those methods of ``subprocess.Popen`` that tests call.

    ``log`` takes standard output and standard error, at its end.
    """

    _context = multiprocessing.get_context("forkserver")

    def __init__(self, service: Service, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        # One server for all tests of a session: the first to use it decides what it has imported.
        self._context.set_forkserver_preload(PRELOADED)
        self._process = self._context.Process(target=_serve, args=(service, arguments, dict(environment), log))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"process {self._process.pid} has not ended within {timeout:g} s")
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _serve(service: Service, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    end_with_parent()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [service, *arguments]
    _MAINS[service]()
