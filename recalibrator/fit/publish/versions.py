"""The versions of one workload, each numbered above all known before, and what operators' commands do with them.

A command goes before what is automatic: ``pause``, ``pin`` and a roll-back that holds keep automatic versions back,
never another command. To roll back or pin is to want one version for all queries, which ends a trial. On a pinned
workload a shadow may run, as it acts on nothing, but no canary. Where the cascade would cost more, the large model may
answer alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import JsonValue

from recalibrator.fit.codec import Kept
from recalibrator.fit.decide.candidate import Candidate
from recalibrator.fit.publish.handoff_watch import HandoffWatch
from schemas.calibration import (
    ESCALATE_ALL,
    Atom,
    CalibrationMap,
    CalibrationState,
    CalibrationVersion,
    Evidence,
    Hold,
    Holds,
    LabelShares,
    LargeOnly,
)
from schemas.command import Command
from schemas.costs import ModelCosts, expected_cost
from schemas.event import from_us
from schemas.settings import WorkloadSettings


class Content(NamedTuple):
    """What a version is made of, besides its number and the settings."""

    map: CalibrationMap
    uncertainty_threshold: float
    state: CalibrationState
    evidence: Evidence
    atom: Atom | None = None


class VersionRegistry:
    """The latest versions of one workload, of which so many stay known, and the number below the next one."""

    _versions: Kept[dict[int, CalibrationVersion]]
    floor: Kept[int] = 0
    current: Kept[CalibrationVersion | None] = None
    inherited: Kept[int | None] = None
    """The version in force, where nothing is known of what led to it."""
    holds: Kept[Holds]
    """What keeps new fits from being published."""
    large_only: Kept[LargeOnly | None] = None
    """While the large model answers alone."""
    unreached_us: Kept[int | None] = None
    """Since when each version in force has missed its target (``infeasible``)."""

    def __init__(self, settings: WorkloadSettings, kept: int, handoff: HandoffWatch) -> None:
        self.settings, self._kept, self._handoff = settings, kept, handoff
        self._versions = {}
        self.holds = {}

    def find(self, version: int | None) -> CalibrationVersion | None:
        """Return an earlier version, or None when it is unknown or forgotten."""
        return None if version is None else self._versions.get(version)

    def audit_probabilities(self) -> dict[int, float]:
        """Return by number which share of the pairs that were counted the versions known have audited, if any."""
        return {n: one.audit_probability for n, one in self._versions.items() if one.audit_probability > 0.0}

    @property
    def serving_threshold(self) -> float:
        """The threshold that answers are served by."""
        current = self.current
        return ESCALATE_ALL if current is None or self.large_only is not None else current.uncertainty_threshold

    @property
    def _configured_shares(self) -> LabelShares:
        """What to ask for where no fit says it: as configured, or as before where that follows from the traffic."""
        budget, parent = self.settings.labels, self.current
        if budget is None or budget.at_start is not None or parent is None or not any(parent.label_shares):
            return self.settings.label_shares
        return parent.label_shares

    def watched_share(self, shares: LabelShares | None = None) -> float:
        """Return the share of queries that the small model is asked too, while the large one answers alone.

        No less than what people label, so that every label says something of both.
        """
        current = self.current
        asked = shares or (self._configured_shares if current is None else current.label_shares)
        return max(asked.escalated, self.settings.sampling.exploration_probability)

    def publish(
        self,
        created_us: int,
        content: Content,
        costs: ModelCosts | None,
        exploration: float | None = None,
        *,
        audit: float = 0.0,
        label_shares: LabelShares | None = None,
        on_trial: bool = False,
    ) -> CalibrationVersion:
        """Seal a version under the next number and put it in force, unless it is only for trial.

        It explores and asks for labels as configured unless ``exploration`` and ``label_shares`` are given.
        """
        parent, handoff = self.current, self._handoff.in_versions
        shares = self._configured_shares if label_shares is None else label_shares
        explored = self.settings.sampling.exploration_probability if exploration is None else exploration
        if self.large_only is not None:
            self.large_only = self.large_only.model_copy(update={"small_probability": self.watched_share(shares)})
        self.floor += 1
        version = CalibrationVersion.sealed(
            workload=self.settings.name,
            version=self.floor,
            created_at=from_us(created_us),
            map=content.map,
            uncertainty_threshold=content.uncertainty_threshold,
            threshold=content.map.at(content.uncertainty_threshold),
            exploration_probability=min(explored, *shares),
            label_probability_kept=shares.kept,
            label_probability_escalated=shares.escalated,
            audit_probability=audit,
            target=self.settings.target,
            state=content.state,
            signal=self.settings.signal,
            costs=costs,
            evidence=content.evidence,
            parent_version=None if parent is None else parent.version,
            **({} if handoff is None else {"handoff": handoff}),
            **({} if self.settings.basis is None else {"basis": self.settings.basis}),
            **({} if content.atom is None else {"atom": content.atom}),
            **({} if on_trial else {"holds": self.holds, "large_only": self.large_only}),
        )
        if not on_trial:
            self.current, self.inherited = version, None
            began_us = created_us if self.unreached_us is None else self.unreached_us
            self.unreached_us = began_us if version.state == "infeasible" else None
        self._versions[version.version] = version
        for old in list(self._versions)[: -self._kept]:
            if self.current is not None and old != self.current.version:
                del self._versions[old]
        return version

    def hold(self, former: CalibrationVersion, created_us: int, evidence: Evidence) -> CalibrationVersion:
        """Publish what is in force again, the same but for its pin or pause: a fit without history reads it there."""
        self.floor += 1
        made = {"version": self.floor, "created_at": from_us(created_us), "parent_version": former.version}
        version = former.altered(**made, evidence=evidence, holds=self.holds, large_only=self.large_only)
        self.current, self.inherited, self._versions[self.floor] = version, None, version
        return version

    def inherit(self, version: CalibrationVersion, *, may_decide: bool) -> None:
        """Know a version that was read back, and no other; of one that may not decide, its pause alone."""
        self.holds = dict(version.holds) if may_decide else version.holds | self.holds
        if not may_decide:
            self.forget()
            return
        self._versions, self.current, self.inherited = {version.version: version}, version, version.version
        self.large_only, self.unreached_us = version.large_only, None

    def forget(self) -> None:
        """Know no version, only the number that the next one must exceed, and who has paused."""
        self._versions, self.current, self.inherited, self.large_only = {}, None, None, None
        self.unreached_us = None
        self.holds.pop(PINNED, None)


def content_of(command: Command, of: int | None, former: CalibrationVersion | None) -> Content | None:
    """Return the content that a command publishes: of the version ``of``, where that is known, else its own."""
    if former is not None:
        details = {**former.evidence.details, "content_of": former.version}
        proof = former.evidence.model_copy(update={"trigger": command.action, "details": details})
        return Content(former.map, former.uncertainty_threshold, former.state, proof, former.atom)
    if command.map is None:
        return None
    # Without a threshold all escalates until labels are known.
    threshold = ESCALATE_ALL if command.uncertainty_threshold is None else command.uncertainty_threshold
    if command.uncertainty_threshold is None and command.error_probability_threshold is not None:
        threshold = command.map.inverse(command.error_probability_threshold)
    origin: dict[str, JsonValue] = {"issued_by": command.issued_by, "reason": command.reason}
    proof = Evidence(trigger=command.action, details=origin | ({} if of is None else {"content_of": of}))
    return Content(command.map, threshold, "active", proof)


PAUSED, PINNED = "paused", "pinned"
_HOLDS = {"pause": (PAUSED, "paused"), "resume": (PAUSED, "resumed"), "unpin": (PINNED, "unpinned")}

What = Literal["fit", "take_map", "republish", "hold", "try", "nothing"]


@dataclass(frozen=True, slots=True)
class Act:
    """What to do now, and for people what was done, or why nothing was done.

    ``fit`` from the labels, ``take_map`` from the command, ``republish`` the version ``of``, ``try`` it, ``hold`` what
    is in force, or ``nothing``.
    """

    what: What
    holds: Holds
    note: str
    of: int | None = None
    ends_trial: bool = False
    is_refused: bool = False


def interpret(command: Command, registry: VersionRegistry, on_trial: int | None = None) -> Act:
    """Return what a command asks for; ``on_trial`` is the number of the version on trial.

    A version that is not known any more is taken from the command, where that carries its content; else the act is
    ``nothing`` and its note says why.
    """
    signal, basis = registry.settings.uncertainty, registry.settings.basis
    if command.map is not None and command.signal != signal:
        because = f"its map is of the uncertainty signal {command.signal}, configured is {signal}"
        return _refused(command, registry, because)
    if command.map is not None and None not in (command.basis, basis) and command.basis != basis:
        because = "its map was made with another prompt, other fields or another model than configured"
        return _refused(command, registry, because)
    if command.action in ("promote", "stop_trial"):
        return _conclude(command, registry, on_trial)
    return _BY_ACTION.get(command.action, _hold)(command, registry)


def _refit(command: Command, registry: VersionRegistry) -> Act:
    if (pin := registry.holds.get(PINNED)) is not None:
        return _refused(command, registry, f"the version in force is pinned by {pin.issued_by}; unpin it first")
    return Act("fit", registry.holds, "refit")


def _refused(command: Command, registry: VersionRegistry, because: str) -> Act:
    return Act("nothing", registry.holds, f"{command.action} refused: {because}", is_refused=True)


def _hold(command: Command, registry: VersionRegistry) -> Act:
    what, note = _HOLDS[command.action]
    holds = {name: hold for name, hold in registry.holds.items() if name != what}
    if command.action == "pause":
        holds[what] = Hold.model_validate(command, from_attributes=True)
    if registry.current is None or holds == registry.holds:
        return Act("nothing", holds, note)
    return Act("hold", holds, note, registry.current.version)


def _let_alone(command: Command, registry: VersionRegistry) -> Act:
    begins = command.action == "large_only"
    if registry.current is None or not (begins or registry.large_only is not None):
        return _refused(command, registry, "the large model does not answer alone")
    until = "" if command.until is None else f" until {command.until:%Y-%m-%d %H:%M} UTC"
    note = f"large only{until}" if begins else "the cascade answers again"
    return Act("hold", registry.holds, note, registry.current.version, ends_trial=begins)


def _bootstrap(command: Command, registry: VersionRegistry) -> Act:
    if command.map is None:
        return Act("fit", registry.holds, "bootstrap")
    if not command.map.uncertainty:
        return _refused(command, registry, "its map has no knots")
    return Act("take_map", registry.holds, "bootstrap")


def _republish(command: Command, registry: VersionRegistry) -> Act:
    current, holds = registry.current, registry.holds
    wanted = command.version if command.version is not None else current.version if current else None
    if wanted is None or not _is_known(wanted, command, registry):
        because = "there is none yet" if wanted is None else f"version {wanted} is not among those kept"
        return _refused(command, registry, because)
    if command.action == "pin" or command.hold:
        holds = holds | {PINNED: Hold.model_validate(command, from_attributes=True)}
    known: What = "hold" if current is not None and current.version == wanted else "republish"
    what: What = known if registry.find(wanted) is not None else "take_map"
    return Act(what, holds, f"{command.action} of version {wanted}", wanted, ends_trial=True)


def _is_known(version: int, command: Command, registry: VersionRegistry) -> bool:
    """Whether a version's content is known, here or from the command."""
    is_given = command.version is not None and command.map is not None and bool(command.map.uncertainty)
    return is_given or registry.find(version) is not None


