"""A whole service to be looked at as an operator does: router, recalibrator and fit as processes, models, labelers.

The fit is a process of its own, so that it alone can be lost.
"""

from __future__ import annotations

import json
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from schemas.command import Command
from schemas.event import rfc3339
from schemas.settings import Settings
from schemas.topics import LABEL_REQUESTS
from tests.faults.model_pair import ModelPair
from tests.faults.senders import PROMPT, truth
from tests.faults.worker import Worker
from tests.support.broker import follow, unique_prefix
from tests.support.checkout import ROOT, command
from tests.support.orders import MAP
from tests.support.probes import asked, document
from tests.support.recalibrator_processes import RecalibratorProcess
from tests.support.router_processes import RouterProcess
from tests.support.scripted_model_server import FIELDS
from tests.support.waiting import wait_until
from tests.support.webhooks import Receiver, receiving
from ucci_stream.local.kafka_node import LocalBroker, pick_port
from ucci_stream.topics.admin import create_topics

PEOPLE = ("ann", "ben", "cleo")
#: Texts come in so many groups, so that a share of them can be hit.
GROUPS = 20
THRESHOLD = 0.2
_COMMAND_S = 240.0

#: What people say to a request: who, and which entities.
Says = Callable[[dict[str, Any]], list[tuple[str, dict[str, str]]]]


