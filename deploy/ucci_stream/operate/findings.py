"""What ``doctor`` and ``check-config --against-running`` make of what they have seen, each with what to do. Pure.

``doctor``: rules from facts to findings. ``check-config``: what a configuration file would change for the services that
run, line by line. Whether a version may decide under the file is asked of :mod:`schemas.made_for`, as routers and the
fit ask it, and whether a setting is taken over on SIGHUP of :mod:`schemas.settings_reread`, as services do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeVar

from recalibrator.headlines.facts import Facts
from recalibrator.headlines.rules import headline
from recalibrator.headlines.without_result import lasted, look_up, waiting_line
from schemas.calibration import CalibrationVersion
from schemas.made_for import made_for, misfit, outdated
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_reread import OF_RECALIBRATOR, OF_ROUTER, is_reread, key_path, running_settings
from schemas.status import (
    RESULT_DUE_S,
    WORRYING,
    LabelsWithoutResult,
    ModelHealth,
    RecalibratorStatus,
    RouterStatus,
    WorkloadStatus,
)

Reporting = TypeVar("Reporting", RouterStatus, RecalibratorStatus)
Severity = Literal["ok", "warning", "fault"]

#: Services report every few seconds; one that has not for so long does not run.
SILENT_S = 60.0

#: Clocks kept by NTP differ by milliseconds; the join takes results of up to five minutes from the future.
SKEW_S = 5.0

#: A transaction of these services ends within ten seconds, and the broker ends a dead one within ten more.
OPEN_TRANSACTION_S = 30.0

MIN_FREE_BYTES, LOW_FREE_BYTES = 100_000_000, 1_000_000_000
#: Share of the labels asked for from which it is no labeler's fault that there are few.
_ANSWERED = 0.95

#: Queries after which some labels should have come.
STARVED_QUERIES = 1_000


class Finding(NamedTuple):
    """One thing that was looked at."""

    #: What it concerns: broker, topics, groups, clocks, models, versions, labels or disk.
    area: str
    #: ``fault``: something does not work. ``warning``: it works, less well than it could.
    severity: Severity
    #: One line that names the thing and its value.
    message: str
    #: What to do; empty where all is well.
    remedy: str = ""


class ClockFacts(NamedTuple):
    """When the newest result was dated: by its router, by the broker, and when it was read here."""

    routed_by: str
    routed_at: datetime
    appended_at: datetime
    read_at: datetime


def of_group(group_id: str, members: int, behind: int, service: str) -> Finding:
    """Judge a group: nobody in it and work waiting is a fault.

    ``behind``: records between its committed offsets and the ends of committed records; all that the log holds where it
    has committed nothing.
    """
    line = f"{group_id}: {members} members, {behind} records behind"
    if members:
        return Finding("groups", "ok", line)
    return Finding("groups", "fault" if behind else "warning", line, f"start a {service}: `{service} run`")


def of_transaction(topic: str, partition: int, hidden: int, age_s: float) -> Finding:
    """Judge by its age an open transaction, which hides what comes after it from readers of a partition."""
    line = (
        f"{topic}, partition {partition}: a transaction has been open for {age_s:.0f} s and hides {hidden} records "
        "after it"
    )
    if age_s <= OPEN_TRANSACTION_S:
        return Finding("transactions", "ok", line)
    remedy = (
        "start the instance that left it open again, which ends it, or: kafka-transactions.sh --bootstrap-server "
        f"HOST:PORT abort --topic {topic} --partition {partition} --start-offset OFFSET"
    )
    return Finding("transactions", "fault", line, remedy)


def of_clocks(facts: ClockFacts) -> list[Finding]:
    """Judge two clocks by the broker's: a result cannot be appended before it was routed, nor read before that."""
    router_s = (facts.routed_at - facts.appended_at).total_seconds()
    local_s = (facts.appended_at - facts.read_at).total_seconds()
    found = []
    if router_s > SKEW_S:
        line = f"the clock of router {facts.routed_by} is at least {router_s:.0f} s ahead of the broker's"
        found.append(Finding("clocks", "warning", line, "synchronise it by NTP: labels are weighted by their age"))
    if local_s > SKEW_S:
        line = f"the clock of this machine is at least {local_s:.0f} s behind the broker's"
        found.append(Finding("clocks", "warning", line, "synchronise both by NTP"))
    return found or [Finding("clocks", "ok", "no clock contradicts the broker's")]


def of_version(workload: WorkloadSettings, version: CalibrationVersion | None, now: datetime) -> Finding:
    """Judge the version in force; one for another prompt, model or signal than configured is refused by routers."""
    if version is None:
        line = f"{workload.name}: no version; every query runs both models"
        remedy = (
            f"label what `ucci-stream label-queue` lists, or: ucci-stream bootstrap FILE --workload {workload.name}"
        )
        return Finding("versions", "warning", line, remedy)
    if (foreign := misfit(version, made_for(workload))) is not None:
        line = f"{workload.name}: version {version.version} was {foreign.problem}"
        return Finding("versions", "fault", line, "recalibrate, since routers refuse it; or configure as before")
    age = lasted((now - version.created_at).total_seconds())
    return Finding("versions", "ok", f"{workload.name}: version {version.version}, {version.state}, made {age} ago")


