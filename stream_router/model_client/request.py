"""The HTTP request of one model, made from a query and its workload's settings. Pure.

Greedy decoding (temperature 0), and as many alternatives a token as the workload's uncertainty signal needs. Tokens are
asked for by id: named by their text, two that decode alike would overwrite each other. Where each token stands in the
text is then known only from a stream, in which both come together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from schemas.settings import WorkloadSettings
from schemas.settings_workload import TEXT_PLACEHOLDER, ModelEndpoint
from stream_router.model_client.uncertainty import SIGNALS, UncertaintySignal

#: Stands for a query where a server itself is asked.
SAMPLE_TEXT = "sample query"

#: Alternatives that a margin needs.
_PAIR = 2

_PATHS = {"completions": "/completions", "chat": "/chat/completions"}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request: path under the server's base URL, body, how u is measured, and whether it streams."""

    path: str
    body: bytes
    signal: UncertaintySignal
    streams: bool = False


def build_request(
    workload: WorkloadSettings, endpoint: ModelEndpoint, text: str, *, begun: str = "", marked: bool = False
) -> ModelRequest:
    """Return the request that asks one model about one query.

    ``text`` replaces ``{text}`` in the prompt, literally: prompts hold JSON braces. ``begun``: the beginning of an
    answer, which the model goes on from; the reply holds what follows it. ``marked``: whether it must be known where
    each token stands in the reply's text.
    """
    prompt = workload.prompt.replace(TEXT_PLACEHOLDER, text)
    signal = SIGNALS[workload.uncertainty]
    alternatives = max(signal.alternatives, _PAIR) if marked else signal.alternatives
    body = _body(workload, endpoint.model, prompt, workload.max_tokens, alternatives)
    if begun and workload.api == "chat":
        body["messages"].append({"role": "assistant", "content": begun})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    elif begun:
        body["prompt"] += begun
    if marked:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return ModelRequest(_PATHS[workload.api], to_json(body), signal, streams=marked)


def build_probe(workload: WorkloadSettings, endpoint: ModelEndpoint) -> ModelRequest:
    """Return the smallest completion: a server may hang while its health page answers."""
    signal = SIGNALS[workload.uncertainty]
    body = _body(workload, endpoint.model, "ping", 1, signal.alternatives)
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
    """Return the JSON Schema of an answer: every field a text, a list of texts, or null."""
    value = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    return {
        "type": "object",
        "properties": dict.fromkeys(fields, value),
        "required": list(fields),
        "additionalProperties": False,
    }
