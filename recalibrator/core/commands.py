"""What each command does: a command and what stands flow in, the act to perform flows out.

Acts of people go before what is automatic: ``pause`` and ``pin`` hold automatic versions back, never a command.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from recalibrator.core.published import Published
from schemas.command import Command

Deed = Literal["fit", "take_map", "republish", "nothing"]


@dataclass(frozen=True, slots=True)
class Holds:
    """What keeps new fits from being published."""

    paused: bool = False
    pinned: bool = False

    @property
    def any(self) -> bool:
        """Whether automatic versions are held back."""
        return self.paused or self.pinned


@dataclass(frozen=True, slots=True)
class Act:
    """What to do now.

    Parameters
    ----------
    deed : str
        ``fit`` from the labels, ``take_map`` from the command, ``republish`` the version ``of``, or ``nothing``.
    holds : Holds
        From now on.
    of : int or None
    note : str
        For people: what was done, or why nothing was.
    """

    deed: Deed
    holds: Holds
    note: str
    of: int | None = None


def interpret(command: Command, published: Published, holds: Holds) -> Act:
    """Return what a command asks for.

    A version that is not known any more is taken from the command, where that carries its content; else the act is
    ``nothing`` and its note says why.
    """
    match command.action:
        case "bootstrap":
            return _bootstrap(command, holds)
        case "refit":
            return Act("fit", holds, "refit")
        case "pause":
            return Act("nothing", replace(holds, paused=True), "paused")
        case "resume":
            return Act("nothing", replace(holds, paused=False), "resumed")
        case "unpin":
            return Act("nothing", replace(holds, pinned=False), "unpinned")
        case "activate" | "pin":
            return _republish(command, published, holds)


def _bootstrap(command: Command, holds: Holds) -> Act:
    if command.map is None:
        return Act("fit", holds, "bootstrap")
    if not command.map.uncertainty:
        return Act("nothing", holds, "bootstrap refused: its map has no knots")
    return Act("take_map", holds, "bootstrap")


def _republish(command: Command, published: Published, holds: Holds) -> Act:
    current = published.current
    wanted = command.version if command.version is not None else current.version if current else None
    is_given = command.version is not None and command.map is not None and bool(command.map.uncertainty)
    if wanted is None or (published.find(wanted) is None and not is_given):
        known = "there is none yet" if wanted is None else f"version {wanted} is not among those kept"
        return Act("nothing", holds, f"{command.action} refused: {known}")
    if command.action == "pin":
        holds = replace(holds, pinned=True)
        if current is not None and current.version == wanted:
            return Act("nothing", holds, f"pinned version {wanted}")
    deed: Deed = "republish" if published.find(wanted) is not None else "take_map"
    return Act(deed, holds, f"{command.action} of version {wanted}", wanted)