def of_status(status: WorkloadStatus | None, workload: WorkloadSettings, now: datetime) -> Iterator[Finding]:
    """Judge what the fit reports of a workload, in the words of the page."""
    name = workload.name
    if status is None or status.updated_at is None:
        yield Finding("labels", "warning", f"{name}: the fit has reported nothing", "start it: `recalibrator run`")
        return
    silent_s = (now - status.updated_at).total_seconds()
    if silent_s > SILENT_S and status.queries:
        yield Finding(
            "versions",
            "warning",
            f"{name}: the fit has reported nothing for {lasted(silent_s)}",
            "without traffic that is as it should be; otherwise see `recalibrator`'s log",
        )
    said = headline(status, Facts(now, workload=workload))
    if said.severity in WORRYING or said.kind == "held":
        yield Finding("versions", "warning", f"{name}: {said.sentence}", said.act)
    yield _of_labels(status)


def _of_labels(status: WorkloadStatus) -> Finding:
    labels = status.labels
    # Labels of a calibration offline were never asked for.
    asked = "" if labels.received > labels.requested else f" of {labels.requested} asked for"
    line = f"{status.workload}: {labels.received} labels{asked} came for {status.queries} queries"
    starved = labels.requested > 0 and labels.received == 0 and status.queries >= STARVED_QUERIES
    if labels.received > _ANSWERED * labels.requested and status.drift.state == "insufficient_labels":
        return Finding("labels", "ok", f"{line}; drift is noticed once there are more")
    if starved or status.state == "label_starved" or status.drift.state in {"insufficient_labels", "stale"}:
        remedy = "answer what `ucci-stream label-queue` lists, or raise sampling.label_probability_kept"
        return Finding("labels", "warning", f"{line}: too few to notice drift", remedy)
    return Finding("labels", "ok", line)


def of_routers(routers: Sequence[RouterStatus], now: datetime) -> Iterator[Finding]:
    """Judge what the routers that still report say of themselves."""
    for router in _heard(routers, now):
        if router.rejected_versions:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(router.rejected_versions.items()))
            line = f"router {router.instance_id} has refused versions ({reasons})"
            yield Finding("versions", "warning", line, "compare its configuration and key with the recalibrator's")
        if not router.ready:
            line = f"router {router.instance_id} is not ready"
            yield Finding("groups", "warning", line, "GET /readyz of that router says what is missing")
        for workload, servers in router.models.items():
            for role, server in servers.items():
                if server.reason is not None:
                    yield _of_down(f"router {router.instance_id}: workloads.{workload}.{role}", server)


def _of_down(where: str, server: ModelHealth) -> Finding:
    """Judge a model server that a router cannot use, in the server's own words."""
    if server.misconfigured:
        remedy = "correct the workload's settings or the server; its queries wait, and go on by themselves"
        return Finding("models", "fault", f"{where} answers nobody as configured: {server.reason}", remedy)
    remedy = "restore it: routers notice by themselves"
    return Finding("models", "warning", f"{where} is {server.state}: {server.reason}", remedy)


def of_joins(recalibrators: Sequence[RecalibratorStatus], now: datetime) -> Iterator[Finding]:
    """Judge what the joins that still report say of labels without a result; a result comes before its label."""
    reported = (one.labels_without_result for one in _heard(recalibrators, now))
    waiting = LabelsWithoutResult.total([one for one in reported if one is not None])
    if waiting is None:
        return
    if not (line := waiting_line(waiting, now)):
        yield Finding("labels", "ok", "no label waits for a result")
    elif waiting.oldest_at is not None and (now - waiting.oldest_at).total_seconds() <= RESULT_DUE_S:
        yield Finding("labels", "ok", line)
    else:
        remedy = f"check the query ids that the labelers' tool sends; look one up: {look_up(waiting)}"
        yield Finding("labels", "warning", line, remedy)


def of_disk(path: str, free_bytes: int, is_writable: bool) -> Finding:
    """Judge the room where the recalibrator keeps its state."""
    line = f"{path}: {free_bytes / 1e9:.1f} GB free"
    if not is_writable:
        return Finding("disk", "fault", f"{path}: cannot be written", "give the recalibrator's user the right to write")
    if free_bytes < MIN_FREE_BYTES:
        return Finding("disk", "fault", line, "free some: the join stops when its store cannot grow")
    if free_bytes < LOW_FREE_BYTES:
        return Finding("disk", "warning", line, "free some, or lower recalibrator.join_max_bytes")
    return Finding("disk", "ok", line)


