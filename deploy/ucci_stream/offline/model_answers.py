"""Asks both models about many queries, with bounded concurrency, and keeps every answer as soon as it has come.

The answers lie in a file of their own. A call that is answered there is never made again, so that a run that was
killed goes on where it was. An answer belongs to the request that brought it: another prompt, model or length asks
anew, and so does another address: what is kept says nothing of another server.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from schemas.errors import ConfigError, UcciError
from schemas.routed import ModelRole, ModelRun
from schemas.settings import WorkloadSettings
from schemas.settings_workload import ModelEndpoint
from stream_router.errors import CallError, RefusedError, ServerDownError
from stream_router.model_client.answer import failed_run, judge_answer
from stream_router.model_client.http_client import ModelClient
from stream_router.model_client.http_probe import Probed
from stream_router.model_client.request import ModelRequest, build_request
from stream_router.ports import Reply
from ucci_runtime.process import SystemClock

#: How long a server may be down before the run ends; what was answered is kept.
OUTAGE_S = 30.0

_SYNC_S = 1.0


class AskingStopped(UcciError):
    """Not every query was answered; what was is kept, and the same command goes on from there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call brought: a reply, or the server's refusal of this very request."""

    reply: Reply | None
    refusal: str | None
    latency_s: float

    def run(self, model: str, fields: Sequence[str], nulls: Collection[str] = ()) -> ModelRun:
        """Return it as a run of the model, parsed for these fields; ``nulls`` are texts that stand for null."""
        if self.reply is None:
            return failed_run(model, self.refusal or "failed", self.latency_s)
        return judge_answer(model, self.reply, fields, self.latency_s, nulls=nulls).run


class Call(NamedTuple):
    """One request, and the key that its answer is kept under."""

    request: ModelRequest
    key: str


class AnswerFile:
    """Answers by key, one JSON object a line, each written as soon as it came.

    A written answer survives the end of this process at once, and that of the machine after a second. ``descriptor``:
    of the file, open for appending and locked.
    """

    def __init__(self, path: Path, descriptor: int, answers: dict[str, Answer]) -> None:
        self.path = path
        self.dated = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC) if answers else None
        self._descriptor = descriptor
        self._answers = answers
        self._synced_s = time.monotonic()

    def get(self, key: str) -> Answer | None:
        """Return the answer to a call, or None while there is none."""
        return self._answers.get(key)

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer."""
        self._answers[key] = answer
        line = json.dumps({"key": key, **asdict(answer)}, separators=(",", ":")).encode() + b"\n"
        with self._writing():
            if os.write(self._descriptor, line) != len(line):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
        if time.monotonic() - self._synced_s >= _SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Have all that was written outlast the machine."""
        with self._writing():
            os.fsync(self._descriptor)
        self._synced_s = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise AskingStopped(
                f"{self.path}: cannot be written: {error.strerror}; make room and run this again"
            ) from None


