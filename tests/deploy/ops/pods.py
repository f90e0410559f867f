"""What a container of the chart or of the compose file would read at its start: its configuration and variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.settings import Settings
from schemas.settings_text import load_settings
from tests.deploy.ops.manifests import Manifest

SECRET = "a-secret-of-sufficient-length-for-any-key"


@dataclass(frozen=True)
class Pod:
    """A pod's specification and where it comes from."""

    name: str
    namespace: str
    component: str
    spec: dict[str, Any]
    labels: dict[str, str]

    @property
    def container(self) -> dict[str, Any]:
        (only,) = self.spec["containers"]
        assert isinstance(only, dict)
        return only

    def environment(self) -> dict[str, str]:
        """Return its variables, with a stand-in for each secret."""
        fields = {"metadata.name": self.name, "metadata.namespace": self.namespace}
        found: dict[str, str] = {}
        for one in self.container.get("env", []):
            source = one.get("valueFrom", {})
            if "fieldRef" in source:
                found[one["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                found[one["name"]] = SECRET
            else:
                found[one["name"]] = _expanded(one["value"], found)
        return found

    def settings(self, config: str, folder: Path, secrets: dict[str, str]) -> Settings:
        """Return the settings that the command in it starts with."""
        path = folder / "ucci.toml"
        path.write_text(config, encoding="utf-8")
        return load_settings(path, {**self.environment(), **secrets})


def pods(objects: list[Manifest], namespace: str = "cascades") -> Iterator[Pod]:
    """Return a pod of each workload, as its controller would name it."""
    for one in objects:
        name, spec = one["metadata"]["name"], one.get("spec", {})
        template = one if one["kind"] == "Pod" else spec.get("template")
        if template is not None:
            labels = template["metadata"]["labels"]
            component = labels["app.kubernetes.io/component"]
            numbered = f"{name}-0" if one["kind"] == "StatefulSet" else name
            yield Pod(numbered, namespace, component, template["spec"], labels)


def _expanded(value: str, known: dict[str, str]) -> str:
    for name, given in known.items():
        value = value.replace(f"$({name})", given)
    return value
