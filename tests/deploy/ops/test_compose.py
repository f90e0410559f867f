"""The compose file: what its containers start with, and that they find each other."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_text import load_settings
from schemas.settings_workload import ModelEndpoint
from tools.ops import image
from ucci_demo.model_server import PROMPT
from ucci_stream.local.kafka_install import KAFKA_VERSION, broker_properties
from ucci_stream.local.side_environment import VLLM_VERSION

FOLDER = Path(__file__).parents[3] / "deploy" / "compose"
OURS = ("topics", "router-0", "router-1", "gateway", "recalibrator", "operator")
KEY = "0123456789abcdef"


def example() -> dict[str, str]:
    lines = (FOLDER / ".env.example").read_text(encoding="utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines if line[:1].isupper())}


def services(**variables: str) -> dict[str, dict[str, Any]]:
    """Return the services, with the example's variables put in as Compose would."""
    given = example() | {"UCCI_ADMIN_KEY": KEY, "UCCI_GATEWAY_KEY": KEY} | variables

    def value(found: re.Match[str]) -> str:
        name, rest = found[1], found[2] or ""
        return given.get(name) or (rest[2:] if rest.startswith(":-") else "")

    text = re.sub(r"\$\{(\w+)(:[-?][^}]*)?\}", value, (FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    document = yaml.safe_load(text)
    assert isinstance(document["services"], dict)
    return document["services"]


def settings_of(name: str, **variables: str) -> Settings:
    environment = services(**variables)[name]["environment"]
    # What has no value there is passed on.
    given = {name: variables.get(name) if value is None else value for name, value in environment.items()}
    return load_settings(FOLDER / "ucci.toml", {name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize("name", OURS)
def test_service_has_settings_that_its_command_takes(name: str) -> None:
    settings = settings_of(name)
    assert settings.kafka["bootstrap.servers"] == "kafka:9092"
    assert settings.recalibrator.api_keys["admin"].key is not None


def test_routers_and_gateway_draw_with_one_key() -> None:
    for name in ("router-0", "router-1", "gateway", "operator"):
        assert settings_of(name, UCCI_ROUTER__DRAW_KEY=2 * KEY).router.draw_with == (2 * KEY).encode()
        assert settings_of(name).router.draw_with is None


def test_routers_have_names_of_their_own() -> None:
    routers = [settings_of(name).router for name in ("router-0", "router-1")]
    assert [router.instance_id for router in routers] == ["router-0", "router-1"]
    assert {(router.http_host, router.http_port) for router in routers} == {("0.0.0.0", 8081)}


@pytest.mark.parametrize(("name", "port"), [("recalibrator", 8080), ("gateway", 8082)])
def test_api_is_reached_from_the_host_with_a_key(name: str, port: int) -> None:
    options = getattr(settings_of(name), name)
    assert (options.http_host, options.http_port) == ("0.0.0.0", port)
    assert services()[name]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_gateway_has_a_key_and_a_name_of_its_own() -> None:
    assert services()["gateway"]["command"][0] == "serve"
    keys = "UCCI_GATEWAY__API_KEYS"
    assert [name for name, found in services().items() if keys in found.get("environment", {})] == ["gateway"]
    others = {settings_of(name).router.instance_id for name in ("router-0", "router-1")}
    assert settings_of("gateway").gateway.instance_id not in others


def test_gateway_without_its_key_says_so() -> None:
    """The other services start without: nobody has to invent a key for a profile that is not used."""
    with pytest.raises(ConfigError, match=r"gateway\.api_keys\)\.caller\.key: is empty"):
        settings_of("gateway", UCCI_GATEWAY_KEY="")
    assert settings_of("router-0", UCCI_GATEWAY_KEY="").gateway.api_keys == {}


def test_published_ports_are_this_machines_alone() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def endpoints(**variables: str) -> dict[str, ModelEndpoint]:
    workload = settings_of("router-0", **variables).workloads["photo-search"]
    assert workload.small is not None
    assert workload.large is not None
    return {"small": workload.small, "large": workload.large}


def test_demo_models_are_asked_as_they_were_trained() -> None:
    assert settings_of("router-0").workloads["photo-search"].prompt == PROMPT
    for role, endpoint in endpoints().items():
        command = services()[role]["command"]
        assert command[command.index("--served-model-name") + 1] == endpoint.model
        assert endpoint.base_url == f"http://{role}:8000/v1"


def test_real_models_have_the_addresses_of_the_demos() -> None:
    names = {"SMALL_MODEL": "small-4b", "LARGE_MODEL": "large-12b"}
    for role, endpoint in endpoints(**names).items():
        service = services(**names)[f"vllm-{role}"]
        assert service["networks"]["default"]["aliases"] == [role]
        assert f"--served-model-name={endpoint.model}" in service["command"]


def test_models_are_of_one_profile_at_a_time() -> None:
    wanted = {
        "demo": {"small", "large"},
        "gpu": {"vllm-small", "vllm-large"},
        "monitoring": {"prometheus", "alertmanager", "grafana"},
        "gateway": {"gateway"},
    }
    for profile, names in wanted.items():
        assert {name for name, service in services().items() if service.get("profiles") == [profile]} == names
    assert example()["COMPOSE_PROFILES"] == "demo"


def test_images_are_pinned_to_what_the_project_is_tested_with() -> None:
    found = {name: service["image"] for name, service in services().items()}
    assert found["kafka"] == f"apache/kafka:{KAFKA_VERSION}"
    assert found["vllm-small"] == found["vllm-large"] == f"vllm/vllm-openai:v{VLLM_VERSION}"
    ours = {reference for reference in found.values() if reference.startswith("localhost/")}
    assert ours == {image.reference(target) for target in image.TARGETS}
    assert [name for name, reference in found.items() if reference.endswith(":latest") or ":" not in reference] == []


def test_services_refer_to_services_configs_and_files_that_exist() -> None:
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    document, found = yaml.safe_load(text), services()
    for service in found.values():
        assert set(service.get("depends_on", {})) <= found.keys()
        assert {one["source"] for one in service.get("configs", [])} <= document["configs"].keys()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in document["volumes"] or (FOLDER / source).exists(), source
    assert all((FOLDER / one["file"]).exists() for one in document["configs"].values())


def test_our_containers_may_do_nothing_that_they_need_not() -> None:
    hardened = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    for name in (*OURS, "small", "large"):
        service = services()[name]
        assert {key: service[key] for key in hardened} == hardened
        assert "/tmp" in service["tmpfs"]


def test_kafka_is_configured_as_the_local_one_where_it_matters() -> None:
    """Durability and transactions as in the node that the tests run on."""
    given = services()["kafka"]["environment"]
    local = broker_properties("/data", 9092, 9093)
    for name in (
        "process.roles", "auto.create.topics.enable", "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor", "transaction.state.log.min.isr",
    ):  # fmt: skip
        # As the ``apache/kafka`` image reads a broker's settings.
        assert given["KAFKA_" + name.upper().replace(".", "_")] == local[name]
    assert len(base64.urlsafe_b64decode(given["CLUSTER_ID"] + "==")) == 16


def test_missing_key_is_asked_for() -> None:
    assert example()["UCCI_ADMIN_KEY"] == ""
    assert "${UCCI_ADMIN_KEY:?" in (FOLDER / "compose.yaml").read_text(encoding="utf-8")
