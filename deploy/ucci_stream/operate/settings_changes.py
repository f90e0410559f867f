"""What a configuration file would change for the services that run, line by line. Pure.

Whether a version may decide under the file is asked of :mod:`schemas.made_for`, as routers and the fit ask it, and
whether a setting is taken over on SIGHUP of :mod:`schemas.settings_reread`, as services do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from schemas.calibration import CalibrationVersion
from schemas.made_for import made_for, misfit, outdated
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_reread import OF_RECALIBRATOR, OF_ROUTER, is_reread, running_settings
from schemas.status import RecalibratorStatus, RouterStatus
from ucci_stream.operate.findings import SILENT_S

Effect = Literal["dead_letters", "cold_start", "unknown", "moved", "refit", "restart", "reload", "none"]

#: What no query should meet unawares: it is set aside, or runs both models.
HARMFUL: frozenset[Effect] = frozenset({"dead_letters", "cold_start"})

_LONGEST_CHARS = 60
_DEFAULT_WORKLOAD = "default_workload"
_WORKLOADS = "workloads"
_NOT_SET = "the default"


class Running(NamedTuple):
    """What services report, and the newest version of each workload."""

    versions: Mapping[str, CalibrationVersion]
    routers: Sequence[RouterStatus]
    recalibrators: Sequence[RecalibratorStatus]


class Change(NamedTuple):
    """One thing that the file changes."""

    #: ``dead_letters``: queries are set aside. ``cold_start``: every query runs both models until there are labels
    #: enough. ``unknown``: nothing that runs says enough to compare. ``moved``: queries go to another workload.
    #: ``refit``: a new version at the next event, given labels enough. ``restart``, ``reload``: a setting that needs a
    #: restart, or that SIGHUP puts in force. ``none``: nothing to fear.
    effect: Effect
    #: A workload, a setting by its dotted key, or a process.
    subject: str

    message: str
    #: What makes it safe; empty where nothing has to be done.
    act: str = ""


def changes(settings: Settings, running: Running, now: datetime) -> list[Change]:
    """Return what the file changes, workloads first.

    ``now``: services that have not reported for a minute before it do not run.
    """
    routers = [one for one in running.routers if (now - one.updated_at).total_seconds() <= SILENT_S]
    recalibrators = [one for one in running.recalibrators if (now - one.updated_at).total_seconds() <= SILENT_S]
    known = {name for router in routers for name in router.versions}
    if not routers:
        known = set(running.versions)
    found = [
        change
        for name, workload in settings.workloads.items()
        for change in _of_workload(workload, running.versions.get(name), is_new=name not in known)
    ]
    found += [_removed(name) for name in sorted(known - settings.workloads.keys())]
    found += _of_unnamed(settings, routers)
    found += _of_settings(settings, routers, recalibrators)
    return found


def exit_code(found: Sequence[Change]) -> int:
    """Return 1 where queries would become dead letters or a workload would start cold, else 0."""
    return int(any(change.effect in HARMFUL for change in found))


def _of_workload(workload: WorkloadSettings, version: CalibrationVersion | None, *, is_new: bool) -> Iterator[Change]:
    name, calibrate = workload.name, f"ucci-stream calibrate GOLD --workload {workload.name} --config FILE"
    if version is None and is_new:
        message = "is new and has no version: every query runs both models until there are labels enough"
        yield Change("cold_start", name, message, f"before the first query: {calibrate}")
    elif version is None:
        yield Change("none", name, "has no version, as before: every query runs both models")
    elif (foreign := misfit(version, made_for(workload))) is not None:
        message = (
            f"version {version.version} does not fit: {foreign.problem}. Routers refuse it and the fit starts cold: "
            "every query runs both models until there are labels enough"
        )
        act = f"{calibrate} --no-publish; restart the recalibrator, `ucci-stream bootstrap`, then restart the routers"
        yield Change("cold_start", name, message, act)
    elif renewed := outdated(version, workload):
        what = " and ".join(renewed)
        message = f"{what} {'differ' if len(renewed) > 1 else 'differs'} from version {version.version}: a refit at the"
        yield Change("refit", name, f"{message} next event, given labels enough; no cold start", "SIGHUP")
    elif is_new:
        yield Change("none", name, f"is new, and version {version.version} fits it: it decides from the first query")
    else:
        yield Change("none", name, f"version {version.version} fits and stays in force")
    if version is not None and version.basis is None:
        message = (
            f"version {version.version} is of an earlier release, which does not say with which prompt, fields and "
            "large model it was made; it is taken to fit"
        )
        yield Change("unknown", name, message, "recalibrate if one of them has changed")


def _removed(name: str) -> Change:
    message = "is configured no more: queries that name it become dead letters (unknown_workload)"
    return Change("dead_letters", name, message, "move its producers first")


def _of_unnamed(settings: Settings, routers: Sequence[RouterStatus]) -> Iterator[Change]:
    """Yield what happens to queries that name no workload, where that changes."""
    after = settings.workload_of_unnamed
    before = sorted({name for router in routers if (name := _unnamed_in(router)) is not None} - {after})
    if not before:
        return
    went = " and ".join(before)
    if after is None:
        message = f"queries that name no workload went to {went} and become dead letters (missing_workload)"
        yield Change("dead_letters", _DEFAULT_WORKLOAD, message, f'default_workload = "{before[0]}"')
    else:
        message = f"queries that name no workload go to {after} instead of {went}"
        yield Change(
            "moved", _DEFAULT_WORKLOAD, message, f'default_workload = "{before[0]}" leaves them where they are'
        )


def _unnamed_in(router: RouterStatus) -> str | None:
    """Return the workload to which a router gives queries that name none."""
    given = router.settings.get(_DEFAULT_WORKLOAD)
    if given is not None:
        return str(json.loads(given))
    return next(iter(router.versions)) if len(router.versions) == 1 else None


def _of_settings(
    settings: Settings, routers: Sequence[RouterStatus], recalibrators: Sequence[RecalibratorStatus]
) -> Iterator[Change]:
    """Yield each setting that differs from what a process says it runs with, and which processes these are."""
    reports = [(one.instance_id, one.settings, OF_ROUTER) for one in routers]
    reports += [(one.instance_id, one.settings, OF_RECALIBRATOR) for one in recalibrators]
    differing: dict[str, tuple[str, list[str]]] = {}
    for instance_id, known, parts in reports:
        if not known:
            message = "is of an earlier release, which does not say with which settings it runs"
            yield Change("unknown", instance_id, message)
            continue
        for key, line in _differing(known, running_settings(settings, parts)).items():
            differing.setdefault(key, (line, []))[1].append(instance_id)
    for key, (line, instances) in differing.items():
        where = ", ".join(instances)
        if is_reread(key):
            yield Change("reload", key, line, f"SIGHUP to {where}")
        else:
            yield Change("restart", key, line, f"restart {where}")


def _differing(known: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return what differs, by key; a workload that one side lacks is one key."""
    here, there = ({key.split(".")[1] for key in side if key.startswith(f"{_WORKLOADS}.")} for side in (known, wanted))
    found: dict[str, str] = {}
    for key in sorted(known.keys() | wanted.keys()):
        before, after = known.get(key), wanted.get(key)
        if before == after:
            continue
        names = key.split(".")
        if names[0] == _WORKLOADS and names[1] in here ^ there:
            found[".".join(names[:2])] = "a new table" if names[1] in there else "the table is gone"
        else:
            found[key] = f"{_short(before)} → {_short(after)}"
    return found


def _short(rendered: str | None) -> str:
    if rendered is None:
        return _NOT_SET
    return rendered if len(rendered) <= _LONGEST_CHARS else rendered[:_LONGEST_CHARS] + "…"
