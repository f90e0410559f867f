"""The rounds of ``ucci-stream label-studio sync``: begun, repeated, told, and ended cleanly by a signal."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from rich.console import Console

from schemas.errors import UcciError
from schemas.settings import Settings
from ucci_runtime.broker.errors import AccessDenied, BrokerError
from ucci_stream.label_tools.label_studio_client import Interrupted, LabelStudio, LabelStudioFailed
from ucci_stream.label_tools.label_studio_project import require_project
from ucci_stream.label_tools.sync import Round, Synchroniser, SyncOptions
from ucci_stream.label_tools.topics import SyncTopics
from ucci_stream.topics.feed import FeedStopped

_MAY_PASS = (LabelStudioFailed, BrokerError, FeedStopped)
"""What waiting may mend: a server or a broker that is away."""

_out = Console()
_err = Console(stderr=True)


class Rounds:
    """One round, or one after another until a signal.

    Parameters
    ----------
    settings : Settings
    workload : str
    options : SyncOptions
    project : int, optional
        By default the one that setup made.
    every_s : float, optional
        Seconds between rounds; one round by default.
    as_json : bool
        Whether each round is told as a line of JSON.
    """

    def __init__(
        self,
        settings: Settings,
        workload: str,
        options: SyncOptions,
        *,
        project: int | None,
        every_s: float | None,
        as_json: bool,
    ) -> None:
        self._settings = settings
        self._workload = workload
        self._options = options
        self._project = project
        self._every_s = every_s
        self._as_json = as_json
        self._closing = asyncio.Event()
        self._topics: SyncTopics | None = None

    async def run(self, url: str, token: str) -> None:
        """Run until done, or until SIGTERM or SIGINT.

        Raises
        ------
        LabelStudioFailed, BrokerError, FeedStopped
            Where one round was asked for, or waiting cannot mend it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        async with LabelStudio(url, token, self._closing) as studio:
            try:
                await self._run(studio)
            except Interrupted:
                return
            except _MAY_PASS:
                if not self._closing.is_set():
                    raise
            finally:
                if self._topics is not None:
                    await asyncio.to_thread(self._topics.close)

    def _end(self) -> None:
        self._closing.set()
        if self._topics is not None:
            self._topics.interrupt()

    async def _run(self, studio: LabelStudio) -> None:
        keeper: Synchroniser | None = None
        while not self._closing.is_set():
            try:
                keeper = keeper or await self._open(studio)
                self._show(await keeper.round())
            except _MAY_PASS as error:
                if self._every_s is None or self._closing.is_set() or isinstance(error, AccessDenied):
                    raise
                self._warn(error)
            if self._every_s is None:
                return
            try:
                await asyncio.wait_for(self._closing.wait(), self._every_s)
            except TimeoutError:
                continue

    async def _open(self, studio: LabelStudio) -> Synchroniser:
        settings = self._settings
        project = await require_project(studio, self._workload, self._project)
        if self._topics is None:
            self._topics = await asyncio.to_thread(SyncTopics, settings, self._workload, project)
        return Synchroniser(
            studio,
            project,
            self._topics,
            settings.workloads[self._workload],
            self._options,
            join_retention_s=settings.recalibrator.join_retention_s,
        )

    def _show(self, done: Round) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(done.as_dict()) + "\n")
            sys.stdout.flush()
            return
        _out.print(
            f"tasks: {done.pushed} pushed, {done.removed} removed, {done.waiting} waiting; labels: {done.new} new, "
            f"{done.revised} revised, {done.skipped} skipped, {done.retracted} retracted",
            highlight=False,
            soft_wrap=True,
        )
        for fault in done.faults:
            _err.print(fault, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def _warn(self, error: UcciError) -> None:
        _err.print(f"{error}; trying again", style="yellow", markup=False, highlight=False, soft_wrap=True)
