"""Child processes end with their parent, and what they started ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ucci_stream.local.processes import ChildProcess

# The grandchild holds the pipe open: its reader sees the end of file when nobody is left.
_WORKER = ("sh", "-c", '(trap "" TERM; echo up; while :; do sleep 600; done) > "$0" & wait')
_PARENT = """
import sys, threading
from pathlib import Path
from ucci_stream.local.processes import ChildProcess, unwound_by_signals
class Worker(ChildProcess):
    def __enter__(self): self.start()
    def __exit__(self, *_): self.stop(5.0)
with unwound_by_signals(), Worker("worker", sys.argv[2:], Path(sys.argv[1])):
    threading.Event().wait()
"""

_SLOW_START = """
import subprocess
popen = subprocess.Popen
def popen_then_wait(*args, **options):
    child = popen(*args, **options)
    print("up", flush=True)
    sys.stdin.read(1)
    return child
subprocess.Popen = popen_then_wait
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe that the worker's child writes to."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_killing_a_child_ends_what_it_started(tmp_path: Path, pipe: Path) -> None:
    child = ChildProcess("worker", [*_WORKER, str(pipe)], tmp_path / "log")
    child.start()
    with pipe.open() as worker:
        assert worker.readline() == "up\n"
        child.kill()
        assert worker.read() == ""


def test_signal_while_a_child_starts_leaves_none_behind(tmp_path: Path, pipe: Path) -> None:
    """The child is up before the call that starts it has returned: a parent that was ended then left it running."""
    argv = [sys.executable, "-c", _SLOW_START + _PARENT, str(tmp_path / "log"), *_WORKER, str(pipe)]
    parent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with pipe.open() as worker:
        assert worker.readline() == "up\n"
        assert parent.stdout.readline() == b"up\n"
        parent.send_signal(signal.SIGHUP)
        parent.communicate(b".")
        assert parent.returncode == 128 + signal.SIGHUP
        assert worker.read() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signalled_parent_leaves_no_process_behind(tmp_path: Path, pipe: Path, number: signal.Signals) -> None:
    """vLLM's engine is a child of its server: a demo that was ended by a signal left it running."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path / "log"), *_WORKER, str(pipe)])
    with pipe.open() as worker:
        assert worker.readline() == "up\n"
        parent.send_signal(number)
        assert parent.wait() == 128 + number
        assert worker.read() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child whose parent was killed")
def test_a_killed_parent_takes_its_child_along(tmp_path: Path, pipe: Path) -> None:
    """A broker that outlived the process that started it kept its port and its folder."""
    worker_alone = ("sh", "-c", 'exec > "$0"; echo up; exec sleep 600', str(pipe))
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path / "log"), *worker_alone])
    with pipe.open() as worker:
        assert worker.readline() == "up\n"
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        assert worker.read() == ""
