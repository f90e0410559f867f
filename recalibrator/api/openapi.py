"""The API's OpenAPI document: what the framework finds in the routes, with the events' schemas and who may call what.

An application flows in, the document flows out; it tells of keys only where keys are configured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from recalibrator.api.http_answers import ErrorBody
from schemas.feedback import FeedbackEvent

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
_REFERRED: tuple[type[BaseModel], ...] = (ErrorBody, FeedbackEvent)
"""What routes name by reference."""

_REFERENCE = "#/components/schemas/{model}"
_GUARDED = "/v1/"


def document_of(app: FastAPI, *, has_keys: bool) -> Callable[[], dict[str, Any]]:
    """Return what stands in for ``app.openapi``: makes the document once.

    Parameters
    ----------
    app : FastAPI
        With all its routes.
    has_keys : bool
        Whether callers must show a key.
    """
    made_by_framework = app.openapi
    documents: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        if not documents:
            documents.append(_completed(made_by_framework(), has_keys=has_keys))
        return documents[0]

    return openapi


def _completed(document: dict[str, Any], *, has_keys: bool) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for model in _REFERRED:
        schema = model.model_json_schema(ref_template=_REFERENCE)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    if has_keys:
        components["securitySchemes"] = _SCHEMES
        for path, operations in document["paths"].items():
            if path.startswith(_GUARDED):
                for operation in operations.values():
                    operation["security"] = [{name: []} for name in _SCHEMES]
    return document