def _try(command: Command, registry: VersionRegistry) -> Act:
    wanted = command.version
    if wanted is None or registry.current is None:
        because = "there is no version in force to compare with"
    elif not _is_known(wanted, command, registry):
        because = f"version {wanted} is not among those kept"
    elif command.action == "canary" and PINNED in registry.holds:
        because = "the workload is pinned; unpin it first"
    elif registry.large_only is not None:
        because = "the large model answers alone; end that first"
    else:
        return Act("try", registry.holds, f"{command.action} of version {wanted}", wanted, ends_trial=True)
    return _refused(command, registry, because)


def _conclude(command: Command, registry: VersionRegistry, on_trial: int | None) -> Act:
    if on_trial is None:
        return _refused(command, registry, "no trial is under way")
    if command.action == "promote":
        return Act("republish", registry.holds, f"promote of version {on_trial}", on_trial, ends_trial=True)
    return Act("nothing", registry.holds, f"trial of version {on_trial} stopped", ends_trial=True)


_BY_ACTION = {"bootstrap": _bootstrap, "activate": _republish, "pin": _republish, "shadow": _try, "canary": _try}
_BY_ACTION |= {"refit": _refit, "large_only": _let_alone, "end_large_only": _let_alone}
_ENDING = frozenset({"end_large_only", "bootstrap", "activate", "promote"})


