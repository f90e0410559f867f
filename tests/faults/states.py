"""What a running service shows operators in each state: how soon it names the cause, and whether an act would do harm.

Real broker, real processes; hard faults one after another on one service, soft ones at once on another, each with a
workload of its own.

Example: python -m tests.faults.states --states "large model down" --states "routers gone"
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import typer

from recalibrator.headlines.facts import LONG_SILENT
from tests.faults.model_pair import Side
from tests.faults.stalls import StalledBroker
from tests.faults.states_page import ALERTS, FIRES_AFTER, write
from tests.faults.whole_service import GROUPS, PEOPLE, Says, WholeService, careful, whole_service
from tests.support.scripted_model_server import FIELDS, Fault

HARD_S, SOFT_S = 10.0, 60.0
MINUTE_S = 60.0
#: How long a cause is waited for: beyond its bound, so that the page says how late it came.
PATIENCE_S = {HARD_S: 45.0, SOFT_S: 150.0}
#: How long labels come before a soft fault, by which the fit knows the workload.
WARM_S = 180.0
RATE, SOFT_RATE = 20.0, 6.0
_LOOK_S = 0.25

#: Words and links of acts that do harm while something is broken: versions and targets are not to blame.
HARMFUL = ("action=activate", "Roll back", "Lower ")
NO_RESTART = (*HARMFUL, "Start the", "Restart", "Start it")

Do = Callable[[WholeService], object]


@dataclass(frozen=True)
class State:
    """One state, how it comes about and goes, and what names it."""

    name: str
    #: Kinds of headlines that name the cause.
    kinds: tuple[str, ...]
    begin: Do
    end: Do = lambda _: None
    bound_s: float = HARD_S
    workload: str = "main"
    #: What its workload promises, where that differs from the others'.
    promise: str = ""
    harmful: tuple[str, ...] = HARMFUL
    #: What else in a status names the cause.
    also: Callable[[Mapping[str, Any]], bool] = lambda _: False
    #: What may be said before the cause is known: by default that something is suspected.
    fair: tuple[str, ...] = ("suspected",)
    #: Whether labels come for a while before it is looked at.
    is_warm: bool = True

    @property
    def is_soft(self) -> bool:
        """Whether it has a workload of its own, and so needs no service of its own."""
        return self.workload not in ("main", "cold")


def is_past(status: Mapping[str, Any]) -> bool:
    """Whether the headline speaks of what is over."""
    return "this is over" in status["headline"]["effect"]


def _down(*sides: Side) -> tuple[Do, Do]:
    return (
        lambda on: [on.models.down(side) for side in sides],
        lambda on: [on.models.up(side) for side in sides],
    )


def _back(on: WholeService) -> None:
    on.broker.freeze()
    on.until("main", lambda status: status["headline"]["kind"] == "kafka")
    on.broker.thaw()


def _leave(free_bytes: int) -> tuple[Do, Do]:
    """Fill the join's disk, which is a file system in memory."""

    def fill(on: WholeService) -> None:
        disk = os.statvfs(on.config.parent / "state")
        with (on.config.parent / "state" / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - free_bytes)

    return fill, lambda on: (on.config.parent / "state" / "ballast").unlink()