@contextmanager
def open_answers(path: Path) -> Iterator[AnswerFile]:
    """Open a file of answers, made where it is missing, for this process alone.

    A last line that was cut off in the middle is dropped. Raises AskingStopped when another process is at it, or it
    holds something else.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise AskingStopped(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AskingStopped(f"{path}: another run is writing to it; wait for its end") from None
        whole, _, cut = path.read_bytes().rpartition(b"\n")
        if cut:
            os.ftruncate(descriptor, len(whole) + 1 if whole else 0)
        file = AnswerFile(path, descriptor, dict(_read(path, whole)))
        yield file
        file.sync()
    finally:
        os.close(descriptor)


def _read(path: Path, whole: bytes) -> Iterator[tuple[str, Answer]]:
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found: Mapping[str, Any] = json.loads(line)
            reply = found["reply"]
            answer = Answer(None if reply is None else Reply(**reply), found["refusal"], found["latency_s"])
            answer.run("", ())  # What an edited line says must be what a model can say.
            yield found["key"], answer
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AskingStopped(f"{path}:{number}: is no kept answer; remove the file to ask again") from None


def call_of(workload: WorkloadSettings, role: ModelRole, text: str) -> Call:
    """Return the call that the router would make of one model about one query."""
    endpoint = endpoint_of(workload, role)
    request = build_request(workload, endpoint, text)
    identity = f"{role}\0{endpoint.public_url}\0{request.path}\0{request.signal.kind}\0".encode() + request.body
    return Call(request, sha256(identity).hexdigest())


async def ask_missing(
    workload: WorkloadSettings,
    calls: Mapping[ModelRole, Sequence[Call]],
    file: AnswerFile,
    concurrency: int,
    advance: Callable[[ModelRole], None],
) -> None:
    """Make the calls that the file has no answer to, both models at once; returns when all are answered.

    ``concurrency``: calls of each model in flight, at most. ``advance``: called with the role after each answer. Raises
    AskingStopped when a server stays down for ``OUTAGE_S``, or calls failed for good; what was answered is kept.
    """
    failed: list[str] = []
    try:
        async with asyncio.TaskGroup() as both:
            for role, wanted in calls.items():
                missing = {call.key: call for call in wanted if file.get(call.key) is None}
                if missing:
                    asking = _Asking(workload, role, file, failed, advance)
                    both.create_task(asking.ask(tuple(missing.values()), concurrency))
    except* UcciError as errors:
        raise _first(errors) from None
    if failed:
        raise AskingStopped(
            f"{len(failed)} calls were not answered, the first because of: {failed[0]}; all others are kept in "
            f"{file.path}: run this again to ask only these"
        )


@dataclass(frozen=True, slots=True)
class _Asking:
    """The calls of one model."""

    workload: WorkloadSettings
    role: ModelRole
    file: AnswerFile
    failed: list[str]
    advance: Callable[[ModelRole], None]

    async def ask(self, calls: Sequence[Call], concurrency: int) -> None:
        endpoint = endpoint_of(self.workload, self.role)
        at_most = min(concurrency, endpoint.max_concurrency)
        endpoint, left = endpoint.model_copy(update={"max_concurrency": at_most}), iter(calls)
        async with (
            ModelClient(self.workload, self.role, endpoint, clock=SystemClock()) as client,
            asyncio.TaskGroup() as workers,
        ):
            for _ in range(min(at_most, len(calls))):
                workers.create_task(self._work(client, left))

    async def _work(self, client: ModelClient, left: Iterator[Call]) -> None:
        for call in left:
            if (answer := await self._answer(client, call)) is not None:
                self.file.add(call.key, answer)
                self.advance(self.role)

    async def _answer(self, client: ModelClient, call: Call) -> Answer | None:
        """Make one call until there is an answer to keep; None when it has failed for good."""
        outages = 0
        while True:
            try:
                answered = await client.call(call.request, earlier_rounds=outages)
            except ServerDownError as error:
                outages += error.after_attempts
                await self._await_server(client, str(error))
            except RefusedError as error:
                return Answer(None, str(error), 0.0)
            except CallError as error:
                self.failed.append(f"{self.role}: {error}")
                return None
            else:
                return Answer(answered.reply, None, answered.latency_s)

    async def _await_server(self, client: ModelClient, reason: str) -> None:
        try:
            async with asyncio.timeout(OUTAGE_S):
                await client.wait_up()
        except TimeoutError:
            raise AskingStopped(
                f"{reason}; not back after {OUTAGE_S:g} s. All answers so far are kept in {self.file.path}: run this "
                "again to go on"
            ) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def endpoint_of(workload: WorkloadSettings, role: ModelRole) -> ModelEndpoint:
    """Return where a model is asked, of a workload that names both."""
    endpoint: ModelEndpoint | None = getattr(workload, role)
    assert endpoint is not None, "require_models() comes first"
    return endpoint


def doubts_of(probed: Iterable[Probed]) -> list[str]:
    """Return what is doubtful of servers that can be used. Raises ConfigError with every fault of those that cannot."""
    findings = [finding for one in probed for finding in one.findings]
    if faults := [finding.line for finding in findings if finding.kind == "fault"]:
        raise ConfigError(faults)
    return [finding.line for finding in findings]
