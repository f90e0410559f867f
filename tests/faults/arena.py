"""The whole service on a real broker, under steady traffic, for one fault after the other to befall it.

Two routers, a join and a fit, each a process; two model servers; queries, labels and refits that keep coming. The
arena knows when each stage last committed, keeps what it reads from the topics, and says what harm was done.
"""

from __future__ import annotations

import json
import signal
import time
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from recalibrator.core import Recalibrator
from recalibrator.decoding import decode_observation
from schemas.errors import DecodeError
from schemas.settings import Settings
from tests.faults.archive import Archive, wall_ms
from tests.faults.checker import Area, Finding, check
from tests.faults.child import Child, Orders
from tests.faults.evidence import Evidence, Kept, Place
from tests.faults.fault_points import Stage
from tests.faults.model_pair import ModelPair
from tests.faults.senders import PROMPT, WORKLOAD, Senders, answer
from tests.support.broker import unique_prefix
from tests.support.scripted_model_server import FIELDS
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics

PARTITIONS = 4
RATE = 40.0
SESSION_S = 6.0
START_S = 60.0
NAMES = ("router-0", "router-1", "join", "fit")
#: Longest time from the end of a fault to the next commit.
SETTLE_S = 90.0

#: Longest time from the end of all faults to the last consequence; what is not there by then counts as lost.
JUDGED_S = 240.0

#: After which no further example is expected, once everything else has come.
SILENCE_S = 3.0

#: Longest time from an observation that was folded to the version that follows from it.
VERSION_S = 20.0

_SAID_CHARS = 200

#: Whose doing it is; without its stage nothing can be expected of an area.
AREA_OF: Mapping[Stage, Area] = {"router": "queries", "join": "labels", "fit": "versions"}
INPUTS: Mapping[Stage, tuple[str, ...]] = {
    "router": ("queries",),
    "join": ("results", "feedback"),
    "fit": ("observations",),
}


class NotRecovered(AssertionError):
    """A stage has not committed again in time."""


class Ended(NamedTuple):
    name: str
    how: str