def saved(candidate: Candidate, costs: ModelCosts | None) -> float | None:
    """Return what a query of the cascade is expected to cost less than the large model alone; None if not known."""
    if costs is None:
        return None
    rate = float(candidate.policies.escalation_rate[candidate.choice.index])
    cost = expected_cost(costs, rate, candidate.exploration)
    return cost.large_only - cost.sequential


def is_dear(candidate: Candidate, costs: ModelCosts | None, share: float) -> bool:
    """Whether the cascade costs more than the large model alone, with the small one asked of a share of queries.

    It has to cost less than without that share before it answers again: between the two, nothing changes.
    """
    saving = saved(candidate, costs)
    return costs is not None and saving is not None and saving <= -share * costs.small


def refusal(command: Command, current: CalibrationVersion | None, share: float, saving: float | None) -> str | None:
    """Return why the large model shall not answer alone, where that is so; ``saving`` is that of the cascade."""
    if current is None:
        return "there is no version in force yet, and the large model's answers are served anyway"
    if current.target.max_escalation is not None:
        return "the target caps what the large model may answer (max_escalation)"
    if command.until is not None:
        return None if command.until > command.issued_at else "the time until when lies in the past"
    if share == 0.0:
        return "the small model would be asked of no query, so that nothing shows when the cascade pays: say until when"
    if saving is None or saving >= 0.0:
        known = "it is not known what the cascade costs" if saving is None else f"the cascade costs {saving:.3g} less"
        return f"{known}, so that this would end at once: say until when"
    return None


def after_command(command: Command, before: LargeOnly | None, share: float) -> LargeOnly | None:
    """Return what is so after a command that was not refused."""
    if command.action in _ENDING:
        return None
    if command.action != "large_only":
        return before
    return LargeOnly(small_probability=share, since=command.issued_at, until=command.until, issued_by=command.issued_by)
