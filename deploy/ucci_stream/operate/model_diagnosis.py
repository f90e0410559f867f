"""What the doctor asks the model servers: one completion of a sample query each, with the workload's own prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from schemas.settings import Settings, WorkloadSettings
from stream_router.model_client.http_probe import Probed, probe_workload
from ucci_stream.operate.findings import Finding

_UNANSWERED = "start the server, or correct base_url, model or api_key"
_UNUSABLE = "correct what the line names, in the configuration or at the server"


def model_findings(settings: Settings) -> list[Finding]:
    """Return how each configured model answers; blocks up to the longest time-out."""
    return asyncio.run(_probe_all(settings))


async def _probe_all(settings: Settings) -> list[Finding]:
    workloads = list(settings.workloads.values())
    probed = await asyncio.gather(*map(probe_workload, workloads))
    pairs = zip(workloads, probed, strict=True)
    return [found for workload, servers in pairs for one in servers for found in _of_server(workload, one)]


def _of_server(workload: WorkloadSettings, probed: Probed) -> Iterator[Finding]:
    """Yield what a probe found; a server without answer is a fault here, though services wait for it."""
    for found in probed.findings:
        is_fault = found.kind == "fault" or probed.reply is None
        remedy = _UNANSWERED if probed.reply is None else _UNUSABLE
        yield Finding("models", "fault" if is_fault else "warning", found.line, remedy)
    if not probed.findings:
        line = f"workloads.{workload.name}.{probed.role}: answers with log-probabilities in {probed.latency_s:.2f} s"
        yield Finding("models", "ok", line)
