"""``ucci-stream init``: makes a ``ucci.toml`` for two model servers, from options, answers and what the servers say."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from schemas.errors import ConfigError
from schemas.routed import ModelRole
from schemas.settings import Settings
from schemas.settings_text import parse_settings, require_models, settings_warnings
from schemas.settings_workload import TEXT_PLACEHOLDER, ModelEndpoint
from stream_router.errors import CallError
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.http_probe import ROLES, probe_workload
from stream_router.model_client.model_names import is_wildcard
from stream_router.model_client.request import SAMPLE_TEXT
from ucci_stream.offline.gold_lines import read_gold
from ucci_stream.offline.model_answers import doubts_of

#: Option, question, default → answer; raises :class:`ConfigError` naming the option where nobody can be asked.
Ask = Callable[[str, str, str | None], str]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN_MODELS = 8
_NEW_FILE = """\
# Written by ucci-stream init; every key: ucci-stream check-config, docs/reference/configuration.md
[kafka]
"bootstrap.servers" = {kafka}
"""


class Given(NamedTuple):
    """What the command line holds; None where it leaves something out."""

    workload: str
    kafka: str
    target: float
    api: str
    urls: Mapping[ModelRole, str | None]
    models: Mapping[ModelRole, str | None]
    #: With ``{text}``.
    prompt: str | None
    #: Empty where they are to be found.
    fields: tuple[str, ...]
    #: Gold lines: they name the fields.
    gold: Path | None
    #: The file that the workload is added to; None makes a new one.
    existing: str | None = None


class FirstConfig(NamedTuple):
    """The text of the file, and what a person should know of it."""

    text: str
    warnings: tuple[str, ...]


def first_config(given: Given, environ: Mapping[str, str], ask: Ask) -> FirstConfig:
    """Make a ``ucci.toml``; both model servers are asked for their models, and one query each.

    ``environ``: overrides of settings, API keys among them. Raises ConfigError when something is missing, a server
    cannot be used as configured, or the file would not be valid.
    """
    if given.existing is not None and given.workload in parse_settings(given.existing, environ).workloads:
        raise ConfigError([f"--workload: {given.workload} is in the file already; give another name"])
    gold = () if given.gold is None else read_gold(given.gold)
    urls = {role: given.urls[role] or ask(f"--{role}-url", f"Address of the {role} model", None) for role in ROLES}
    models = {role: given.models[role] or _model_of(role, urls[role], ask) for role in ROLES}
    named = Counter(name for query in gold for name in query.line.entities)
    fields = given.fields or tuple(name for name, _ in named.most_common())
    if given.prompt is None and not fields:
        fields = _split(ask("--fields", "Fields to extract, separated by commas", None))
    draft = _Draft(given, urls, models, default_prompt(fields) if given.prompt is None else given.prompt)
    if not fields:
        fields = draft.fields_of_an_answer(environ, ask)
    text = draft.text(fields)
    settings = _checked(text, environ)
    texts = dict.fromkeys(ROLES, gold[0].line.text if gold else SAMPLE_TEXT)
    probed = asyncio.run(probe_workload(settings.workloads[given.workload], texts))
    return FirstConfig(text, (*settings_warnings(settings), *doubts_of(probed)))


def default_prompt(fields: Sequence[str]) -> str:
    """Return a prompt that asks for these fields."""
    return (
        f"Extract {', '.join(fields)} from the query as one JSON object with exactly these keys; null where the query "
        f"says nothing.\nQuery: {TEXT_PLACEHOLDER}\nJSON:"
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """The file but for its fields."""

    given: Given
    urls: Mapping[ModelRole, str]
    models: Mapping[ModelRole, str]
    prompt: str

    def text(self, fields: Sequence[str]) -> str:
        given = self.given
        name = given.workload if _BARE_KEY.fullmatch(given.workload) else _quoted(given.workload)
        ends = "\n".join(
            f"{role} = {{ base_url = {_quoted(self.urls[role])}, model = {_quoted(self.models[role])} }}"
            for role in ROLES
        )
        new = _NEW_FILE.format(kafka=_quoted(given.kafka))
        begun = new if given.existing is None else f"{given.existing.rstrip()}\n"
        return f"""\
{begun}
[workloads.{name}]
prompt = {_quoted(self.prompt)}
fields = [{", ".join(map(_quoted, fields))}]
api = {_quoted(given.api)}
{ends}
target = {{ micro_f1 = {given.target} }}   # or cost = 1.7, fields = {{ NAME = 0.9 }}, max_escalation = 0.4
# cost = {{ small = 1.0, large = 3.0 }}   # what one call costs you; by default the ratio of both latencies
"""

    def fields_of_an_answer(self, environ: Mapping[str, str], ask: Ask) -> tuple[str, ...]:
        """Return the keys that the large model answers with, confirmed where somebody can be asked."""
        workload = _checked(self.text(["field"]), environ).workloads[self.given.workload]
        query = ask("--fields", "A query to try the prompt with", None)
        (probed,) = asyncio.run(probe_workload(workload, {"large": query}))
        doubts_of((probed,))
        try:
            keys = list(json.loads("[]" if probed.reply is None else probed.reply.text))
        except (ValueError, TypeError):
            keys = []
        return _split(ask("--fields", "Fields", ",".join(keys) or None))


def _model_of(role: ModelRole, url: str, ask: Ask) -> str:
    # A name that stands for many is nothing that a server can be asked for.
    served = sorted(name for name in asyncio.run(_served(role, url)) if not is_wildcard(name))
    if len(served) == 1:
        return served[0]
    listed = f" ({', '.join(served[:_SHOWN_MODELS])})" if served else ""
    return ask(f"--{role}-model", f"Name of the {role} model at {url}{listed}", None)


async def _served(role: ModelRole, url: str) -> Mapping[str, str]:
    try:
        endpoint = ModelEndpoint(base_url=url, model="unknown yet")
    except ValueError:
        raise ConfigError([f"--{role}-url: is {url!r}; it must be like http://host:8000/v1"]) from None
    connection = ModelConnection(endpoint, max_connections=1, max_tokens=1)
    try:
        return await connection.models()
    except CallError as error:
        raise ConfigError(
            [f"--{role}-url: {endpoint.public_url} does not list its models ({error}); start it or name --{role}-model"]
        ) from None
    finally:
        await connection.close()


def _checked(text: str, environ: Mapping[str, str]) -> Settings:
    settings = parse_settings(text, environ)
    require_models(settings)
    return settings


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _quoted(text: str) -> str:
    """Return a TOML string: JSON's, whose escapes TOML shares."""
    return json.dumps(text, ensure_ascii=False)
