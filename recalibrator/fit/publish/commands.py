"""What each command does: a command and what stands flow in, the act to perform flows out.

Acts of people go before what is automatic: ``pause`` and ``pin`` hold automatic versions back, never a command. Who
rolls back or pins wants one version for all queries: that ends a trial. On a pinned workload a shadow may run, since it
acts on nothing, a canary may not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from recalibrator.fit.publish.versions import Published
from schemas.command import Command

Deed = Literal["fit", "take_map", "republish", "try", "nothing"]


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
        ``fit`` from the labels, ``take_map`` from the command, ``republish`` the version ``of``, ``try`` it, or
        ``nothing``.
    holds : Holds
        From now on.
    of : int or None
    note : str
        For people: what was done, or why nothing was.
    ends_trial : bool
        Whether the trial under way ends with it.
    """

    deed: Deed
    holds: Holds
    note: str
    of: int | None = None
    ends_trial: bool = False


def interpret(command: Command, published: Published, holds: Holds, on_trial: int | None = None) -> Act:
    """Return what a command asks for; ``on_trial`` is the number of the version on trial.

    A version that is not known any more is taken from the command, where that carries its content; else the act is
    ``nothing`` and its note says why.
    """
    if command.map is not None and command.signal != published.signal:
        because = f"its map is of the uncertainty signal {command.signal}, configured is {published.signal}"
        return Act("nothing", holds, f"{command.action} refused: {because}")
    return _interpret(command, published, holds, on_trial)


def _interpret(command: Command, published: Published, holds: Holds, on_trial: int | None) -> Act:
    match command.action:
        case "bootstrap":
            return _bootstrap(command, holds)
        case "activate" | "pin":
            return _republish(command, published, holds)
        case "shadow" | "canary":
            return _try(command, published, holds)
        case "promote" | "stop_trial":
            return _conclude(command, holds, on_trial)
        case "refit":
            return Act("fit", holds, "refit")
        case "pause" | "resume" | "unpin":
            return _hold(command, holds)


def _hold(command: Command, holds: Holds) -> Act:
    if command.action == "pause":
        return Act("nothing", replace(holds, paused=True), "paused")
    if command.action == "resume":
        return Act("nothing", replace(holds, paused=False), "resumed")
    return Act("nothing", replace(holds, pinned=False), "unpinned")


def _bootstrap(command: Command, holds: Holds) -> Act:
    if command.map is None:
        return Act("fit", holds, "bootstrap")
    if not command.map.uncertainty:
        return Act("nothing", holds, "bootstrap refused: its map has no knots")
    return Act("take_map", holds, "bootstrap")


def _republish(command: Command, published: Published, holds: Holds) -> Act:
    current = published.current
    wanted = command.version if command.version is not None else current.version if current else None
    if wanted is None or not _is_known(wanted, command, published):
        known = "there is none yet" if wanted is None else f"version {wanted} is not among those kept"
        return Act("nothing", holds, f"{command.action} refused: {known}")
    if command.action == "pin":
        holds = replace(holds, pinned=True)
        if current is not None and current.version == wanted:
            return Act("nothing", holds, f"pinned version {wanted}", ends_trial=True)
    deed: Deed = "republish" if published.find(wanted) is not None else "take_map"
    return Act(deed, holds, f"{command.action} of version {wanted}", wanted, ends_trial=True)


def _is_known(version: int, command: Command, published: Published) -> bool:
    """Tell whether a version's content is at hand, here or in the command."""
    is_given = command.version is not None and command.map is not None and bool(command.map.uncertainty)
    return is_given or published.find(version) is not None


def _try(command: Command, published: Published, holds: Holds) -> Act:
    wanted = command.version
    if wanted is None or published.current is None:
        because = "there is no version in force to compare with"
    elif not _is_known(wanted, command, published):
        because = f"version {wanted} is not among those kept"
    elif command.action == "canary" and holds.pinned:
        because = "the workload is pinned; unpin it first"
    else:
        return Act("try", holds, f"{command.action} of version {wanted}", wanted, ends_trial=True)
    return Act("nothing", holds, f"{command.action} refused: {because}")


def _conclude(command: Command, holds: Holds, on_trial: int | None) -> Act:
    if on_trial is None:
        return Act("nothing", holds, f"{command.action} refused: no trial is under way")
    if command.action == "promote":
        return Act("republish", holds, f"promote of version {on_trial}", on_trial, ends_trial=True)
    return Act("nothing", holds, f"trial of version {on_trial} stopped", ends_trial=True)
