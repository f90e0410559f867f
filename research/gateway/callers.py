"""Callers that keep a fixed number of requests in flight, at the model server itself or at a gateway."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable

import aiohttp

from schemas.settings import Settings
from stream_router.model_client.request import build_request

PATIENCE_S = 120.0
"""Long enough for a machine that others keep busy: a request that fails would be no measurement."""

_TEXT = "canon 5d mark iv with the 70-200 at f2.8 and 1/250, iso 400, shot in the evening"
_JSON = {"Content-Type": "application/json"}

Ask = Callable[[aiohttp.ClientSession], Awaitable[None]]


async def turn(ask: Ask, callers: int, seconds: float) -> list[float]:
    """Keep so many requests in flight; return the seconds that each answer took.

    Counts from when every caller has been answered twice: connections are open then, and a gateway that has just
    started gives its models as many calls as it will.
    """
    took: list[float] = []
    cold, going = callers, True
    warm = asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=callers), timeout=timeout) as session:

        async def caller() -> None:
            nonlocal cold
            await ask(session)
            await ask(session)
            cold -= 1
            if not cold:
                warm.set()
            while going:
                began_s = time.perf_counter()
                await ask(session)
                took.append(time.perf_counter() - began_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())
            await warm.wait()
            before = len(took)
            await asyncio.sleep(seconds)
            found = took[before:]
            going = False
    return found


class Asked:
    """The requests that are sent, and the queries that a gateway answered.

    ``settings``: of the gateways. ``answered``: their ids. ``strayed``: queries that took another path than the one
    that is measured: a call to the small model failed, as calls do on a machine without time to spare.
    """

    def __init__(self, models_port: int, settings: Settings) -> None:
        workload = next(iter(settings.workloads.values()))
        assert workload.small is not None
        self._direct_body = build_request(workload, workload.small, _TEXT).body
        self._direct_url = f"http://127.0.0.1:{models_port}/v1/completions"
        self.answered: set[str] = set()
        self.strayed = 0

    async def direct(self, session: aiohttp.ClientSession) -> None:
        """Ask the model server itself what the gateway would ask it."""
        async with session.post(self._direct_url, data=self._direct_body, headers=_JSON) as answer:
            document = json.loads(await answer.read())
        assert document["choices"][0]["finish_reason"] == "stop"

    def through(self, port: int, workload: str, *, escalated: bool) -> Ask:
        """Return what asks a gateway for a workload."""
        body = {"model": workload, "messages": [{"role": "user", "content": _TEXT}]}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"

        async def ask(session: aiohttp.ClientSession) -> None:
            query_id = uuid.uuid4().hex
            async with session.post(url, json=body, headers={"X-Query-Id": query_id}) as answer:
                document = json.loads(await answer.read())
                assert answer.status == 200, document
            self.strayed += document["ucci"]["escalated"] != escalated
            self.answered.add(query_id)

        return ask
