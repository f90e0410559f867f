"""The contract as documents: JSON Schema of every event, AsyncAPI of all topics, reference pages of keys and topics.

They are made from the models and the topic table; equal code gives equal bytes. ``python -m tools.docs.documents``
writes them, ``--check`` names those that are stale and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.event import Event
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.labelled import LabelledExample
from schemas.routed import QueryEvent, RoutedEvent
from schemas.settings import TopicSettings
from schemas.status import HappeningEvent, RecalibratorStatus, RouterStatus, WorkloadStatus
from schemas.traffic import TrafficSummary
from schemas.trial import CalibrationTrial
from tools.docs.asyncapi import asyncapi
from tools.docs.numpydoc import parameter_texts, summary
from tools.docs.reference_pages import configuration_page, topics_page

CONTRACT_VERSION = "1.1.0"
"""Raised in its second place with every addition; there are no other changes."""

EVENTS: dict[str, type[Event]] = {
    event.__name__: event
    for event in (
        CalibrationTrial,
        CalibrationVersion,
        Command,
        FeedbackEvent,
        LabelRequested,
        HappeningEvent,
        LabelledExample,
        QueryEvent,
        RecalibratorStatus,
        RoutedEvent,
        RouterStatus,
        TrafficSummary,
        WorkloadStatus,
    )
}

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ROOT = Path(__file__).resolve().parents[2]


class _Generator(GenerateJsonSchema):
    """Explains each field by the docstring of its class, and leaves out titles that only repeat a key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        document = super().model_schema(schema)
        model = schema["cls"]
        document["description"] = summary(model)
        texts = parameter_texts(model)
        for name, field in document.get("properties", {}).items():
            if name in texts:
                field["description"] = texts[name]
        return document


def json_schema(event: type[Event]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what may be sent as one event; unknown keys are allowed and ignored.

    Examples
    --------
    >>> json_schema(QueryEvent)["required"]
    ['query_id', 'text']
    """
    document = event.model_json_schema(schema_generator=_Generator, mode="validation")
    return {"$schema": _DIALECT, "$id": f"urn:ucci-stream:{event.__name__}", **document}


def documents() -> dict[str, str]:
    """Return the text of every generated document by its path in the repository."""
    prefix = TopicSettings().prefix
    written = {
        f"schemas/generated/{name}.schema.json": _json(json_schema(event)) for name, event in sorted(EVENTS.items())
    }
    written["schemas/generated/asyncapi.json"] = _json(asyncapi(EVENTS, prefix=prefix, version=CONTRACT_VERSION))
    written["docs/reference/configuration.md"] = configuration_page()
    written["docs/reference/topics.md"] = topics_page(prefix)
    return written


def stale(root: Path) -> Iterator[str]:
    """Name the documents under a root that do not hold what :func:`documents` says, superfluous ones included."""
    wanted = documents()
    for name, text in wanted.items():
        path = root / name
        if not path.is_file() or path.read_bytes() != text.encode():
            yield name
    for path in sorted((root / "schemas" / "generated").glob("*.json")):
        name = path.relative_to(root).as_posix()
        if name not in wanted:
            yield name


def write(root: Path) -> None:
    """Write every document under a root and remove generated ones that no event stands behind any more."""
    wanted = documents()
    for name in list(stale(root)):
        path = root / name
        if name not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[name].encode())


def main(arguments: list[str] | None = None) -> int:
    """Write the documents, or with ``--check`` only name those that are stale; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.documents", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a document is stale")
    parser.add_argument("--root", type=Path, default=_ROOT, help="the repository (default: where this package lies)")
    options = parser.parse_args(arguments)
    found = list(stale(options.root))
    if not options.check:
        write(options.root)
    for name in found:
        sys.stdout.write(f"{name}: {'is stale; run make docs' if options.check else 'written'}\n")
    return 1 if options.check and found else 0


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
