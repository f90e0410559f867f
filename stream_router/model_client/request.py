"""The HTTP request of one model, made from a query and its workload's settings. Pure.

Greedy decoding (temperature 0), and as many alternatives a token as the workload's uncertainty signal needs. Tokens are
asked for by id: named by their text, two that decode alike would overwrite each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from schemas.settings import TEXT_PLACEHOLDER, ModelEndpoint, WorkloadSettings
from stream_router.model_client.uncertainty import SIGNALS, UncertaintySignal

_PATHS = {"completions": "/completions", "chat": "/chat/completions"}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request: path under the server's base URL, body, and how u is measured in the reply."""

    path: str
    body: bytes
    signal: UncertaintySignal


def build_request(workload: WorkloadSettings, endpoint: ModelEndpoint, text: str) -> ModelRequest:
    """Return the request that asks one model about one query.

    Parameters
    ----------
    workload : WorkloadSettings
    endpoint : ModelEndpoint
    text : str
        Replaces ``{text}`` in the prompt, literally: prompts hold JSON braces.
    """
    return _request(workload, endpoint, workload.prompt.replace(TEXT_PLACEHOLDER, text), workload.max_tokens)


def build_probe(workload: WorkloadSettings, endpoint: ModelEndpoint) -> ModelRequest:
    """Return the smallest completion: a server may hang while its health page answers."""
    return _request(workload, endpoint, "ping", 1)


def _request(workload: WorkloadSettings, endpoint: ModelEndpoint, prompt: str, max_tokens: int) -> ModelRequest:
    signal = SIGNALS[workload.uncertainty]
    body = _body(workload, endpoint.model, prompt, max_tokens, signal.alternatives)
    return ModelRequest(_PATHS[workload.api], to_json(body), signal)


def _body(workload: WorkloadSettings, model: str, prompt: str, max_tokens: int, alternatives: int) -> dict[str, Any]:
    guided = workload.decoding == "json_schema"
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "temperature": 0,
        "return_tokens_as_token_ids": True,
    }
    if workload.api == "chat":
        # A guided token need not be the most probable one, and chat replies list it first, then cut: one more keeps the
        # top ones. Completions add the chosen token to those asked for.
        alternatives += guided
        body |= {"messages": [{"role": "user", "content": prompt}], "logprobs": True, "top_logprobs": alternatives}
    else:
        body |= {"prompt": prompt, "logprobs": alternatives}
    if guided:
        schema = {"name": "entities", "schema": entities_schema(workload.fields), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def entities_schema(fields: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON Schema of an answer: every field a text, a list of texts, or null.

    Examples
    --------
    >>> entities_schema(("iso",))["required"]
    ['iso']
    """
    value = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    return {
        "type": "object",
        "properties": dict.fromkeys(fields, value),
        "required": list(fields),
        "additionalProperties": False,
    }
