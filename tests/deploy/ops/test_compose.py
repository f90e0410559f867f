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


def test_services_have_settings_that_their_commands_take() -> None:
    """Each with a name of its own, and all that draw with one key."""
    found = {name: settings_of(name, UCCI_ROUTER__DRAW_KEY=2 * KEY) for name in OURS}
    for settings in found.values():
        assert settings.kafka["bootstrap.servers"] == "kafka:9092"
        assert settings.recalibrator.api_keys["admin"].key is not None
    routers = [found[name].router for name in ("router-0", "router-1")]
    assert {(router.http_host, router.http_port) for router in routers} == {("0.0.0.0", 8081)}
    assert [router.instance_id for router in routers] == ["router-0", "router-1"]
    assert found["gateway"].gateway.instance_id not in ("router-0", "router-1")
    drawing = [found[name].router.draw_with for name in ("router-0", "router-1", "gateway", "operator")]
    assert drawing == [(2 * KEY).encode()] * 4
    assert settings_of("router-0").router.draw_with is None
    gateway = services()["gateway"]
    assert (gateway["command"][0], gateway["profiles"]) == ("serve", ["gateway"])


def test_ports_are_published_to_this_machine_alone() -> None:
    ports = {name: service["ports"] for name, service in services().items() if "ports" in service}
    for name, port in (("recalibrator", 8080), ("gateway", 8082)):
        options = getattr(settings_of(name), name)
        assert (options.http_host, options.http_port) == ("0.0.0.0", port)
        assert ports[name] == [f"127.0.0.1:{port}:{port}"]
    assert [port for found in ports.values() for port in found if not port.startswith("127.0.0.1:")] == []


def test_gateway_without_its_key_says_so() -> None:
    """The other services start without: nobody has to invent a key for a profile that is not used."""
    with pytest.raises(ConfigError, match=r"gateway\.api_keys\)\.caller\.key: is empty"):
        settings_of("gateway", UCCI_GATEWAY_KEY="")
    assert settings_of("router-0", UCCI_GATEWAY_KEY="").gateway.api_keys == {}
    assert example()["UCCI_ADMIN_KEY"] == "", "nobody's key is known to all who read the example"


def test_models_are_asked_as_they_are_served() -> None:
    """The demo's by its prompt; real ones under the same addresses, in a profile that does not run with it."""
    for prefix, profile, names in (("", "demo", {}), ("vllm-", "gpu", {"SMALL_MODEL": "4b", "LARGE_MODEL": "12b"})):
        workload = settings_of("router-0", **names).workloads["photo-search"]
        assert workload.prompt == PROMPT
        for role, endpoint in (("small", workload.small), ("large", workload.large)):
            assert endpoint is not None
            assert endpoint.base_url == f"http://{role}:8000/v1"
            service = services(**names)[f"{prefix}{role}"]
            assert service["profiles"] == [profile]
            assert re.search(rf"--served-model-name[= ]{endpoint.model}\b", " ".join(service["command"]))
            assert not prefix or service["networks"]["default"]["aliases"] == [role]
    assert example()["COMPOSE_PROFILES"] == "demo"


def test_images_are_pinned_to_what_the_project_is_tested_with() -> None:
    found = {name: service["image"] for name, service in services().items()}
    assert found["kafka"] == f"apache/kafka:{KAFKA_VERSION}"
    assert found["vllm-small"] == found["vllm-large"] == f"vllm/vllm-openai:v{VLLM_VERSION}"
    ours = {reference for reference in found.values() if reference.startswith("localhost/")}
    assert ours == {image.reference(target) for target in image.TARGETS}
    assert [name for name, reference in found.items() if reference.endswith(":latest") or ":" not in reference] == []


def test_mounted_files_exist() -> None:
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    for volume in (one for service in services().values() for one in service.get("volumes", [])):
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