class Arena:
    """See the module; made by :func:`arena`. ``directory`` takes configuration, logs and state."""

    def __init__(
        self,
        broker: LocalBroker,
        models: ModelPair,
        directory: Path,
        seed: int,
        names: Collection[str] = NAMES,
        *,
        rate: float = RATE,
    ) -> None:
        self.broker = broker
        self.models = models
        self.directory = directory
        self.prefix = unique_prefix()
        self.config = directory / "ucci.toml"
        self.state = directory / "state"
        text = _config(broker.bootstrap, self.prefix, models, self.state)
        directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)
        self.settings = Settings.model_validate(tomllib.loads(text))
        create_topics(self.settings)
        self.senders = Senders(broker.bootstrap, self.prefix, seed, rate=rate)
        self.archive = Archive(broker.bootstrap, self.prefix, self._note)
        self.children: dict[str, Child] = {}
        self.excused: set[Place] = set()
        self.has_grown = False
        self.ended: list[Ended] = []
        self._names = tuple(names)
        self._stages = frozenset(stage_of(name) for name in names)
        self._counts = Consequences(self._stages)
        for name in names:
            self.child(name)

    def child(self, name: str) -> Child:
        """Return a process by name, made where it is new; routers are called ``router-N``."""
        if name not in self.children:
            log, stage = self.directory / f"{name}.log", stage_of(name)
            orders = Orders("recalibrator", self.config, log, ("--stage", stage))
            if stage == "router":
                orders = Orders("stream_router", self.config, log, environment={"UCCI_ROUTER__INSTANCE_ID": name})
            self.children[name] = Child(name, orders)
        return self.children[name]

    def another(self, stage: Stage, name: str, *, state: str | None = None) -> Child:
        """Return one more process of a recalibrator's stage, with a state directory and a name of its own."""
        child = self.children[name] = Child(name, self.child(stage).orders)
        settings = {"UCCI_RECALIBRATOR__STATE_DIR": str(self.directory / f"state-{state or name}")}
        child.orders = replace(child.orders, log=self.directory / f"{name}.log", environment=settings)
        return child

    def start(self) -> None:
        """Start all processes and the traffic, and wait until each has committed something."""
        self.listen()
        for child in self.children.values():
            child.start()
        self.senders.go_on()
        for name in list(self.children):
            self.await_commit(name, 0, START_S)

    def listen(self) -> None:
        """Follow the topics and label what is asked for; neither processes nor queries yet."""
        self.archive.start()
        self.senders.start()

    def close(self) -> None:
        """End everything, whatever state it is in."""
        self.senders.close()
        self.archive.close()
        for child in self.children.values():
            with suppress(ProcessLookupError, AssertionError):
                child.signal(signal.SIGCONT)
            child.kill()

    # --- what has happened ---

    def committed_since(self, name: str, after_ms: int) -> bool:
        """Whether a process has committed something that was written after a moment."""
        return self.latest_ms(name) > after_ms

    def latest_ms(self, name: str) -> int:
        """Return when the latest record that a process committed was written, -1 before the first."""
        return self._counts.latest_ms.get(_source(name), -1)

    def await_commit(self, name: str, after_ms: int, timeout_s: float = SETTLE_S) -> None:
        """Wait until a process has committed something written after a moment of the wall clock.

        Raises NotRecovered.
        """

        def has_committed() -> bool:
            self.supervise([name])
            return self.committed_since(name, after_ms)

        if not self.archive.wait_for(has_committed, timeout_s):
            child = self.children.get(name)
            raise NotRecovered(f"{name} has not committed within {timeout_s:g} s: {child.tail() if child else ''}")

    def recovery_s(self, name: str, since_s: float, timeout_s: float = SETTLE_S) -> float:
        """Wait until a process commits again, and return the seconds from the end of the fault (monotonic) to then.

        ``name``: of a process; ``whole`` for a result that neither model's failure has touched.
        """
        after_ms = wall_ms() - int((time.monotonic() - since_s) * 1_000)
        self.await_commit(name, after_ms, timeout_s)
        return time.monotonic() - since_s

    def supervise(self, names: Iterable[str]) -> None:
        """Start again whoever has ended by itself, as whatever runs the services would; noted in :attr:`ended`."""
        self.senders.raise_failure()
        for name in names:
            child = self.children.get(name)
            if child is not None and child.has_ended:
                code, said = child.await_end(0.0), " ".join(child.tail(1))
                self.ended.append(Ended(name, f"{name} ended with {code}: {said[:_SAID_CHARS]}"))
                child.start()

    @property
    def results(self) -> int:
        return self._counts.results

    @property
    def versions(self) -> Collection[int]:
        return self._counts.versions

    def await_results(self, more: int) -> None:
        wanted = self.results + more
        if not self.archive.wait_for(lambda: self.results >= wanted, SETTLE_S):
            raise NotRecovered(f"{wanted - self.results} of {more} results have not come within {SETTLE_S:g} s")

    # --- the end ---

    def settle(self, timeout_s: float = SETTLE_S) -> bool:
        """Stop asking and wait until all that was sent has had its consequences; False where that takes too long."""
        self.senders.stop_asking()

        def is_settled() -> bool:
            self.supervise(self._names)
            sent = (self.senders.acknowledged, self.senders.labels, self.excused)
            return self.senders.is_idle and self._counts.are_complete(*sent)

        return self.archive.wait_for(is_settled, timeout_s) and self._falls_silent(timeout_s)

    def _falls_silent(self, timeout_s: float) -> bool:
        """Wait until the join has written nothing for a while: which corrections change something, it alone knows."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            seen = self._counts.examples
            if not self.archive.wait_for(partial(self._counts.has_more_than, seen), SILENCE_S):
                return True
        return False

    def evidence(self, *, anew: bool = True) -> Evidence:
        """Return what the topics hold now, read anew or as far as it was followed."""
        return Evidence(
            records=self.archive.read_again() if anew else self.archive.seen(),
            queries=dict(self.senders.queries),
            acknowledged=frozenset(self.senders.acknowledged),
            labels=frozenset(self.senders.labels),
            answer=answer,
            excused=frozenset(self.excused),
            has_grown=self.has_grown,
        )

    def judge(self) -> tuple[Evidence, list[Finding]]:
        """Return the records and every promise broken, beliefs included."""
        is_settled = self.settle(JUDGED_S)
        evidence = self.evidence()
        areas = {AREA_OF[stage] for stage in self._stages}
        findings = [finding for finding in check(evidence) if finding.area in areas]
        if not is_settled:
            findings.append(Finding("queries", "lost", f"not settled within {JUDGED_S:g} s: what is lost may be late"))
        if "fit" in self._stages:
            findings += _belief_faults(evidence)
            if not any(place.topic == "observations" for place in self.excused):
                findings += self.fold_faults(evidence)
        return evidence, findings

    def fold_faults(self, evidence: Evidence, timeout_s: float = VERSION_S) -> list[Finding]:
        """Compare the versions with those of an undisturbed fold; the last of them may still be on its way."""
        expected = _folded(evidence, self.settings)
        self.archive.wait_for(lambda: expected.keys() <= self._counts.versions, timeout_s)
        found = {
            int(json.loads(record.value)["version"]): record.value
            for place, record in self.archive.seen().items()
            if place.topic == "calibration" and record.value is not None
        }
        return list(_differences(expected, found))

    def _note(self, record: Kept) -> None:
        self._counts.take(record)
        if record.place.topic == "results":
            self.senders.heard(record)


class Consequences:
    """What has followed from what was sent, counted as it comes; of the stages that run."""

    def __init__(self, stages: Collection[Stage]) -> None:
        self._stages = stages
        self._lock = Lock()
        self.latest_ms: dict[str, int] = {}
        self.results = 0
        self.examples = 0
        self.versions: set[int] = set()
        self._answered: set[str] = set()
        self._revisions: dict[str, int] = {}
        self._traffic = 0
        self._observed_ms = 0
        self._folded_ms = 0

    def take(self, record: Kept) -> None:
        with self._lock:
            take = getattr(self, f"_take_{record.place.topic.replace('-', '_')}", None)
            if take is not None and record.value is not None:
                take(record)

    def has_more_than(self, examples: int) -> bool:
        """Whether the join has written more examples than these."""
        return self.examples > examples

    def are_complete(self, acknowledged: set[str], labels: set[str], excused: set[Place]) -> bool:
        """Whether every query is answered, every label is used and everything is folded, excused inputs aside."""
        with self._lock:
            if "fit" in self._stages and self._folded_ms <= self._observed_ms:
                return False
            # What may be missing cannot be waited for; what is not excused comes with the rest.
            if excused:
                return True
            if acknowledged - self._answered:
                return False
            return "join" not in self._stages or (self._traffic >= self.results and self._are_joined(labels))

    def _are_joined(self, labels: set[str]) -> bool:
        """Whether each label has its example; a later one that changes nothing, or was withdrawn in time, has none."""
        wanted: dict[str, int] = {}
        for query_id, _, revision in (label.rpartition("/") for label in set(labels)):
            wanted[query_id] = max(wanted.get(query_id, 0), int(revision))
        return all(self._revisions.get(one, 0) >= last for one, last in wanted.items() if last == 1)

    def _saw(self, source: str, record: Kept) -> None:
        self.latest_ms[source] = max(self.latest_ms.get(source, -1), record.timestamp_ms)

    def _take_results(self, record: Kept) -> None:
        routed = json.loads(record.value or b"")
        self.results += 1
        self._answered.add(record.key)
        self._saw(routed["routed_by"], record)
        if routed["small"]["valid"] and (routed["large"] is None or routed["large"]["valid"]):
            self._saw("whole", record)

    def _take_dead_letters(self, record: Kept) -> None:
        if record.headers.get("dlq.stage") == "route":
            self._answered.add(record.key)

    def _take_observations(self, record: Kept) -> None:
        found = json.loads(record.value or b"")
        self._observed_ms = max(self._observed_ms, record.timestamp_ms)
        if found["kind"] == "command":
            return
        self._saw("join", record)
        if found["kind"] == "traffic":
            self._traffic += sum(part["queries"] for part in found["versions"])
        else:
            self.examples += 1
            self._revisions[found["query_id"]] = max(self._revisions.get(found["query_id"], 0), found["revision"])

    def _take_calibration(self, record: Kept) -> None:
        self.versions.add(int(json.loads(record.value or b"")["version"]))

    def _take_status(self, record: Kept) -> None:
        self._saw("fit", record)
        # The marker behind the last record's transaction may still count as one.
        if (json.loads(record.value or b"").get("lag") or {}).get("observations", 2) <= 1:
            self._folded_ms = max(self._folded_ms, record.timestamp_ms)


def stage_of(name: str) -> Stage:
    return "router" if name.startswith("router") else "join" if name.startswith("join") else "fit"


def _source(name: str) -> str:
    return name if name.startswith("router") or name == "whole" else stage_of(name)


@contextmanager
def arena(
    broker: LocalBroker, directory: Path, seed: int, names: Collection[str] = NAMES, *, rate: float = RATE
) -> Iterator[Arena]:
    """Make an arena for the length of a block; nothing is started yet."""
    with ModelPair() as models, closing(Arena(broker, models, directory, seed, names, rate=rate)) as made:
        yield made


def _folded(evidence: Evidence, settings: Settings) -> dict[int, bytes]:
    """Fold the log once more, undisturbed, and return the versions that come out."""
    core, expected = Recalibrator(settings.workloads[WORKLOAD]), {}
    # As the fit does: with more threads, sums of more than 10,000 labels are taken in another order, and differ in
    # their last digits.
    with threadpool_limits(1, "blas"):
        for record in evidence.of("observations"):
            with suppress(DecodeError):
                if version := core.observe(decode_observation(record.value, {WORKLOAD})):
                    expected[version.version] = version.to_json()
    return expected


def _differences(expected: Mapping[int, bytes], found: Mapping[int, bytes]) -> Iterator[Finding]:
    for number in sorted(expected.keys() | found.keys()):
        if number not in found:
            yield Finding("versions", "lost", f"version {number} follows from the log and was not published")
        elif found[number] != expected.get(number):
            yield Finding("versions", "contradictory", f"version {number} is not what its log folds to")


def _belief_faults(evidence: Evidence) -> Iterator[Finding]:
    """The stream is stationary and its labels are right: nothing may be believed otherwise."""
    statuses = list(evidence.of("status"))
    if not statuses:
        yield Finding("versions", "lost", "no status")
        return
    status = json.loads(statuses[-1].value or b"")
    details, drift = status["details"], status["drift"]
    audit = details["label_audit"]
    if details["labelers_set_aside"] or (audit or {}).get("set_aside"):
        yield Finding("versions", "altered", f"labels are set aside: {audit} {details['labelers_set_aside']}")
    alarmed = [one["name"] for one in drift["detectors"] if one["alarms"]]
    if alarmed or drift["state"] == "drifted":
        yield Finding("versions", "altered", f"drift is {drift['state']}; alarms on the stationary stream: {alarmed}")


def _config(bootstrap: str, prefix: str, models: ModelPair, state: Path) -> str:
    sides = "\n".join(
        f'{side} = {{ base_url = "{models.base_url(side)}", model = "{side}", timeout_s = 2.0 }}'
        for side in ("small", "large")
    )
    return f"""
[kafka]
"bootstrap.servers" = "{bootstrap}"
"session.timeout.ms" = {int(SESSION_S * 1_000)}
"heartbeat.interval.ms" = 500
[topics]
prefix = "{prefix}"
partitions = {PARTITIONS}
[router]
http_port = 0
max_in_flight = 64
commit_interval_ms = 100
query_deadline_s = 20.0
[recalibrator]
state_dir = "{state}"
http_port = 0
[workloads.{WORKLOAD}]
prompt = "{PROMPT}"
fields = {json.dumps(list(FIELDS))}
{sides}
target = {{ micro_f1 = 0.97 }}
sampling = {{ exploration_probability = 0.1, label_probability_kept = 0.3, label_probability_escalated = 0.3 }}
cost = {{ large = 3.0 }}
"""
