"""The large model's answer to a query that the service kept: asked directly, for people to compare."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from schemas.routed import ModelRun
from schemas.settings import WorkloadSettings
from stream_router.errors import CallError
from stream_router.model_client.answer import failed_run, judge
from stream_router.model_client.http_client import ModelServer
from stream_router.model_client.request import build_probe, build_request
from stream_router.ports import ServerName


class _Clock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


async def ask_large_directly(workload: WorkloadSettings, text: str) -> ModelRun | None:
    """Ask the workload's large model, past the service.

    Returns
    -------
    ModelRun or None
        None where no large model is configured; a run with ``valid`` false where it did not answer.
    """
    endpoint = workload.large
    if endpoint is None:
        return None
    server = ModelServer(
        ServerName(workload.name, "large"),
        endpoint,
        build_probe(workload, endpoint),
        max_tokens=workload.max_tokens,
        clock=_Clock(),
    )
    await server.start()
    try:
        answered = await server.call(build_request(workload, endpoint, text))
    except CallError as error:
        return failed_run(endpoint.model, str(error))
    finally:
        await server.close()
    return judge(endpoint.model, answered.reply, workload.fields, answered.latency_s)
