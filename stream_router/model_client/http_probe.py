"""What a model server is really like: whether it serves the model, gives log-probabilities, and answers the prompt.

A probe is one GET of the list of models and one completion of a sample query with the workload's own prompt. Its
findings are for people, one line each: a *fault* can only be fixed in the configuration or at the server, a *doubt*
may pass by itself or be intended. Nothing waits for a probe: a server that is *away* may come back by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from schemas.routed import ModelRole
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_text import doubt_of_order
from schemas.settings_workload import ModelEndpoint
from stream_router.errors import (
    CallError,
    MisconfiguredError,
    RefusedError,
    TimedOutError,
    UnreachableError,
)
from stream_router.model_client.answer import judge_answer
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.model_names import may_serve
from stream_router.model_client.request import SAMPLE_TEXT, build_request
from stream_router.ports import Reply

ROLES: tuple[ModelRole, ModelRole] = ("small", "large")
_SHOWN_MODELS = 8
_SHOWN_CHARS = 80


class Finding(NamedTuple):
    """One thing that a person should know of a model server, in one line."""

    kind: Literal["fault", "away", "doubt"]
    role: ModelRole
    line: str


@dataclass(frozen=True, slots=True)
class Probed:
    """What one server said."""

    role: ModelRole
    #: Empty where all is well.
    findings: tuple[Finding, ...]
    #: Names of the models that the server lists, and what each is made of, where it says so.
    served: Mapping[str, str] = field(default_factory=dict)
    #: Its answer to the sample query.
    reply: Reply | None = None

    latency_s: float = 0.0


async def probe_workload(
    workload: WorkloadSettings, texts: Mapping[ModelRole, str] | None = None
) -> tuple[Probed, ...]:
    """Probe the servers of a workload at once; takes at most as long as the longer time-out.

    ``texts``: what to ask each model; a model that is left out is not asked. By default both get a sample query.
    Returns what each model said, the small one first. Whether the two are swapped stands with the large one.
    """
    texts = dict.fromkeys(ROLES, SAMPLE_TEXT) if texts is None else texts
    asked = [(role, at) for role in ROLES if role in texts and (at := getattr(workload, role)) is not None]
    probed = await asyncio.gather(*(_probe(workload, role, endpoint, texts[role]) for role, endpoint in asked))
    if len(probed) < len(ROLES):
        return tuple(probed)
    small, large = probed
    names = [f"{at.model} {one.served.get(at.model, '')}" for one, (_, at) in zip(probed, asked, strict=True)]
    doubt = doubt_of_order(names[0], names[1])
    # What the names in the file show already is among the warnings of the settings.
    if doubt is None or doubt_of_order(asked[0][1].model, asked[1][1].model) is not None:
        return small, large
    swapped = Finding("doubt", "large", f"{_key(workload, 'large')}: {doubt}")
    return small, replace(large, findings=(*large.findings, swapped))


async def probe_settings(settings: Settings) -> tuple[Finding, ...]:
    """Probe all servers of all workloads at once; returns what was found, by workload."""
    probed = await asyncio.gather(*map(probe_workload, settings.workloads.values()))
    return tuple(finding for workload in probed for one in workload for finding in one.findings)


async def _probe(workload: WorkloadSettings, role: ModelRole, endpoint: ModelEndpoint, text: str) -> Probed:
    connection = ModelConnection(endpoint, max_connections=2, max_tokens=workload.max_tokens)
    key, served = _key(workload, role), dict[str, str]()
    try:
        served = await _listed(connection)
        began_s = time.monotonic()
        reply = await connection.attempt(build_request(workload, endpoint, text))
        latency_s = time.monotonic() - began_s
    except (MisconfiguredError, RefusedError) as error:
        return Probed(role, (Finding("fault", role, _refusal(key, endpoint, served, error)),), served)
    except CallError as error:
        return Probed(role, (Finding("away", role, f"{key}: {endpoint.public_url} does not answer ({error})"),))
    finally:
        await connection.close()
    findings = (Finding(kind, role, f"{key}: {line}") for kind, line in _of_reply(workload, role, endpoint, reply))
    return Probed(role, tuple(findings), served, reply, latency_s)


async def _listed(connection: ModelConnection) -> dict[str, str]:
    """Return the models that the server lists; it may serve completions alone, and refuse or break off all else."""
    try:
        return await connection.models()
    except (UnreachableError, TimedOutError):
        raise
    except CallError:
        return {}


def _refusal(key: str, endpoint: ModelEndpoint, served: Mapping[str, str], error: CallError) -> str:
    """Return the server's own words, and what it serves where that is not the model that it was asked for.

    A list alone shows nothing: a server may answer to more names than it lists.
    """
    if not served or any(may_serve(name, endpoint.model) for name in served):
        return f"{key}: {error}"
    names = sorted(served)
    shown = ", ".join(names[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
    return f"{key}.model: {endpoint.model} is not served at {endpoint.public_url}; served there: {shown} ({error})"


def _of_reply(
    workload: WorkloadSettings, role: ModelRole, endpoint: ModelEndpoint, reply: Reply
) -> Iterable[tuple[Literal["fault", "doubt"], str]]:
    at = f"{endpoint.model} at {endpoint.public_url}"
    if reply.uncertainty is None:
        yield "fault", _of_no_signal(at, reply)
        return
    if role == "small" and reply.uncertainty == 0.0:
        line = (
            f"{at} gives every token of its answer probability 1, so that u is 0 whatever it answers: let the server "
            "report the model's own log-probabilities (vLLM does so without speculative decoding), and restart it"
        )
        yield "fault", line
    if reply.thought:
        line = (
            f"{at} thinks before it answers. u is measured of the answer's own tokens; the thinking is paid for, and "
            "counts towards max_tokens: switch it off where the answers are as good without"
        )
        yield "doubt", line
    run, fault = judge_answer(endpoint.model, reply, workload.fields, 0.0)
    if not run.valid:
        begin = " ".join(reply.text.split())[:_SHOWN_CHARS]
        remedy = (
            "Name the fields in the prompt exactly as in fields, or fields as the model does"
            if fault == "keys"
            else "Check prompt, api and max_tokens"
        )
        line = (
            f'the answer of {endpoint.model} to a sample query cannot be used: {run.error}; it begins "{begin}". '
            f"{remedy}"
        )
        yield "doubt", line


def _of_no_signal(at: str, reply: Reply) -> str:
    if reply.defect is not None:
        return f"{at} answers, but u cannot be measured: {reply.defect}"
    return (
        f"{at} returns no log-probabilities, which the uncertainty is measured from; let the server return them "
        "(vLLM does by itself), or ask it without a proxy"
    )


def _key(workload: WorkloadSettings, role: ModelRole) -> str:
    return f"workloads.{workload.name}.{role}"
