"""A schema registry on a real port: the part of Confluent's protocol that registering and looking up takes.

A subject takes another schema only where the subject's own level lets the change pass; open schemas with an added
optional key pass under FORWARD alone. Subjects and ids last as long as the block.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.webhooks import Silent, answering


@dataclass
class Registry:
    """What it holds, and who asked."""

    url: str = ""
    #: ``user:password`` that it asks for; empty asks for none.
    user_info: str = ""
    #: Schemas of each subject, in order.
    subjects: dict[str, list[str]] = field(default_factory=dict)
    #: Number of each schema, the first one 101.
    ids: dict[str, int] = field(default_factory=dict)

    levels: dict[str, str] = field(default_factory=dict)

    def answer(self, method: str, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and document."""
        kind, subject = parts[0], parts[1]
        if kind == "config" and method == "PUT":
            self.levels[subject] = body["compatibility"]
            return 200, body
        if kind == "config":
            level = self.levels.get(subject)
            return (404, _error(40408, "not configured")) if level is None else (200, {"compatibilityLevel": level})
        schema, known = body["schema"], self.subjects.setdefault(subject, [])
        if parts[2:] == ["versions"]:
            if known and schema not in known and self.levels.get(subject) != "FORWARD":
                return 409, _error(409, "Schema being registered is incompatible with an earlier schema")
            if schema not in known:
                known.append(schema)
            return 200, {"id": self.ids.setdefault(schema, 101 + len(self.ids))}
        if schema not in known:
            return 404, _error(40403, "Schema not found")
        version = 1 + known.index(schema)
        return 200, {"subject": subject, "id": self.ids[schema], "version": version, "schema": schema}


@contextmanager
def serving(user_info: str = "") -> Iterator[Registry]:
    """Listen until the block ends."""
    registry = Registry(user_info=user_info)

    class Handler(Silent):
        def _answer(self) -> None:
            given = b64decode((self.headers["Authorization"] or "").removeprefix("Basic ")).decode()
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            if given != registry.user_info:
                status, document = 401, _error(401, "Unauthorized")
            else:
                status, document = registry.answer(self.command, parts, body)
            encoded = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 the library's names

    with answering(Handler) as address:
        registry.url = f"http://{address}"
        yield registry


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}