#: Seven queries of twenty: of those that the small model was right on, 25 points of all; and three of a hundred.
_MUCH = tuple(f"group {group:02}." for group in range(7 * GROUPS // 20))
_LITTLE = ("00 group 00.", "20 group 00.", "40 group 00.")


def _worse(side: Side, workload: str, endings: Sequence[str] = _MUCH) -> Do:
    """Let a model be wrong on queries that end so."""

    def begin(on: WholeService) -> None:
        for ending in endings:
            on.models.play(side, Fault("wrong_value", containing=f"{workload} photo", ending=ending))

    return begin


def _slip(request: Mapping[str, Any], share: float, people: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    """Label as ever, but let some people be wrong on a share of queries."""
    who, said = careful(dict(request))[0]
    slips = who in people and crc32(f"slip {request['query_id']}".encode()) % 100 < share * 100
    return [(who, said | {FIELDS[0]: "mistaken by a person"} if slips else said)]


def _soft(name: str, kind: str, workload: str, begin: Do, **more: Any) -> State:
    return State(name, (kind,), begin, bound_s=SOFT_S, workload=workload, **more)


def _said(name: str, kind: str, workload: str, says: Says, **more: Any) -> State:
    return _soft(name, kind, workload, lambda on: on.crowd.says.update({workload: says}), **more)


_WELL = ("well", "below_target", "escalation_jump", "suspected")
_ALL = (
    State("cold start", ("cold_start",), lambda _: None, workload="cold", harmful=("Roll back", "Lower ")),
    State(
        *("large model slow", ("overload",), lambda on: on.models.brown_out("large")),
        *(lambda on: on.models.recover("large"), SOFT_S),
    ),
    State("large model down", ("outage",), *_down("large")),
    State("small model down", ("outage",), *_down("small")),
    State("both models down", ("models_down",), *_down("small", "large")),
    State("routers gone", ("routers_silent",), lambda on: on.router.kill(), lambda on: on.router.start()),
    State("disk nearly full", ("disk_low",), *_leave(600_000_000), SOFT_S, harmful=NO_RESTART),
    # Until the store has used up what room its file has, its disk is only said to be nearly full.
    State("disk full", ("disk_low", "disk_full"), *_leave(200_000), harmful=NO_RESTART),
    State("fit gone", ("fit_silent",), lambda on: on.fit.kill(), lambda on: on.fit.start()),
    State("Kafka away", ("kafka",), lambda on: on.broker.freeze(), lambda on: on.broker.thaw(), harmful=NO_RESTART),
    State("Kafka back", _WELL, _back, harmful=NO_RESTART, also=is_past),
    _soft("small model worse", "small_worse", "small-worse", _worse("small", "small-worse")),
    _soft("small model worse by 2 points", "small_worse", "by-two", _worse("small", "by-two", _LITTLE)),
    _soft(
        *("large model worse", "large_worse", "large-worse", _worse("large", "large-worse")),
        harmful=(*HARMFUL, "large_only"),
    ),
    _said("labels stop", "label_starvation", "labels-stop", lambda _: []),
    _said(
        *("one labeler bad", "labeler_set_aside", "one-bad", lambda request: _slip(request, 0.8, PEOPLE[-1:])),
    ),
    # That labels call both models wrong more often is what is known until an audit begins, and blames neither.
    _said(
        *("crowd careless", "bad_labels", "careless", lambda request: _slip(request, 0.4, PEOPLE)),
        fair=("suspected", "both_worse"),
    ),
    _said(
        *("one-sided labels", "labels_one_sided", "one-sided"),
        lambda request: careful(request) if request["answered_by"] == "large" else [],
    ),
    # From the first version on, before labels have come.
    _soft(
        *("dear", "dear", "dear", lambda on: on.bootstrap("dear", SOFT_RATE)),
        promise="target = { micro_f1 = 0.97 }\ncost = { large = 1.1 }",
        harmful=("Roll back", "Lower "),
        fair=("label_starvation",),
        is_warm=False,
    ),
    _soft(
        *("infeasible", "infeasible", "infeasible", lambda _: None),
        promise="target = { micro_f1 = 0.9999 }\ncost = { large = 4.0 }",
        harmful=("Roll back",),
    ),
)
STATES = {one.name: one for one in _ALL}


@dataclass
class Seen:
    """One state as it was seen."""

    state: State
    began_s: float
    notices_before: int
    #: Seconds since the fault, kind and severity of each headline that differs from the one before.
    headlines: list[tuple[float, str, str]] = field(default_factory=list)
    named_s: float | None = None
    named: dict[str, Any] = field(default_factory=dict)
    #: Acts that would harm.
    harm: list[str] = field(default_factory=list)
    rest: Future[dict[str, Any]] | None = None

    def look(self, status: Mapping[str, Any]) -> None:
        at_s, said = time.monotonic() - self.began_s, status["headline"]
        if not self.headlines or self.headlines[-1][1] != said["kind"]:
            self.headlines.append((round(at_s, 1), said["kind"], said["severity"]))
        offered = f"{said['act']} {(said.get('link') or {}).get('href', '')}".strip()
        # What was offered before the fault was seen was right at its time.
        is_told = self.named_s is not None or said["severity"] in ("bad", "warn")
        if is_told and any(word in offered for word in self.state.harmful) and offered not in self.harm:
            self.harm.append(offered)
        is_named = said["kind"] in self.state.kinds and not is_past(status)
        if self.named_s is None and (is_named or self.state.also(status)):
            self.named_s, self.named = at_s, {"headline": said, "state": status["state"]}

    def is_over(self, minute_s: float) -> bool:
        spent_s = time.monotonic() - self.began_s
        ends_s = PATIENCE_S[self.state.bound_s] if self.named_s is None else self.named_s + minute_s
        return spent_s > ends_s


def observe(service: WholeService, states: Sequence[State], minute_s: float = MINUTE_S) -> list[dict[str, Any]]:
    """Bring states about at once; look until each is named and a minute has passed, and ask what else says of it."""
    open_: list[Seen] = []
    for one in states:
        notices, began_s = len(service.notices.received), time.monotonic()
        one.begin(service)
        # A return of Kafka is counted from the return.
        open_.append(Seen(one, time.monotonic() if one.name == "Kafka back" else began_s, notices))
    with ThreadPoolExecutor(1) as asking:
        while any(seen.rest is None for seen in open_):
            for seen in open_:
                if seen.rest is None and (status := service.status(seen.state.workload)):
                    seen.look(status)
                if seen.rest is None and seen.is_over(minute_s):
                    seen.rest = asking.submit(asked if minute_s else lambda *_: {}, service, seen)
            time.sleep(_LOOK_S)
        found = [judged(seen) for seen in open_]
    for one in states:
        one.end(service)
    return found


def asked(service: WholeService, seen: Seen) -> dict[str, Any]:
    """Return what everything but the page says now."""
    workload, gauges = seen.state.workload, service.gauges()
    alerts = {
        f"{name} (after {FIRES_AFTER.get(name, '0s')}): {metric}{_marks(have)} = {value:g}"
        for name, metric, labels, fires in ALERTS
        for have, value in gauges.get(metric, ())
        if have.get("workload") in (None, workload) and labels.items() <= have.items() and fires(value, time.time())
    }
    notices = [one.document for one in service.notices.received[seen.notices_before :]]
    code, said = service.say("status", "--workload", workload)
    doctor_code, doctor = service.say("doctor", "--json")
    findings = json.loads(doctor[doctor.find("{") :])["findings"] if "{" in doctor else []
    told = [f"{one['severity']} {one['area']}: {one['message']}" for one in findings if one["severity"] != "ok"]
    return {
        "last": service.status(workload).get("headline", {}).get("sentence", ""),
        "readyz": {of: _ready(*service.get("/readyz", of)) for of in service.urls},
        "alerts": sorted(alerts),
        "notices": [one["sentence"] for one in notices if one.get("workload") in (None, workload)],
        "status": {"exit": code, "says": said.splitlines()[:2]},
        "doctor": {"exit": doctor_code, "says": told or doctor.splitlines()[-2:]},
    }


def _marks(labels: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{k}={v}' for k, v in sorted(labels.items()) if k in ('role', 'state', 'process'))}}}"


def _ready(code: int, body: str) -> str:
    return f"{code} {', '.join(json.loads(body).get('missing', ()))}".strip() if code else "no answer"


def judged(seen: Seen) -> dict[str, Any]:
    """Return one state as a row, with where it falls short."""
    assert seen.rest is not None
    one, named_s = seen.state, seen.named_s
    after = [kind for at_s, kind, _ in seen.headlines if named_s is not None and at_s > round(named_s, 1)]
    fair = (*one.kinds, *one.fair)
    wrong = [kind for _, kind, how in seen.headlines[1:] if how in ("bad", "warn") and kind not in fair]
    short = [] if named_s is not None else ["never named within its time"]
    if named_s is not None and named_s > one.bound_s + _LOOK_S:
        short.append(f"named after {named_s:.0f} s, not {one.bound_s:.0f}")
    short += [f"{len(after)} changes of headline in the minute after"] if len(after) > 1 else []
    short += [f"also said: {', '.join(dict.fromkeys(wrong))}"] if wrong else []
    short += [f"offers: {act}" for act in seen.harm]
    return {
        "state": one.name,
        "bound_s": one.bound_s,
        "named_s": None if named_s is None else round(named_s, 1),
        "changes": len(after),
        "headlines": seen.headlines,
        "named": seen.named,
        "harm": seen.harm,
        "short": short,
        **seen.rest.result(),
    }


@contextmanager
def in_memory(folder: Path) -> Iterator[bool]:
    """Mount a file system of 1.2 GB on the folder, where that is allowed: to fill it harms nobody."""
    words = ("mount", "-t", "tmpfs", "-o", "size=1200m", "tmpfs", str(folder))
    is_mounted = subprocess.run(words, check=False, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(("umount", "-l", str(folder)), check=False)


def hard(broker: Any, folder: Path, states: Sequence[State], minute_s: float) -> Iterator[dict[str, Any]]:
    """One after another on one service, each from a service that is well."""
    (folder / "state").mkdir(parents=True)
    with in_memory(folder / "state") as may_fill, whole_service(broker, folder, {"main": "", "cold": ""}) as service:
        service.bootstrap("main", RATE)
        listens_s = time.monotonic() + (LONG_SILENT.total_seconds() if minute_s else 0.0)

        # What is over stands for a minute, and only what is graver shows: the states come in the order of gravity.
        def settled(status: Mapping[str, Any]) -> bool:
            waiting = (status["lag"] or {}).get("records", {}).get("queries", 0)
            is_well = status["headline"]["severity"] != "bad" and waiting < 2.0 * RATE
            return bool(status["calibration_version"]) and is_well

        # Whoever has just begun to listen calls nobody silent.
        service.until("main", lambda status: settled(status) and time.monotonic() > listens_s)
        for one in states:
            if one.name.startswith("disk") and not may_fill:
                yield {"state": one.name, "short": ["not tried: no file system may be mounted here"]}
                continue
            if one.bound_s == SOFT_S:
                # What is mild does not replace what is over.
                service.until("main", lambda status: settled(status) and not is_past(status))
            before = len(service.notices.received)
            (row,) = observe(service, [one], minute_s)
            if minute_s:
                row |= _after(service, settled, before)
            yield row


def _after(service: WholeService, settled: Callable[[Mapping[str, Any]], bool], before: int) -> dict[str, Any]:
    """Return how long a fault that was mended is still spoken of, and the notices till then: those are late."""
    ended_s = time.monotonic()
    service.until("main", settled)
    notices = [notice.document["sentence"] for notice in service.notices.received[before:]]
    return {"over_s": round(time.monotonic() - ended_s, 1), "notices": notices}


def soft(broker: Any, folder: Path, states: Sequence[State], minute_s: float) -> Iterator[dict[str, Any]]:
    """All at once, after labels have come for a while."""
    folder.mkdir(parents=True)
    with whole_service(broker, folder, {one.workload: one.promise for one in states}) as service:
        for one in states:
            if one.is_warm:
                service.bootstrap(one.workload, SOFT_RATE)
        time.sleep(WARM_S)
        yield from observe(service, states, minute_s)


def main(
    states: Annotated[list[str] | None, typer.Option("--states", help="Only these.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of the page.")] = Path("docs/results/states"),
    minute_s: Annotated[float, typer.Option(help="How long to look after a cause is named.")] = MINUTE_S,
) -> None:
    """Run the service through the states; write what each part of it says."""
    chosen = [STATES[name] for name in states or STATES]
    command = f"python -m tests.faults.states {' '.join(sys.argv[1:])}".strip()
    with tempfile.TemporaryDirectory(prefix="ucci-states-") as scratch:
        folder = Path(scratch)
        with StalledBroker(folder / "kafka") as broker:
            for run, some in ((soft, True), (hard, False)):
                ours = [one for one in chosen if one.is_soft is some]
                for row in run(broker, folder / run.__name__, ours, minute_s) if ours else ():
                    sys.stderr.write(f"{row['state']}: {row.get('named_s')} s, {row['short']}\n")
                    write(out, row, list(STATES), command)


if __name__ == "__main__":
    typer.run(main)
