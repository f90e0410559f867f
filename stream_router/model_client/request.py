"""One query and its workload's settings → the HTTP request of one model. Pure.

Greedy decoding (temperature 0) and two alternatives a token, which is what u is made of. Tokens are asked for by id:
named by their text, two that decode alike would overwrite each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from schemas.settings import TEXT_PLACEHOLDER, ModelEndpoint, WorkloadSettings

ALTERNATIVES = 2
GUIDED_CHAT_ALTERNATIVES = 3
"""A guided token need not be the most probable one, and chat replies list it first, then cut: one more keeps the top
two. Completions add the chosen token to the ones asked for."""

_PATHS = {"completions": "/completions", "chat": "/chat/completions"}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request: path under the server's base URL, and body."""

    path: str
    body: bytes


def build_request(workload: WorkloadSettings, endpoint: ModelEndpoint, text: str) -> ModelRequest:
    """Return the request that asks one model about one query.

    Parameters
    ----------
    workload : WorkloadSettings
    endpoint : ModelEndpoint
    text : str
        Replaces ``{text}`` in the prompt, literally: prompts hold JSON braces.
    """
    prompt = workload.prompt.replace(TEXT_PLACEHOLDER, text)
    return ModelRequest(_PATHS[workload.api], to_json(_body(workload, endpoint.model, prompt, workload.max_tokens)))


def build_probe(workload: WorkloadSettings, endpoint: ModelEndpoint) -> ModelRequest:
    """Return the smallest completion: a server may hang while its health page answers."""
    return ModelRequest(_PATHS[workload.api], to_json(_body(workload, endpoint.model, "ping", 1)))


def _body(workload: WorkloadSettings, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    guided = workload.decoding == "json_schema"
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "temperature": 0,
        "return_tokens_as_token_ids": True,
    }
    if workload.api == "chat":
        alternatives = GUIDED_CHAT_ALTERNATIVES if guided else ALTERNATIVES
        body |= {"messages": [{"role": "user", "content": prompt}], "logprobs": True, "top_logprobs": alternatives}
    else:
        body |= {"prompt": prompt, "logprobs": ALTERNATIVES}
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
