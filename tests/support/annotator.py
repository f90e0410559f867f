"""An annotator at work: Label Studio's own API, as its pages call it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any


class Annotator:
    """One account of a running Label Studio."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def tasks(self, project: int) -> dict[str, dict[str, Any]]:
        found = self._call("GET", f"/api/tasks?project={project}&fields=all&page_size=1000")["tasks"]
        assert len({task["data"]["query_id"] for task in found}) == len(found), "a query was pushed twice"
        return {task["data"]["query_id"]: task for task in found}

    def next_task(self, project: int) -> dict[str, Any]:
        return dict(self._call("GET", f"/api/projects/{project}/next/"))

    def annotate(self, task: int, entities: dict[str, str]) -> int:
        return int(self._call("POST", f"/api/tasks/{task}/annotations/", {"result": regions(entities)})["id"])

    def submit(self, task: int, result: list[dict[str, Any]]) -> int:
        return int(self._call("POST", f"/api/tasks/{task}/annotations/", {"result": result})["id"])

    def make_project(self, title: str, label_config: str, *tasks: dict[str, Any]) -> int:
        project = self._call("POST", "/api/projects/", {"title": title, "label_config": label_config})["id"]
        if tasks:
            self._call("POST", f"/api/projects/{project}/import", [{"data": data} for data in tasks])
        return int(project)

    def skip(self, task: int) -> int:
        content = {"result": [], "was_cancelled": True}
        return int(self._call("POST", f"/api/tasks/{task}/annotations/", content)["id"])

    def correct(self, annotation: int, entities: dict[str, str]) -> None:
        self._call("PATCH", f"/api/annotations/{annotation}/", {"result": regions(entities)})

    def delete(self, annotation: int) -> None:
        self._call("DELETE", f"/api/annotations/{annotation}/")

    def personal_token(self) -> str:
        return str(self._call("POST", "/api/token/", {})["token"])

    def webhooks(self, project: int) -> list[dict[str, Any]]:
        return list(self._call("GET", f"/api/webhooks/?project={project}"))

    def _call(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"Token {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def regions(entities: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"from_name": field, "to_name": "query", "type": "textarea", "value": {"text": [value]}}
        for field, value in entities.items()
    ]
