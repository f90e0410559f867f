"""The Helm chart as it is rendered: valid for Kubernetes, startable for our commands, and no wider open than needed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from recalibrator import service as recalibrator_service
from schemas.settings import RecalibratorSettings, RouterSettings, Settings
from schemas.topics import TOPICS
from stream_router import process as router_process
from stream_router import service as router_service
from tests.deploy.ops.manifests import Manifest, faults, objects
from tests.deploy.ops.pods import SECRET, Pod, pods
from tools.ops.render import CHART, RENDERED, digest, kept_digest, values_files
from ucci_runtime.broker.kafka_properties import ClientNames
from ucci_stream.topics.admin import topic_config

NAMES = [path.name for path in values_files()]
SECRETS = {"UCCI_RECALIBRATOR__API_KEYS": json.dumps({"ada": {"key_sha256": sha256(b"key").hexdigest()}})}
"""What the Secrets hold that the ci files name."""

every_values = pytest.mark.parametrize("name", NAMES)


@cache
def rendered(name: str) -> list[Manifest]:
    return objects((RENDERED / name).read_text(encoding="utf-8"))


def of_kind(found: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in found if one["kind"] == kind]


def config_of(found: list[Manifest]) -> str:
    (text,) = {one["data"]["ucci.toml"] for one in of_kind(found, "ConfigMap") if "ucci.toml" in one["data"]}
    assert isinstance(text, str)
    return text


def started(name: str, folder: Path) -> Iterator[tuple[Pod, Settings]]:
    found = rendered(name)
    for pod in pods(found):
        yield pod, pod.settings(config_of(found), folder, SECRETS)


# --- valid ---


@every_values
def test_rendered_objects_are_those_of_this_chart(name: str) -> None:
    """A change of the chart needs `make chart`."""
    assert kept_digest((RENDERED / name).read_text(encoding="utf-8")) == digest()


@every_values
def test_objects_are_valid_to_the_last_field(name: str) -> None:
    found = rendered(name)
    assert len(found) >= 12
    assert [fault for one in found for fault in faults(one)] == []


@every_values
def test_objects_have_names_of_their_own(name: str) -> None:
    keys = [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in rendered(name)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [
        ("StatefulSet", ("spec", "template", "spec"), "terminationGracePeriod"),
        ("ScaledObject", ("spec",), "maxReplicas"),
        ("KafkaTopic", ("spec",), "partition"),
        ("ServiceMonitor", ("spec",), "endpoint"),
    ],
)
def test_misspelt_field_of_an_object_is_found(kind: str, path: tuple[str, ...], key: str) -> None:
    """The validation that the other tests rest on can fail."""
    one = copy.deepcopy(of_kind(rendered("strimzi-scram.yaml"), kind)[0])
    place = one
    for step in path:
        place = place[step]
    place[key] = 1
    assert [fault for fault in faults(one) if key in fault]


# --- the schema of the values ---


def values_faults(values: dict[str, Any]) -> list[str]:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return [error.message for error in Draft7Validator(schema).iter_errors(values)]


def defaults() -> dict[str, Any]:
    found = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@every_values
def test_values_of_ci_are_valid(name: str) -> None:
    assert values_faults(yaml.safe_load((CHART / "ci" / name).read_text(encoding="utf-8"))) == []


def test_schema_knows_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def differing(values: dict[str, Any], known: dict[str, Any], path: str) -> Iterator[str]:
        for key in values.keys() ^ known.keys():
            yield f"{path}{key}"
        for key in values.keys() & known.keys():
            inner = known[key].get("properties")
            if inner and isinstance(values[key], dict) and key not in ("requests", "limits"):
                yield from differing(values[key], inner, f"{path}{key}.")

    assert values_faults(defaults()) == []
    wrong = set(differing(defaults(), schema["properties"], ""))
    assert {one for one in wrong if not re.search(r"resources\.(requests|limits)$", one)} == {"global"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("router.replica", 3),
        ("router.terminationGracePeriodSeconds", 10),
        ("kafka.securityProtocol", "SASL"),
        ("kafka.bootstrapServers", "kafka"),
        ("kafka.users.router.password", "secret"),
        ("image.pullPolicy", "Sometimes"),
        ("recalibrator.api.service.port", 0),
        ("strimzi.topics.joinRetentionMs", 1000),
        ("router.autoscaling.scaleDownStabilizationSeconds", 0),
        ("secrets", {}),
    ],
)
def test_wrong_value_is_refused(path: str, value: object) -> None:
    values = defaults()
    place = values
    *steps, last = path.split(".")
    for step in steps:
        place = place[step]
    place[last] = value
    assert values_faults(values)


# --- what the commands in it start with ---


@every_values
def test_every_pod_has_settings_that_its_command_takes(name: str, tmp_path: Path) -> None:
    components = [pod.component for pod, _ in started(name, tmp_path)]
    assert {"router", "join", "fit", "api", "test"} <= set(components)


@every_values
def test_probes_ask_where_the_command_listens(name: str, tmp_path: Path) -> None:
    for pod, settings in started(name, tmp_path):
        if pod.component in ("topics", "test"):
            continue
        listens = {
            "router": (settings.router.http_host, settings.router.http_port),
            "api": (settings.recalibrator.http_host, settings.recalibrator.http_port),
        }.get(pod.component, (settings.recalibrator.probe_host, settings.recalibrator.probe_port))
        (port,) = pod.container["ports"]
        assert listens == ("0.0.0.0", port["containerPort"])
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")):
            assert pod.container[probe]["httpGet"] == {"path": path, "port": port["name"]}


@every_values
def test_pods_outlive_their_drain(name: str, tmp_path: Path) -> None:
    longest = router_process.MAX_DRAIN_S + router_service.FINAL_COMMIT_S
    for pod, _ in started(name, tmp_path):
        if pod.component == "router":
            assert pod.spec["terminationGracePeriodSeconds"] > longest + 5
        elif pod.component in ("join", "fit", "api"):
            assert pod.spec["terminationGracePeriodSeconds"] > recalibrator_service.END_TIMEOUT_S


@pytest.mark.parametrize("component", ["router", "join", "fit", "api"])
def test_releases_on_one_kafka_do_not_fence_each_other(component: str, tmp_path: Path) -> None:
    """Not of one name in two namespaces, nor of two names in one."""
    text = (RENDERED / "minimal.yaml").read_text(encoding="utf-8")
    found, other = objects(text), objects(text.replace("demo-ucci-stream", "second-ucci-stream"))
    config = config_of(found)
    ids, places = [], []
    for release, namespace in ((found, "a"), (found, "b"), (other, "a")):
        (pod,) = (pod for pod in pods(release, namespace) if pod.component == component)
        settings = pod.settings(config, tmp_path, SECRETS)
        is_router = component == "router"
        instance_id = (settings.router if is_router else settings.recalibrator).instance_id
        assert instance_id is not None
        names = ClientNames("router" if is_router else "recalibrator", settings.topics.prefix, instance_id)
        ids.append(names.transactional_id(component))
        places.append(f"{namespace}.{pod.name}")
    assert len(set(ids)) == 3
    assert all(one.endswith(place) for one, place in zip(ids, places, strict=True))


def test_longest_names_make_an_instance_id_that_is_taken() -> None:
    longest = f"{'n' * 63}.{'p' * 63}"
    RouterSettings(instance_id=longest)
    RecalibratorSettings(instance_id=longest)


def test_passwords_come_from_secrets_alone(tmp_path: Path) -> None:
    for pod, settings in started("strimzi-scram.yaml", tmp_path):
        user = {"router": "router", "topics": "operator", "test": "operator"}.get(pod.component, "recalibrator")
        assert settings.kafka["sasl.username"] == f"demo-ucci-stream-{user}"
        assert settings.kafka["sasl.password"] == SECRET
        assert settings.kafka["ssl.ca.location"] == "/etc/ucci-kafka/ca/ca.crt"
        assert settings.topics.prefix == "team-a.ucci"


def test_mounted_certificates_are_those_that_are_named(tmp_path: Path) -> None:
    for pod, settings in started("mutual-tls.yaml", tmp_path):
        mounts = {mount["name"]: mount["mountPath"] for mount in pod.container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        files = {
            f"{mounts[name]}/{item['path']}"
            for name in ("kafka-ca", "kafka-user")
            for item in volumes[name]["secret"]["items"]
        }
        named = {str(settings.kafka[f"ssl.{kind}.location"]) for kind in ("ca", "certificate", "key")}
        assert named == files


# --- least privilege ---


@every_values
def test_containers_may_do_nothing_that_they_need_not(name: str, tmp_path: Path) -> None:
    for pod, _ in started(name, tmp_path):
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["securityContext"]["runAsUser"] == 10001
        assert pod.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= pod.container["resources"].keys()
        assert "memory" in pod.container["resources"]["limits"]


@every_values
def test_writable_folders_are_mounted(name: str, tmp_path: Path) -> None:
    """With a read-only root a stage that cannot write its state would end at once."""
    for pod, settings in started(name, tmp_path):
        mounts = [mount["mountPath"] for mount in pod.container["volumeMounts"] if not mount.get("readOnly")]
        assert "/tmp" in mounts
        if pod.component in ("join", "fit", "api"):
            assert any(Path(settings.recalibrator.state_dir).is_relative_to(path) for path in mounts if path != "/tmp")


# --- objects that refer to each other ---


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@every_values
def test_selectors_find_their_pods(name: str) -> None:
    found = rendered(name)
    labels = {pod.component: pod.labels for pod in pods(found)}
    selectors = [one["spec"]["selector"] for one in of_kind(found, "Service")]
    for kind in ("StatefulSet", "Deployment", "PodDisruptionBudget"):
        selectors += [one["spec"]["selector"]["matchLabels"] for one in of_kind(found, kind)]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in of_kind(found, "NetworkPolicy")]
    assert len(selectors) >= 8
    for selector in selectors:
        assert [component for component, given in labels.items() if selects(selector, given)] == [
            selector["app.kubernetes.io/component"]
        ]


def test_service_monitors_find_services_and_their_ports() -> None:
    found = rendered("strimzi-scram.yaml")
    monitors = of_kind(found, "ServiceMonitor")
    assert len(monitors) == 4
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (service,) = (one for one in of_kind(found, "Service") if selects(wanted, one["metadata"]["labels"]))
        assert {end["port"] for end in monitor["spec"]["endpoints"]} <= {
            port["name"] for port in service["spec"]["ports"]
        }


def test_routers_scale_on_backlog_within_their_partitions() -> None:
    found = rendered("strimzi-scram.yaml")
    (scaled,) = of_kind(found, "ScaledObject")
    (routers,) = (one for one in of_kind(found, "StatefulSet") if one["metadata"]["name"].endswith("-router"))
    (queries,) = (one for one in of_kind(found, "KafkaTopic") if one["spec"]["topicName"].endswith(".queries"))
    assert scaled["spec"]["scaleTargetRef"]["name"] == routers["metadata"]["name"]
    assert "replicas" not in routers["spec"]
    assert scaled["spec"]["maxReplicaCount"] <= queries["spec"]["partitions"]
    (trigger,) = scaled["spec"]["triggers"]
    pattern = re.search(r'namespace="cascades",pod=~"([^"]+)"', trigger["metadata"]["query"])
    assert pattern is not None
    assert re.fullmatch(pattern[1], f"{routers['metadata']['name']}-5")


# --- Kafka's objects ---


def test_topics_of_strimzi_are_those_that_the_command_makes() -> None:
    found = {one["spec"]["topicName"]: one["spec"] for one in of_kind(rendered("strimzi-scram.yaml"), "KafkaTopic")}
    assert set(found) == {topic.name("team-a.ucci") for topic in TOPICS}
    for topic in TOPICS:
        made = found[topic.name("team-a.ucci")]
        wanted = topic_config(topic, 14 * 24 * 3600.0)
        assert made["config"] == wanted | {"min.insync.replicas": "2"}
        assert made["partitions"] == (topic.partitions or 6)


def test_topics_of_strimzi_outlive_the_release() -> None:
    kept = [one["metadata"]["annotations"] for one in of_kind(rendered("strimzi-scram.yaml"), "KafkaTopic")]
    assert {one["helm.sh/resource-policy"] for one in kept} == {"keep"}