def summary(findings: Sequence[Finding]) -> Mapping[str, int]:
    """Count the findings by severity."""
    found = [finding.severity for finding in findings]
    return {severity: found.count(severity) for severity in ("fault", "warning", "ok")}


def _heard(reports: Iterable[Reporting], now: datetime) -> list[Reporting]:
    """Return what comes of services that still run."""
    return [one for one in reports if (now - one.updated_at).total_seconds() <= SILENT_S]


Effect = Literal["dead_letters", "cold_start", "unknown", "moved", "refit", "restart", "reload", "none"]

#: What no query should meet unawares: it is set aside, or runs both models.
HARMFUL: frozenset[Effect] = frozenset({"dead_letters", "cold_start"})

_LONGEST_CHARS = 60
_DEFAULT_WORKLOAD = "default_workload"


class Running(NamedTuple):
    """What services report, and the newest version of each workload."""

    versions: Mapping[str, CalibrationVersion]
    routers: Sequence[RouterStatus]
    recalibrators: Sequence[RecalibratorStatus]


class Change(NamedTuple):
    """One thing that the file changes."""

    #: ``dead_letters``: queries are set aside. ``cold_start``: every query runs both models until there are labels
    #: enough. ``unknown``: nothing that runs says enough to compare. ``moved``: queries go to another workload.
    #: ``refit``: a new version at the next event, given enough labels. ``restart``, ``reload``: a setting that needs a
    #: restart, or that SIGHUP puts in force. ``none``: nothing to fear.
    effect: Effect
    #: A workload, a setting by its dotted key, or a process.
    subject: str

    message: str
    #: What makes it safe; empty where nothing has to be done.
    act: str = ""


def changes(settings: Settings, running: Running, now: datetime) -> list[Change]:
    """Return what the file changes, workloads first; services silent for a minute before ``now`` do not run."""
    routers, recalibrators = _heard(running.routers, now), _heard(running.recalibrators, now)
    known = {name for router in routers for name in router.versions} if routers else set(running.versions)
    of_workloads = (
        change
        for name, workload in settings.workloads.items()
        for change in _of_workload(workload, running.versions.get(name), is_new=name not in known)
    )
    removed = map(_removed, sorted(known - settings.workloads.keys()))
    return [*of_workloads, *removed, *_of_unnamed(settings, routers), *_of_settings(settings, routers, recalibrators)]


def _of_workload(workload: WorkloadSettings, version: CalibrationVersion | None, *, is_new: bool) -> Iterator[Change]:
    name, calibrate = workload.name, f"ucci-stream calibrate GOLD --workload {workload.name} --config FILE"
    if version is None and is_new:
        message = "is new and has no version: every query runs both models until there are enough labels"
        yield Change("cold_start", name, message, f"before the first query: {calibrate}")
    elif version is None:
        yield Change("none", name, "has no version, as before: every query runs both models")
    elif (foreign := misfit(version, made_for(workload))) is not None:
        message = (
            f"version {version.version} does not fit: {foreign.problem}. Routers refuse it and the fit starts cold: "
            "every query runs both models until there are enough labels"
        )
        act = f"{calibrate} --no-publish; restart the recalibrator, `ucci-stream bootstrap`, then restart the routers"
        yield Change("cold_start", name, message, act)
    elif renewed := outdated(version, workload):
        what = " and ".join(renewed)
        message = f"{what} {'differ' if len(renewed) > 1 else 'differs'} from version {version.version}: a refit at the"
        yield Change("refit", name, f"{message} next event, given enough labels; no cold start", "SIGHUP")
    elif is_new:
        yield Change("none", name, f"is new, and version {version.version} fits it: it decides from the first query")
    else:
        yield Change("none", name, f"version {version.version} fits and stays in force")
    if version is not None and version.basis is None:
        message = (
            f"version {version.version} does not say with which prompt, fields and large model it was made; it is "
            "taken to fit"
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
        act = f'default_workload = "{before[0]}" leaves them where they are'
        yield Change("moved", _DEFAULT_WORKLOAD, f"queries that name no workload go to {after} instead of {went}", act)


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
    here, there = ({key_path(key)[1] for key in side if key.startswith("workloads.")} for side in (known, wanted))
    found: dict[str, str] = {}
    for key in sorted(key for key in known.keys() | wanted.keys() if known.get(key) != wanted.get(key)):
        table, *names = key_path(key)
        if table == "workloads" and names[0] in here ^ there:
            found[f"{table}.{names[0]}"] = "a new table" if names[0] in there else "the table is gone"
        else:
            found[key] = f"{_short(known.get(key))} → {_short(wanted.get(key))}"
    return found


def _short(rendered: str | None) -> str:
    if rendered is None:
        return "the default"
    return rendered if len(rendered) <= _LONGEST_CHARS else rendered[:_LONGEST_CHARS] + "…"
