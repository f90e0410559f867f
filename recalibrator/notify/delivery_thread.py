"""The thread that notifies: statuses come in without ever waiting, notices go out to each webhook at its own pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

import aiohttp
import structlog

from recalibrator.notify.http_webhook import LONGEST_WAIT_S, post
from recalibrator.notify.outbox import Notice, Outbox
from schemas.settings import Settings, Webhook
from schemas.status import WorkloadStatus
from ucci_runtime.broker.records import Count
from ucci_runtime.clock import Clock
from ucci_runtime.file_replace import replace_file


class OutboxFile:
    """Where an outbox outlives its process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "notifications.json"
        self._is_failing = False

    def load(self, outbox: Outbox) -> None:
        """Take back what was stored; what is damaged is logged and left."""
        try:
            outbox.load(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning("stored notifications are not usable; starting over", path=str(self._path), error=str(error))

    def save(self, outbox: Outbox) -> None:
        """Replace what is stored; where the disk refuses, logged once, a restart may repeat or miss a notification."""
        try:
            replace_file(self._path, outbox.state())
        except OSError as error:
            if not self._is_failing:
                _log.warning("notifications are not stored", path=str(self._path), error=str(error))
            self._is_failing = True
        else:
            self._is_failing = False


_log = structlog.get_logger()
#: Statuses that wait for this thread; beyond it the oldest is forgotten, and the next one says how it stands.
_MOST_STATUSES = 10_000

_END_TIMEOUT_S = 2.0
_LOOK_S = 1.0
#: Notifications that wait for one webhook; beyond it the oldest is dropped.
QUEUE_MAX = 100

#: Time before the second attempt; it doubles up to ``LONGEST_WAIT_S``.
FIRST_RETRY_S = 1.0

#: How long one notification is tried.
RETRY_FOR_S = 3_600.0


class DeliveryThread(Thread):
    """Delivers what statuses give reason to; a fault of its own is logged, and never ends the service."""

    def __init__(self, settings: Settings, store: OutboxFile, *, clock: Clock, count: Count) -> None:
        super().__init__(name="notify", daemon=True)
        self._settings = settings.notify
        self._store = store
        self._clock = clock
        self._count = count
        self._outbox = Outbox(settings.notify.webhooks, QUEUE_MAX, settings.workloads)
        self._statuses: deque[WorkloadStatus] = deque(maxlen=_MOST_STATUSES)
        self._loop = asyncio.new_event_loop()
        self._has_come, self._is_closing = asyncio.Event(), asyncio.Event()

    def announce(self, status: WorkloadStatus) -> None:
        """Take a committed status; returns at once, callable from any thread."""
        self._statuses.append(status)
        self._wake(self._has_come)

    def end(self) -> None:
        """Begin no further attempt; what waits is stored and sent after the next start. Callable from any thread."""
        self._wake(self._is_closing)

    def run(self) -> None:
        """Deliver until the end."""
        try:
            self._store.load(self._outbox)
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._deliver_all())
        except Exception:  # noqa: BLE001 logged with its trace: the fit goes on
            _log.exception("notifications have ended: nothing is sent until a restart")

    def _wake(self, event: asyncio.Event) -> None:
        # Once the loop is closed nobody waits for it any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(event.set)

    async def _deliver_all(self) -> None:
        wakes = {name: asyncio.Event() for name in self._settings.webhooks}
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            taker = tasks.create_task(self._take_all(wakes))
            senders = [
                tasks.create_task(self._send_all(session, name, webhook, wakes[name]))
                for name, webhook in self._settings.webhooks.items()
            ]
            await self._is_closing.wait()
            taker.cancel()
            for wake in wakes.values():
                wake.set()
            # An attempt under way may still be answered, which saves its receiver a repetition.
            await asyncio.wait(senders, timeout=_END_TIMEOUT_S)
            for sender in senders:
                sender.cancel()

    async def _take_all(self, wakes: Mapping[str, asyncio.Event]) -> None:
        for wake in wakes.values():
            # What a former process had not delivered.
            wake.set()
        while True:
            # Looked at without a status too: what has changed is announced once it has lasted.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_come.wait(), _LOOK_S)
            self._has_come.clear()
            while self._statuses:
                self._outbox.take(self._statuses.popleft(), self._clock.now())
            taken = self._outbox.settle(self._clock.now())
            for name, dropped in taken.dropped.items():
                self._count("notifications", dropped, webhook=name, outcome="dropped")
            if taken.is_changed:
                # Stored before anything is sent: a restart repeats it under the same id.
                self._store.save(self._outbox)
                for wake in wakes.values():
                    wake.set()

    async def _send_all(self, session: aiohttp.ClientSession, name: str, webhook: Webhook, wake: asyncio.Event) -> None:
        while not self._is_closing.is_set():
            await wake.wait()
            wake.clear()
            while not self._is_closing.is_set() and (notice := self._outbox.next(name)) is not None:
                if await self._send(session, name, webhook, notice):
                    self._outbox.done(name, notice)
                    self._store.save(self._outbox)

    async def _send(self, session: aiohttp.ClientSession, name: str, webhook: Webhook, notice: Notice) -> bool:
        """Send one notice until it is delivered, refused for good, or too old; False where the end came first."""
        wait_s, began_s, kind = FIRST_RETRY_S, self._clock.monotonic(), notice.headline.kind
        facts = {"webhook": name, "workload": notice.workload, "kind": kind, "notice_id": notice.notice_id}
        while not self._is_closing.is_set():
            attempt = await post(session, webhook, notice, self._settings.page_url, self._clock.now())
            is_late = self._clock.monotonic() - began_s + wait_s > RETRY_FOR_S
            outcome = "given_up" if attempt.outcome == "retried" and is_late else attempt.outcome
            self._count("notifications", webhook=name, outcome=outcome)
            if outcome == "delivered":
                _log.info("notified", **facts)
                return True
            if outcome != "retried":
                _log.warning("notification not delivered", outcome=outcome, detail=attempt.detail, **facts)
                return True
            if wait_s == FIRST_RETRY_S:
                _log.warning("notification not delivered yet; trying again", detail=attempt.detail, **facts)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_closing.wait(), max(wait_s, attempt.retry_after_s or 0.0))
            wait_s = min(2.0 * wait_s, LONGEST_WAIT_S)
        return False
