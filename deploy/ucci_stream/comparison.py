"""The large model's answer to a query that the service kept: asked directly, for people to compare."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from schemas.routed import ModelRun
from schemas.settings import WorkloadSettings
from stream_router.core.answer import InvalidAnswerError, read_entities
from stream_router.core.request import build_probe, build_request
from stream_router.shell.model_server import CallError, ModelServerClient


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
    client = ModelServerClient(f"{workload.name}/large", endpoint, build_probe(workload, endpoint), _Clock())
    await client.start()
    try:
        answered = await client.call(build_request(workload, endpoint, text))
        entities = read_entities(answered.reply.text, workload.fields)
    except (CallError, InvalidAnswerError) as error:
        return ModelRun(model=endpoint.model, valid=False, error=str(error))
    finally:
        await client.close()
    return ModelRun(
        model=endpoint.model,
        raw=answered.reply.text,
        entities=entities,
        valid=True,
        uncertainty=answered.reply.uncertainty,
        completion_tokens=answered.reply.completion_tokens,
        finish_reason=answered.reply.finish_reason,
        latency_s=answered.latency_s,
    )