def careful(request: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """One of three people labels a query, and is right."""
    return [(PEOPLE[crc32(request["query_id"].encode()) % len(PEOPLE)], truth(request["text"]))]


class Crowd(Worker):
    """Those who send queries at steady rates, and those who label them; both by workload."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        super().__init__("crowd")
        self._producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 0, "linger.ms": 5})
        self._requests: Consumer = follow(bootstrap, LABEL_REQUESTS.name(prefix))
        self._prefix = prefix
        self.rates: dict[str, float] = {}
        self.says: dict[str, Says] = {}

    def work(self) -> None:
        sent: dict[str, int] = {}
        due_s: dict[str, float] = {}
        while not self.closing.is_set():
            now_s = time.monotonic()
            for workload, rate in list(self.rates.items()):
                while due_s.setdefault(workload, now_s) <= now_s:
                    number = sent[workload] = sent.get(workload, 0) + 1
                    text = f"{workload} photo {number} group {number % GROUPS:02}."
                    key = f"{workload}-{number}"
                    self.send("queries", key, {"query_id": key, "text": text, "workload": workload})
                    due_s[workload] += 1.0 / rate
            for message in self._requests.consume(100, 0.02):
                # A request that has ended has no value.
                if message.error() is None and (value := message.value()) is not None:
                    self._label(json.loads(value))
            self._producer.poll(0)

    def _label(self, request: dict[str, Any]) -> None:
        for who, said in self.says.get(request["workload"], careful)(request):
            key = request["query_id"]
            more = {"labeler": who, "labelled_at": rfc3339(datetime.now(UTC)), "feedback_id": f"{key}/{who}"}
            self.send("feedback", key, {"query_id": key, "entities": said} | more)

    def send(self, topic: str, key: str, event: dict[str, Any]) -> None:
        self._producer.produce(f"{self._prefix}.{topic}", key=key, value=json.dumps(event))

    def close(self) -> None:
        super().close()
        self._requests.close()


@dataclass
class WholeService:
    """What runs, and what an operator sees of it."""

    broker: LocalBroker
    models: ModelPair
    notices: Receiver
    config: Path
    crowd: Crowd
    router: RouterProcess
    recalibrator: RecalibratorProcess
    fit: RecalibratorProcess
    #: Of what each process serves, by the names of the three.
    urls: dict[str, str]

    def get(self, path: str, of: str = "recalibrator") -> tuple[int, str]:
        return asked(self.urls[of] + path)

    def status(self, workload: str) -> dict[str, Any]:
        return document(f"{self.urls['recalibrator']}/v1/status/{workload}")

    def until(self, workload: str, holds: Callable[[dict[str, Any]], bool], within_s: float = 240.0) -> None:
        wait_until(lambda: self.status(workload), workload, lambda found: found and holds(found), within_s=within_s)

    def bootstrap(self, workload: str, rate: float) -> None:
        """Put a version in force that escalates about two queries of five, and let queries come."""
        self.crowd.rates[workload] = rate
        content = {"workload": workload, "issued_by": "desk", "issued_at": datetime.now(UTC), "action": "bootstrap"}
        command = Command.model_validate(content | {"map": MAP, "uncertainty_threshold": THRESHOLD})
        self.crowd.send("observations", workload, json.loads(command.to_json()))

    def gauges(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for of in self.urls:
            code, text = self.get("/metrics", of)
            for family in text_string_to_metric_families(text if code == 200 else ""):
                for one in family.samples:
                    found.setdefault(one.name, []).append((one.labels | {"process": of}, one.value))
            found.setdefault("up", []).append(({"process": of}, float(code == 200)))
        return found

    def say(self, *words: str) -> tuple[int, str]:
        """Run ``ucci-stream`` as at a terminal; return its exit code and its output."""
        # Whoever asks is on another machine, and takes nothing from the model servers.
        argv = ["nice", "-n", "10", *command(*words, "--config", self.config)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, timeout=_COMMAND_S)
        except subprocess.TimeoutExpired:
            return 124, f"no answer within {_COMMAND_S:g} s"
        return done.returncode, (done.stdout + done.stderr).strip()


_TABLE = """
[workloads.{name}]
prompt = "{prompt}"
fields = {fields}
small = {{ base_url = "{small}", model = "small", timeout_s = 2.0 }}
large = {{ base_url = "{large}", model = "large", timeout_s = 2.0 }}
sampling = {{ exploration_probability = 0.1, label_probability_kept = 0.4, label_probability_escalated = 0.4 }}
"""
_PROMISE = "target = { micro_f1 = 0.97 }\ncost = { large = 4.0 }"


def _write(folder: Path, bootstrap: str, models: ModelPair, url: str, tables: Mapping[str, str]) -> Path:
    ports = {name: pick_port() for name in ("router", "recalibrator", "probe")}
    lines = ["[kafka]", f'"bootstrap.servers" = "{bootstrap}"']
    lines += ["[topics]", f'prefix = "{unique_prefix()}"', "partitions = 2"]
    lines += ["[router]", f"http_port = {ports['router']}", "commit_interval_ms = 100"]
    lines += ["[recalibrator]", f'state_dir = "{folder / "state"}"', f"http_port = {ports['recalibrator']}"]
    lines += [f"probe_port = {ports['probe']}", "[notify.webhooks.desk]", f'url = "{url}"']
    for name, promise in tables.items():
        sides = {"small": models.base_url("small"), "large": models.base_url("large")}
        lines.append(_TABLE.format(name=name, prompt=PROMPT, fields=json.dumps(list(FIELDS)), **sides))
        lines.append(promise or _PROMISE)
    config = folder / "ucci.toml"
    config.write_text("\n".join(lines), encoding="utf-8")
    return config


@contextmanager
def whole_service(broker: LocalBroker, folder: Path, tables: Mapping[str, str]) -> Iterator[WholeService]:
    """Run everything on a broker, with these workloads, by name: what each promises, empty for what most promise."""
    (folder / "state").mkdir(exist_ok=True)
    with ExitStack() as held:
        models, notices = held.enter_context(ModelPair()), held.enter_context(receiving())
        config = _write(folder, broker.bootstrap, models, notices.url, tables)
        settings = Settings.model_validate(tomllib.loads(config.read_text()))
        create_topics(settings)
        ports = {"router": settings.router.http_port, "recalibrator": settings.recalibrator.http_port}
        ports["fit"] = settings.recalibrator.probe_port or 0
        router = RouterProcess(config, "router-0", folder / "router.log")
        rest = RecalibratorProcess(config, "recalibrator", folder / "recalibrator.log", stages=("join", "api"))
        fit = RecalibratorProcess(config, "fit", folder / "fit.log", stages=("fit",))
        crowd = Crowd(broker.bootstrap, settings.topics.prefix)
        for one in (router, rest, fit):
            held.enter_context(one)
        crowd.start()
        held.callback(crowd.end)
        held.callback(broker.thaw)
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        service = WholeService(broker, models, notices, config, crowd, router, rest, fit, urls)
        service.until(next(iter(tables)), lambda status: bool(status["routers"]))
        yield service
