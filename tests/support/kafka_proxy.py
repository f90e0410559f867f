"""A TCP proxy before a Kafka broker that delays, withholds and breaks as networks do, and as a test says.

It stands at the address that the broker advertises, so that clients cannot go round it. It passes frames on byte for
byte: nothing is forged, nothing doubled, and nothing reordered within a connection. What a client sent before its
connection broke may arrive late, since the proxy's own connection to the broker lives on: so do those of load
balancers, and of brokers that stand still.

A test lays a :class:`Hold` for a request, or an answer, that is to come, and then waits for what happens to it.
"""

from __future__ import annotations

import asyncio
import struct
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import NamedTuple, Self

from tests.support.kafka_wire import TRANSACTIONAL, Request, correlation_id_of, read_error, read_request

HOST = "127.0.0.1"
#: Longest wait for the answers to what was held, where the client is gone.
_LAST_ANSWERS_S = 10.0

_GONE = (ConnectionError, asyncio.IncompleteReadError, TimeoutError, OSError)


@dataclass(eq=False)
class Hold:
    """The first request that fits, or its answer, is held back until :meth:`release`; whatever follows it waits too."""

    #: Of the request.
    kind: str
    #: In its transactional id, or in the client id where it has none.
    of: str = ""
    #: What else the request must be.
    where: Callable[[Request], bool] | None = None
    #: Without effect before this has happened.
    after: Event | None = None
    #: Hold the answer back, and not the request.
    answer: bool = False
    #: Break the client's connection once it has come. A request that is held arrives all the same.
    breaks: bool = False
    #: How many to hold until the release.
    most: int = 1
    #: It has come.
    taken: Event = field(default_factory=Event)

    #: The broker has answered the request that was held.
    answered: Event = field(default_factory=Event)

    #: What the broker answered.
    error: int | None = None

    #: Of the proxy that it was laid in.
    loop: asyncio.AbstractEventLoop | None = None

    _free: asyncio.Event = field(default_factory=asyncio.Event)
    _is_dropped: bool = False
    _count: int = 0

    def release(self) -> None:
        """Let it pass, now or when it comes."""
        assert self.loop is not None, "it was not laid"
        self.loop.call_soon_threadsafe(self._free.set)

    def drop(self) -> None:
        """Lose it, and the connection with it."""
        self._is_dropped = True
        self.release()

    def fits(self, request: Request, *, answer: bool) -> bool:
        return (
            self.answer is answer
            and request.kind == self.kind
            and self.of in (request.transactional_id or request.client_id)
            and self._count < self.most
            and not (self._count and self._free.is_set())
            and (self.after is None or self.after.is_set())
            and (self.where is None or self.where(request))
        )

    def take(self) -> None:
        self._count += 1
        self.taken.set()

    async def pass_by(self) -> bool:
        """Return once it is released; False where it is to be lost."""
        await self._free.wait()
        return not self._is_dropped


class Passage(NamedTuple):
    """One request or answer that passed; ``error`` is an answer's."""

    at_s: float
    request: Request
    error: int | None


