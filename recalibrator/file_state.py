"""Where an instance keeps its state, under which name it is known to the broker, and that nobody else works there.

``state_dir/instance-id`` names the instance for good, unless the configuration does. The name follows from the machine
and the directory, so that a directory that was lost finds its former membership again, and does not wait for its end.
``state_dir/<cluster>/<prefix>/`` holds what belongs to one cluster's topics, so that state is never taken for another
cluster's. Texts and labels lie there: what is created is its owner's alone (directories 0700, files 0600).
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from hashlib import sha256
from pathlib import Path

from recalibrator.errors import StateInUse
from schemas.errors import ConfigError

_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


_MACHINE_ID = Path("/etc/machine-id")
_ID_CHARS = 12


def derived_id(root: Path) -> str:
    """Return the name of the instance that works on a directory of this machine: the same whenever it is asked for."""
    try:
        machine = _MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    place = "\n".join((machine, socket.gethostname(), str(root.resolve())))
    return f"recalibrator-{sha256(place.encode()).hexdigest()[:_ID_CHARS]}"


class StateDirectory:
    """One process's state directory, with its instance id by default. Raises ConfigError when it cannot be written."""

    def __init__(self, root: Path, instance_id: str | None = None) -> None:
        self._root = root
        self._locks: list[int] = []
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.instance_id = instance_id or self._read_id()
        except OSError as error:
            fault = f"recalibrator.state_dir: {root} cannot be written: {error.strerror}; give a writable directory"
            raise ConfigError([fault]) from None

    def lock(self, stage: str) -> None:
        """Claim this directory for one stage until the process ends. Raises StateInUse when another process has it."""
        handle = os.open(self._root / f"{stage}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StateInUse(
                f"recalibrator.state_dir: another process runs stage {stage} on {self._root}; give each its own"
            ) from None
        self._locks.append(handle)

    def of_cluster(self, cluster_id: str, prefix: str) -> Path:
        """Return the directory of one cluster's topics."""
        path = self._root
        for name in (cluster_id, prefix):
            path /= name
            path.mkdir(mode=0o700, exist_ok=True)
        return path

    def unlock(self) -> None:
        """Give up all claims."""
        while self._locks:
            os.close(self._locks.pop())

    def _read_id(self) -> str:
        path = self._root / "instance-id"
        if not path.exists():
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.touch(mode=0o600)
            temporary.write_text(f"{derived_id(self._root)}\n", encoding="utf-8")
            # Of two processes that start at once, one name wins for both.
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        found = path.read_text(encoding="utf-8").strip()
        if _ID.fullmatch(found) is None:
            raise ConfigError([f"{path}: {found!r} is not an instance id; delete the file to have a new one made"])
        return found
