"""The only place where the recalibrator's parts are built, started and ended.

It serves its probes, waits for a broker where none answers, and runs the stages asked for until SIGTERM. A stage that
dies ends the process with its error: what it had not committed is read again at the next start.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import structlog
from threadpoolctl import threadpool_limits

from recalibrator.file_state import StateDirectory
from recalibrator.fit.drift.monitors import check_detectors
from recalibrator.fit.file_snapshots import SnapshotFiles
from recalibrator.fit.publish.version_topics import TopicVersionLog
from recalibrator.fit.stage import FitPorts, FitStage, FitTopics
from recalibrator.http_probes import ProbeServer
from recalibrator.join.joining import Joining, JoinTopics
from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from recalibrator.join.stage import JoinLimits, JoinStage
from recalibrator.notify.delivery_thread import DeliveryThread, OutboxFile
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import ReaderName, Stage, StageName, recalibrator_status
from recalibrator.stage_thread import StageThread
from schemas.settings import Settings
from schemas.settings_reread import OF_RECALIBRATOR, Reread, running_settings
from schemas.signature import bound
from schemas.topics import (
    CALIBRATION,
    CALIBRATION_HISTORY,
    CALIBRATION_TRIAL,
    DEAD_LETTERS,
    FEEDBACK,
    HAPPENINGS,
    JOIN_REPARTITION,
    LABEL_REQUESTS,
    OBSERVATIONS,
    RECALIBRATORS,
    RESULTS,
    ROUTERS,
    STATUS,
    Topic,
)
from ucci_runtime.broker.contact import Health
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.ports import Broker, CheckedTopics, Connect, TransactionSession, health_of
from ucci_runtime.process import (
    PUBLISHER,
    Absence,
    Beat,
    Hangup,
    HeartbeatThread,
    SystemClock,
    end_on_signals,
    listen,
    url_of,
)

if TYPE_CHECKING:
    # An optional extra, which a process without the stage api does not need.
    from recalibrator.api.http_server import HttpServer

_log = structlog.get_logger()

#: For all stages together, so that a SIGTERM ends within 20 s.
END_TIMEOUT_S = 17.0

_WRITTEN = (OBSERVATIONS, CALIBRATION, CALIBRATION_HISTORY, STATUS, DEAD_LETTERS)
_TOUCHED = (RESULTS, FEEDBACK, ROUTERS, *_WRITTEN)
_OPTIONAL = (RECALIBRATORS, LABEL_REQUESTS, CALIBRATION_TRIAL, HAPPENINGS)
_WAIT_S = 0.5


class Service:
    """One recalibrator process."""

    def __init__(self, settings: Settings, connect: Connect, stages: Collection[StageName] = tuple(StageName)) -> None:
        self._settings = settings
        self._connect = connect
        self._stages = frozenset(stages)
        self._clock = SystemClock()
        self.metrics = Metrics()
        self._closing = Event()
        self._failure: BaseException | None = None
        self._broker_away: str | None = None
        self._broker: Broker | None = None
        self._server: Future[HttpServer] | None = None
        self._sessions: list[TransactionSession] = []
        self._threads: list[StageThread] = []
        self._heartbeat: HeartbeatThread | None = None
        self._notifier: DeliveryThread | None = None
        self._probes: ProbeServer | None = None

    @property
    def probe_port(self) -> int | None:
        """The port of the probes, while a process without the API serves them."""
        return None if self._probes is None else self._probes.port

    @property
    def hangs(self) -> bool:
        """Whether a broker call may never return: end the process without clean-up then."""
        is_any_alive = any(one is not None and one.is_alive() for one in (*self._threads, self._heartbeat))
        return is_any_alive or any(session.hangs for session in self._sessions)

    def take_over(self, found: Settings) -> Reread:
        """Apply what may change from a reloaded file, each stage after its turn. Raises ConfigError, with no effect."""
        done = Reread.of(self._settings, found, OF_RECALIBRATOR)
        self._settings = done.settings
        for thread in self._threads:
            thread.use(done.settings)
        return done

    def end(self) -> None:
        """Have the stages commit and leave; callable from any thread or signal handler."""
        self._closing.set()

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Run until :meth:`end` or a failure; blocks, and calls ``between`` twice a second.

        Raises UcciError when something that only a person can fix ended it; raises OSError when the HTTP address is
        taken or a disk cannot be used.
        """
        # More threads for matrices of a few hundred cells only spin, and take the cores from everybody else. Besides,
        # sums of more than 10,000 labels differ in their last digits with the number of threads.
        threadpool_limits(1, "blas")
        self._probes = self._start_probes()
        try:
            self._run_stages(between)
        finally:
            if self._probes is not None:
                self._probes.close()
        if self._failure is not None:
            raise self._failure

    def _run_stages(self, between: Callable[[], None]) -> None:
        options = self._settings.recalibrator
        state = StateDirectory(Path(options.state_dir), options.instance_id)
        try:
            for stage in sorted(self._stages - {StageName.API}):
                state.lock(stage)
            if StageName.API in self._stages:
                # Bound before anything else: who finds the address taken must not have joined a group.
                listening = listen(options.http_host, options.http_port)
                # The web and plotting libraries take long to load; join and fit do not wait for them.
                loader = ThreadPoolExecutor(1, "http-start")
                self._server = loader.submit(self._waiting_server, listening)
                loader.shutdown(wait=False)
            broker = self._broker = self._connect(
                state.instance_id, count=self.metrics.count, on_final=self._fail, closing=self._closing
            )
            checked = self._await_topics(broker)
            if checked is not None:
                self._start(broker, checked, state)
                while not self._closing.wait(_WAIT_S):
                    between()
                self._stop()
        finally:
            state.unlock()
            if self._server is not None and not self._threads:
                self._server.result().close()

    def missing(self) -> list[str]:
        """Return what is not ready yet: a word for each stage, or why the broker could not be asked."""
        if self._broker_away is None and not self._threads:
            return ["start"]
        found = [
            f"{thread.name}: {thread.report.trouble}" if thread.report.trouble else thread.name
            for thread in self._threads
            if not thread.is_ready
        ]
        if self._broker_away is not None:
            found.append(f"waiting for the broker: {self._broker_away}")
        # The API hears its own status every 2 s; other stages may work for longer without a word from Kafka.
        elif StageName.API in self._stages and (heard := self.health().heard) is not None and heard.is_away:
            found.append("kafka")
        return [*found, "closing"] if self._closing.is_set() else found

    def health(self) -> Health:
        """Return whether the process and the broker talk; from any thread."""
        return health_of(self._broker, self._broker_away)

    def _await_topics(self, broker: Broker) -> CheckedTopics | None:
        """Check the topics as soon as a broker answers, and log what is wrong with them; None when closing is first."""
        absence = Absence()
        while not self._closing.is_set():
            try:
                joined = (JOIN_REPARTITION,) if StageName.JOIN in self._stages else ()
                for refusal in broker.create_repartition() if joined else ():
                    _log.warning(refusal)
                checked = broker.check((*_TOUCHED, *joined), (*_WRITTEN, *joined, LABEL_REQUESTS), _OPTIONAL)
            except BrokerUnreachable as error:
                self._broker_away = str(error)
                if absence.failed(self._clock.monotonic()):
                    _log.warning("waiting for the broker", error=self._broker_away)
                self._closing.wait(absence.wait_s)
            else:
                self._broker_away = None
                for topic in checked.missing:
                    _log.warning(
                        "topic does not exist; what needs it rests until `ucci-stream topics create` and a restart",
                        topic=self._topic(topic),
                    )
                for warning in checked.warnings:
                    _log.warning(warning)
                return checked
        return None

    def _start_probes(self) -> ProbeServer | None:
        host, port = self._settings.recalibrator.probe_host, self._settings.recalibrator.probe_port
        if StageName.API in self._stages or port is None:
            return None
        probes = ProbeServer(host, port, missing=self.missing, registry=self.metrics.registry, health=self.health)
        probes.start()
        _log.info("serving probes", host=host, port=probes.port)
        return probes

    def _start(self, broker: Broker, checked: CheckedTopics, state: StateDirectory) -> None:
        directory = partial(state.of_cluster, checked.cluster_id, self._settings.topics.prefix)
        builders: dict[StageName, Callable[[], Stage]] = {
            StageName.JOIN: lambda: self._join_stage(broker, checked, directory()),
            StageName.FIT: lambda: self._fit_stage(broker, checked, directory()),
            StageName.API: lambda: self._api_stage(broker, checked),
        }
        if self._settings.notify.webhooks and StageName.FIT in self._stages:
            box = OutboxFile(directory())
            self._notifier = DeliveryThread(self._settings, box, clock=self._clock, count=self.metrics.count)
            self._notifier.start()
        for name, build in builders.items():
            if name in self._stages:
                self._threads.append(
                    StageThread(
                        name.value,
                        build,
                        closing=self._closing,
                        on_failure=self._fail,
                        metrics=self.metrics,
                        on_status=None if self._notifier is None else self._notifier.announce,
                        free_bytes=self._free_bytes if name is StageName.JOIN else None,
                    )
                )
        if RECALIBRATORS not in checked.missing:
            self._heartbeat = self._new_heartbeat(broker, state)
            self._heartbeat.start()
        for thread in self._threads:
            thread.start()

    def _free_bytes(self) -> float:
        return shutil.disk_usage(self._settings.recalibrator.state_dir).free

    def _new_heartbeat(self, broker: Broker, state: StateDirectory) -> HeartbeatThread:
        # Processes that share a state directory, one for each stage, each have a status of their own.
        instance_id, started_at = f"{state.instance_id}/{'+'.join(sorted(self._stages))}", self._clock.now()

        def beat() -> Beat:
            reports = {thread.name: replace(thread.report, is_ready=thread.is_ready) for thread in self._threads}
            running = running_settings(self._settings, OF_RECALIBRATOR)
            status = recalibrator_status(instance_id, started_at, self._clock.now(), reports, running)
            return Beat(instance_id, status.to_json())

        return HeartbeatThread(broker.publisher(PUBLISHER), self._topic(RECALIBRATORS), beat, self._closing)

    def _stop(self) -> None:
        began_s = time.monotonic()
        for thread in self._threads:
            thread.join(max(began_s + END_TIMEOUT_S - time.monotonic(), 0.0))
        if self._notifier is not None:
            self._notifier.end()
        for last in (self._notifier, self._heartbeat):
            if last is not None:
                last.join(max(began_s + END_TIMEOUT_S - time.monotonic(), 0.0))
        _log.info("ended", seconds=round(time.monotonic() - began_s, 3), stages=sorted(map(str, self._stages)))

    def _join_stage(self, broker: Broker, checked: CheckedTopics, directory: Path) -> JoinStage:
        settings, options = self._settings, self._settings.recalibrator
        topics = JoinTopics(
            results=self._topic(RESULTS),
            feedback=self._topic(FEEDBACK),
            repartition=self._topic(JOIN_REPARTITION),
            observations=self._topic(OBSERVATIONS),
            dead_letters=self._topic(DEAD_LETTERS),
            label_requests=None if LABEL_REQUESTS in checked.missing else self._topic(LABEL_REQUESTS),
        )
        return JoinStage(
            Joining(settings.workloads, topics, checked.max_record_bytes),
            JoinLimits(retention_s=options.join_retention_s, requests_max=options.label_requests_max),
            log=broker.group_reader(StageName.JOIN.value, (topics.repartition, topics.results, topics.feedback)),
            transactions=self._session(broker, StageName.JOIN),
            store=SqliteJoinStore(directory / "join.sqlite3", RowBounds(bytes=options.join_max_bytes)),
            clock=self._clock,
            count=self.metrics.count,
        )

    def _fit_stage(self, broker: Broker, checked: CheckedTopics, directory: Path) -> FitStage:
        settings = self._settings
        check_detectors(settings.workloads)
        topics = FitTopics(
            self._topic(OBSERVATIONS),
            self._topic(CALIBRATION),
            self._topic(CALIBRATION_HISTORY),
            self._topic(STATUS),
            self._topic(DEAD_LETTERS),
            trial=None if CALIBRATION_TRIAL in checked.missing else self._topic(CALIBRATION_TRIAL),
            happenings=None if HAPPENINGS in checked.missing else self._topic(HAPPENINGS),
        )
        numbered = [topic for topic in (topics.calibration, topics.trial) if topic is not None]
        versions = broker.topic_reader(ReaderName.VERSIONS.value, numbered)
        keys = [bound(key, checked.cluster_id) for key in settings.calibration.accepted_keys]
        return FitStage(
            frozenset(settings.workloads),
            topics,
            FitPorts(
                broker.group_reader(StageName.FIT.value, (topics.observations,)),
                self._session(broker, StageName.FIT),
                SnapshotFiles(directory, settings.workloads),
                TopicVersionLog(versions, topics.trial, keys),
            ),
            signing_key=keys[0] if keys else None,
            clock=self._clock,
            count=self.metrics.count,
        )

    def _waiting_server(self, listening: socket.socket) -> HttpServer:
        from recalibrator.api.http_context import Shared
        from recalibrator.api.http_stage import waiting_server

        shared = Shared(self.metrics, self._clock, self.missing, self.health)
        server = waiting_server(self._settings, shared, listening)
        server.start()
        _log.info("serving the status page", url=f"{url_of(self._settings.recalibrator.http_host, server.port)}/")
        return server

    def _api_stage(self, broker: Broker, checked: CheckedTopics) -> Stage:
        from recalibrator.api.http_context import Shared
        from recalibrator.api.http_stage import VIEWED, ApiStage

        assert self._server is not None
        return ApiStage(
            self._settings,
            broker,
            Shared(self.metrics, self._clock, self.missing, self.health),
            tuple(topic for topic in VIEWED if topic not in checked.missing),
            self._server.result(),
        )

    def _session(self, broker: Broker, stage: StageName) -> TransactionSession:
        session = broker.session(stage.value)
        self._sessions.append(session)
        return session

    def _topic(self, topic: Topic) -> str:
        return topic.name(self._settings.topics.prefix)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._closing.set()


def run_until_signalled(service: Service, read: Callable[[], Settings]) -> None:
    """Run a service; the first SIGTERM or SIGINT drains it, the second ends the process at once.

    SIGHUP has the configuration reloaded by ``read``. Raises UcciError or OSError; see :meth:`Service.run`.
    """
    end_on_signals(lambda _: service.end())
    hangup = Hangup(read, service.take_over)
    hangup.watch()
    service.run(hangup.serve)