class KafkaProxy:
    """A listener with an event loop of its own before the broker's; a context manager, and safe in any thread."""

    def __init__(self, port: int, behind: int) -> None:
        self._port = port
        self._behind = behind
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="kafka-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._holds: tuple[Hold, ...] = ()
        self._connections = 0
        self._changed = Condition()
        self._passages: list[Passage] = []
        self._watches: list[tuple[Callable[[Passage], bool], Event]] = []
        self._unanswered: dict[tuple[int, int], Request] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lay(self, hold: Hold) -> Hold:
        """Have a hold wait for what fits; of several the one that was laid first."""
        hold.loop = self._loop
        self._holds = (*self._holds, hold)
        return hold

    def lift(self) -> None:
        """Release all holds, and forget them and all events."""
        holds, self._holds = self._holds, ()
        with self._changed:
            self._watches.clear()
        for hold in holds:
            hold.release()

    def when(self, fits: Callable[[Passage], bool]) -> Event:
        """Return an event that is set by the first passage from now on that fits, before anything else passes."""
        event = Event()
        with self._changed:
            self._watches.append((fits, event))
        return event

    def await_answers(self, of: str, timeout_s: float) -> bool:
        """Wait until every transactional request of an id that was passed on is answered."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting_for(of), timeout_s)

    def await_silence(self, of: str, silence_s: float, timeout_s: float) -> bool:
        """Wait until an id has sent no transactional request for so long, and waits for no answer."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while (now_s := time.monotonic()) < deadline_s:
                last_s = next((one.at_s for one in reversed(self._passages) if of in one.request.transactional_id), 0.0)
                if now_s - last_s >= silence_s and not self._waiting_for(of):
                    return True
                self._changed.wait(silence_s)
        return False

    def _waiting_for(self, of: str) -> bool:
        return any(of in request.transactional_id for request in self._unanswered.values())

    def claim(self, request: Request, *, answer: bool) -> Hold | None:
        """Return the hold that waits for this, which has now come."""
        for hold in self._holds:
            if hold.fits(request, answer=answer):
                hold.take()
                return hold
        return None

    def note(self, request: Request, error: int | None = None) -> None:
        if request.kind not in TRANSACTIONAL:
            return
        place, passage = (request.connection, request.correlation_id), Passage(time.monotonic(), request, error)
        with self._changed:
            self._passages.append(passage)
            if error is None:
                self._unanswered[place] = request
            else:
                self._unanswered.pop(place, None)
            for watch in [watch for watch in self._watches if watch[0](passage)]:
                self._watches.remove(watch)
                watch[1].set()
            self._changed.notify_all()

    def note_end(self, connection: int) -> None:
        """Expect no further answers on a connection."""
        with self._changed:
            self._unanswered = {place: one for place, one in self._unanswered.items() if place[0] != connection}
            self._changed.notify_all()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        try:
            server = await asyncio.open_connection(HOST, self._behind)
        except OSError:
            writer.transport.abort()
            return
        with suppress(asyncio.CancelledError):
            await _Connection(self, number, (reader, writer), server).run()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Connection:
    """A client's connection and the one to the broker behind it, which may outlive it."""

    def __init__(
        self,
        proxy: KafkaProxy,
        number: int,
        client: tuple[StreamReader, StreamWriter],
        server: tuple[StreamReader, StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._asked: dict[int, tuple[Request, Hold | None]] = {}
        self._held = 0
        self._answered = asyncio.Event()

    async def run(self) -> None:
        """Pass frames on both ways until either side is gone, and what was held has been answered."""
        answers = asyncio.create_task(self._answers())
        try:
            with suppress(*_GONE):
                await self._requests(answers)
            with suppress(*_GONE):
                await asyncio.wait_for(self._last_answers(), _LAST_ANSWERS_S)
        finally:
            answers.cancel()
            self._proxy.note_end(self._number)
            self._to_client.transport.abort()
            self._to_server.transport.abort()

    async def _requests(self, answers: asyncio.Task[None]) -> None:
        while not answers.done():
            frame = await _frame(self._from_client)
            request = read_request(frame, self._number)
            hold = self._proxy.claim(request, answer=False)
            if hold is not None:
                if hold.breaks:
                    self._to_client.transport.abort()
                if not await hold.pass_by():
                    return
                self._held += 1
            self._asked[request.correlation_id] = (request, hold)
            self._proxy.note(request)
            await _send(self._to_server, frame)

    async def _last_answers(self) -> None:
        while self._held:
            await self._answered.wait()
            self._answered.clear()

    async def _answers(self) -> None:
        with suppress(*_GONE):
            while True:
                frame = await _frame(self._from_server)
                request, held = self._asked.pop(correlation_id_of(frame))
                error = read_error(frame, request) if request.kind in TRANSACTIONAL else None
                self._proxy.note(request, error)
                if held is not None:
                    held.error = error
                    held.answered.set()
                    self._held -= 1
                    self._answered.set()
                hold = self._proxy.claim(request, answer=True)
                if hold is not None and not await hold.pass_by():
                    break
                if not self._to_client.is_closing():
                    with suppress(*_GONE):
                        await _send(self._to_client, frame)
        self._to_client.transport.abort()


async def _frame(reader: StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _send(writer: StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
    await writer.drain()
