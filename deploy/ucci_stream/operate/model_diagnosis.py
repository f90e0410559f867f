"""What the doctor asks the model servers: one completion of a sample query each, with the workload's own prompt."""

from __future__ import annotations

import asyncio

from schemas.routed import ModelRole
from schemas.settings import ModelEndpoint, Settings, WorkloadSettings
from stream_router.errors import CallError, MisconfiguredError, RefusedError
from stream_router.model_client.answer import parse_answer
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.request import build_request
from ucci_stream.operate.findings import Finding

_SAMPLE = "sample query"
_SHOWN_CHARS = 80


def model_findings(settings: Settings) -> list[Finding]:
    """Return how each configured model answers; blocks up to the longest time-out."""
    return asyncio.run(_probe_all(settings))


async def _probe_all(settings: Settings) -> list[Finding]:
    roles: tuple[ModelRole, ...] = ("small", "large")
    asked = [
        (workload, role, endpoint)
        for workload in settings.workloads.values()
        for role in roles
        if (endpoint := getattr(workload, role)) is not None
    ]
    return list(await asyncio.gather(*(_probe(*one) for one in asked)))


async def _probe(workload: WorkloadSettings, role: ModelRole, endpoint: ModelEndpoint) -> Finding:
    key = f"workloads.{workload.name}.{role}"
    connection = ModelConnection(endpoint, max_connections=1, max_tokens=workload.max_tokens)
    try:
        reply = await connection.attempt(build_request(workload, endpoint, _SAMPLE))
    except (MisconfiguredError, RefusedError) as error:
        return Finding("models", "fault", f"{key}: {error}", "correct base_url, model or api_key")
    except CallError as error:
        line = f"{key}: {endpoint.public_url} does not answer ({error})"
        return Finding("models", "fault", line, "start the server, or correct base_url")
    finally:
        await connection.close()
    if reply.uncertainty is None:
        line = f"{key}: {endpoint.model} returns no log-probabilities, which the uncertainty is measured from"
        return Finding("models", "fault", line, "let the server return them, or ask it without a proxy")
    run = parse_answer(endpoint.model, reply, workload.fields, 0.0)
    if not run.valid:
        begin = " ".join(reply.text.split())[:_SHOWN_CHARS]
        line = f'{key}: the answer to a sample query cannot be used: {run.error}; it begins "{begin}"'
        return Finding("models", "warning", line, "check prompt, api (its chat template) and max_tokens")
    return Finding("models", "ok", f"{key}: {endpoint.model} answers, with log-probabilities")
