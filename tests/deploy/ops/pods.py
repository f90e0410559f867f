"""What a container of the chart or of the compose file would read at its start: its configuration and variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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
        return variables(self.container, {"name": self.name, "namespace": self.namespace}, lambda _: SECRET, {})

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


def variables(
    container: Manifest, meta: Manifest, secret: Callable[[Manifest], str], known: Mapping[str, str]
) -> dict[str, str]:
    """Return what a container's ``env`` adds to the variables that are known; ``secret`` answers its references."""
    found = dict(known)
    for one in container.get("env", []):
        source = one.get("valueFrom", {})
        if "fieldRef" in source:
            found[one["name"]] = meta[source["fieldRef"]["fieldPath"].removeprefix("metadata.")]
        elif "secretKeyRef" in source:
            found[one["name"]] = secret(source["secretKeyRef"])
        else:
            found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), one.get("value", ""))
    return found
