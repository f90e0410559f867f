"""Strict validation of Kubernetes objects without a cluster: the API's own schemas, and small ones for the CRDs."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

KUBERNETES = "1.36.0"
CRDS = Path(__file__).parent / "crds"

Manifest = dict[str, Any]


def objects(text: str) -> list[Manifest]:
    """Return the objects of a YAML stream."""
    # The loader in C, where PyYAML was built with it: a large chart takes a second otherwise.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(text, Loader=loader) if one]


def faults(one: Manifest) -> list[str]:
    """Return what is wrong with an object, a line each; unknown fields and unknown kinds are wrong."""
    validator = _validator(one["apiVersion"], one["kind"])
    name = f"{one['kind']} {one['metadata']['name']}"
    return [f"{name}: {error.json_path}: {error.message}" for error in validator.iter_errors(one)]


@cache
def _validator(api_version: str, kind: str) -> Draft202012Validator:
    group, _, version = api_version.rpartition("/")
    own = CRDS / f"{kind.lower()}-{version}.json"
    if own.exists():
        return Draft202012Validator(json.loads(own.read_text(encoding="utf-8")))
    stem = group.removesuffix(".k8s.io").split(".")[0]
    path = _schemas() / ("-".join(filter(None, (kind.lower(), stem, version))) + ".json")
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema.pop("$id", None)
    return Draft202012Validator(schema, registry=_registry())


@cache
def _registry() -> Registry[Any]:
    text = (_schemas() / "_definitions.json").read_text(encoding="utf-8")
    definitions = DRAFT7.create_resource(json.loads(text))
    names = ("_definitions.json", "/api/_definitions.json")
    return Registry().with_resources([(name, definitions) for name in names])


@cache
def _schemas() -> Path:
    # Its data alone: the package's code brings setuptools along.
    found = find_spec("kubernetes_validate")
    assert found is not None, "kubernetes-validate is missing: make setup"
    assert found.origin is not None
    return Path(found.origin).parent / "kubernetes-json-schema" / f"v{KUBERNETES}-local-strict"
