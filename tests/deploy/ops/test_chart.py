"""The Helm chart as it is rendered: valid for Kubernetes, startable for our commands, and no wider open than needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from recalibrator import service as recalibrator_service
from schemas.settings import GatewaySettings, RecalibratorSettings, RouterSettings, Settings
from schemas.topics import FEEDBACK, QUERIES, RESULTS, TOPICS
from stream_router import process as router_process
from stream_router import service as router_service
from tests.deploy.ops.manifests import Manifest, faults, objects
from tests.deploy.ops.pods import SECRET, Pod, pods
from tests.support.commands import program
from tests.support.webhooks import Silent, answering
from tools.ops.render import CHART, RENDERED, digest, kept_digest, values_files
from ucci_runtime.broker.kafka_topic_creation import topic_config

NAMES = [path.name for path in values_files()]
KEYS = json.dumps({"ada": {"key_sha256": sha256(b"key").hexdigest()}})
#: What the Secrets hold that the ci files name.
SECRETS = {"UCCI_RECALIBRATOR__API_KEYS": KEYS, "UCCI_GATEWAY__API_KEYS": KEYS}

every_values = pytest.mark.parametrize("name", NAMES)


@cache
def rendered(name: str) -> list[Manifest]:
    return objects((RENDERED / name).read_text(encoding="utf-8"))


def of_kind(found: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in found if one["kind"] == kind]


def config_of(found: list[Manifest]) -> str:
    (text,) = {one["data"]["ucci.toml"] for one in of_kind(found, "ConfigMap") if "ucci.toml" in one["data"]}
    return str(text)


def started(name: str, folder: Path) -> Iterator[tuple[Pod, Settings]]:
    found = rendered(name)
    for pod in pods(found):
        yield pod, pod.settings(config_of(found), folder, SECRETS)


@pytest.fixture(params=NAMES)
def begun(request: pytest.FixtureRequest, tmp_path: Path) -> list[tuple[Pod, Settings]]:
    """The pods of a file of values, and what their commands start with."""
    return list(started(request.param, tmp_path))


# --- valid ---


@every_values
def test_rendered_objects_are_those_of_this_chart(name: str) -> None:
    """A change of the chart needs `make chart`."""
    assert kept_digest((RENDERED / name).read_text(encoding="utf-8")) == digest()


@every_values
def test_objects_are_valid_to_the_last_field(name: str) -> None:
    """And each has a name of its own."""
    found = rendered(name)
    assert [fault for one in found for fault in faults(one)] == []
    assert len({(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in found}) == len(found) >= 12


# --- the schema of the values ---


SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def values_faults(values: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(values)]


def defaults() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return found


def test_schema_knows_each_value_and_no_other() -> None:
    def differing(values: dict[str, Any], known: dict[str, Any], path: str) -> Iterator[str]:
        for key in values.keys() ^ known.keys():
            yield f"{path}{key}"
        for key in values.keys() & known.keys():
            inner = known[key].get("properties")
            if inner and isinstance(values[key], dict) and key not in ("requests", "limits"):
                yield from differing(values[key], inner, f"{path}{key}.")

    assert values_faults(defaults()) == []
    wrong = set(differing(defaults(), SCHEMA["properties"], ""))
    assert {one for one in wrong if not re.search(r"resources\.(requests|limits)$", one)} == {"global"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("router.replica", 3),
        ("router.terminationGracePeriodSeconds", 10),
        ("kafka.securityProtocol", "SASL"),
        ("kafka.bootstrapServers", "kafka"),
        ("kafka.users.router.password", "secret"),
        ("gateway.preStopSeconds", -1),
        ("networkPolicy.gatewayfrom", []),
        ("secrets", {}),
    ],
)
def test_wrong_value_is_refused(path: str, value: object) -> None:
    values, (*steps, last) = defaults(), path.split(".")
    reduce(getitem, steps, values)[last] = value
    assert values_faults(values)


# --- what the commands in it start with ---


def test_probes_ask_where_the_command_listens(begun: list[tuple[Pod, Settings]]) -> None:
    assert {"router", "join", "fit", "api", "test"} <= {pod.component for pod, _ in begun}
    for pod, settings in begun:
        if pod.component in ("topics", "test"):
            continue
        listens = {
            "router": (settings.router.http_host, settings.router.http_port),
            "api": (settings.recalibrator.http_host, settings.recalibrator.http_port),
            "gateway": (settings.gateway.http_host, settings.gateway.http_port),
        }.get(pod.component, (settings.recalibrator.probe_host, settings.recalibrator.probe_port))
        (port,) = pod.container["ports"]
        assert listens == ("0.0.0.0", port["containerPort"])
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")):
            assert pod.container[probe]["httpGet"] == {"path": path, "port": port["name"]}


def test_pods_outlive_their_drain(begun: list[tuple[Pod, Settings]]) -> None:
    """Whoever is called through a Service goes on while it is taken out of it; callers were led to pods that closed."""
    least_s = {
        "router": router_process.MAX_DRAIN_S + router_service.FINAL_COMMIT_S + 5,
        "gateway": max(router_process.MAX_DRAIN_S + 5, 19),
        **dict.fromkeys(("join", "fit", "api"), recalibrator_service.END_TIMEOUT_S),
    }
    for pod, _settings in begun:
        if pod.component in least_s:
            waits_s = seconds_before_sigterm(pod)
            assert pod.spec["terminationGracePeriodSeconds"] - waits_s > least_s[pod.component]
            assert waits_s >= 5 or pod.component not in ("api", "gateway")


def seconds_before_sigterm(pod: Pod) -> int:
    """Return how long the pod's hook waits, 0 without one; the grace period counts from its beginning."""
    if "lifecycle" not in pod.container:
        return 0
    (*_, code) = pod.container["lifecycle"]["preStop"]["exec"]["command"]
    (waits_s,) = re.findall(r"^import time; time\.sleep\((\d+)\)$", code)
    return int(waits_s)


def test_longest_names_make_an_instance_id_that_is_taken() -> None:
    for settings in (RouterSettings, GatewaySettings, RecalibratorSettings):
        settings(instance_id=f"{'n' * 63}.{'p' * 63}")


@pytest.mark.parametrize("component", ["router", "gateway", "join", "fit", "api"])
def test_releases_on_one_kafka_do_not_fence_each_other(component: str, tmp_path: Path) -> None:
    """Not of one name in two namespaces, nor of two names in one."""
    text = (RENDERED / "gateway.yaml").read_text(encoding="utf-8")
    found, other = objects(text), objects(text.replace("cascade-", "second-"))
    ids, places = [], []
    table = component if component in ("router", "gateway") else "recalibrator"
    for release, namespace in ((found, "a"), (found, "b"), (other, "a")):
        (pod,) = (pod for pod in pods(release, namespace) if pod.component == component)
        settings = pod.settings(config_of(found), tmp_path, SECRETS)
        ids.append(getattr(settings, table).instance_id)
        places.append(f"{namespace}.{pod.name}")
    assert ids == places


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
        names = ("kafka-ca", "kafka-user")
        files = {f"{mounts[name]}/{item['path']}" for name in names for item in volumes[name]["secret"]["items"]}
        assert files == {settings.kafka[f"ssl.{kind}.location"] for kind in ("ca", "certificate", "key")}


def test_containers_may_do_nothing_that_they_need_not(begun: list[tuple[Pod, Settings]]) -> None:
    """With a read-only root a stage that cannot write its state would end at once: that folder is mounted."""
    for pod, settings in begun:
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001}.items()
        assert pod.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= pod.container["resources"].keys()
        assert "memory" in pod.container["resources"]["limits"]
        mounts = [mount["mountPath"] for mount in pod.container["volumeMounts"] if not mount.get("readOnly")]
        assert "/tmp" in mounts
        if pod.component in ("join", "fit", "api"):
            assert any(Path(settings.recalibrator.state_dir).is_relative_to(path) for path in mounts if path != "/tmp")


# --- objects that refer to each other ---


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@every_values
def test_selectors_find_their_pods(name: str) -> None:
    """Of their own release alone."""
    found = rendered(name)
    labels = {pod.component: pod.labels for pod in pods(found)}
    selectors = [one["spec"]["selector"] for one in of_kind(found, "Service")]
    for kind in ("StatefulSet", "Deployment", "PodDisruptionBudget"):
        selectors += [one["spec"]["selector"]["matchLabels"] for one in of_kind(found, kind)]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in of_kind(found, "NetworkPolicy")]
    assert len(selectors) >= 8
    for selector in selectors:
        assert selector["app.kubernetes.io/instance"] == labels["router"]["app.kubernetes.io/instance"]
        chosen = [component for component, given in labels.items() if selects(selector, given)]
        assert chosen == [selector["app.kubernetes.io/component"]]


@pytest.mark.parametrize(("name", "count"), [("strimzi-scram.yaml", 4), ("gateway.yaml", 5)])
def test_scraped_service_of_any_name_is_missed_when_down(name: str, count: int) -> None:
    """A release called by a name without "ucci" had join, fit and API that no alert and no panel asked for."""
    found, jobs = rendered(name), []
    for monitor in of_kind(found, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (service,) = (one for one in of_kind(found, "Service") if selects(wanted, one["metadata"]["labels"]))
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {end["port"] for end in monitor["spec"]["endpoints"]} <= ports
        # Prometheus calls the job by the name of the Service.
        jobs.append(service["metadata"]["name"])
    assert len(jobs) == count
    (rules,) = of_kind(found, "PrometheusRule")
    (board,) = (one for one in of_kind(found, "ConfigMap") if "ucci-stream.json" in one["data"])
    others = ["node", "shop-gateway"]
    for document in (rules["spec"], json.loads(board["data"]["ucci-stream.json"])):
        (pattern,) = re.findall(r'up\{job=~"(.*?)"\}', str(document))
        assert [job for job in [*jobs, *others] if not re.fullmatch(pattern, job)] == others


def test_routers_scale_on_backlog_within_their_partitions() -> None:
    found = rendered("strimzi-scram.yaml")
    (scaled,) = of_kind(found, "ScaledObject")
    (routers,) = (one for one in of_kind(found, "StatefulSet") if one["metadata"]["name"].endswith("-router"))
    (queries,) = (one for one in of_kind(found, "KafkaTopic") if one["spec"]["topicName"].endswith(".queries"))
    assert scaled["spec"]["scaleTargetRef"]["name"] == routers["metadata"]["name"]
    assert "replicas" not in routers["spec"]
    assert scaled["spec"]["maxReplicaCount"] <= queries["spec"]["partitions"]
    (trigger,) = scaled["spec"]["triggers"]
    (pattern,) = re.findall(r'namespace="cascades",pod=~"([^"]+)"', trigger["metadata"]["query"])
    assert re.fullmatch(pattern, f"{routers['metadata']['name']}-5")


# --- the gateway ---


def of_gateway(found: list[Manifest]) -> dict[str, Manifest]:
    """Return the gateway's objects by their kinds."""
    mine = [one for one in found if one["metadata"]["labels"].get("app.kubernetes.io/component") == "gateway"]
    return {one["kind"]: one for one in mine}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gateway.yaml"])
def test_gateway_is_off_unless_asked_for(name: str) -> None:
    found = rendered(name)
    assert of_gateway(found) == {}
    assert "gateway:" not in str(next(pod for pod in pods(found) if pod.component == "test").container["args"])


def test_gateways_scale_on_cpu_that_they_ask_for() -> None:
    """A utilisation is one of the request: without it the autoscaler would do nothing."""
    found = of_gateway(rendered("gateway.yaml"))
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert "replicas" not in found["Deployment"]["spec"]
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "cpu" in container["resources"]["requests"]


def test_gateway_runs_serve_as_the_user_of_the_routers(tmp_path: Path) -> None:
    """Its rights are a router's: the KafkaUser that Strimzi makes for routers is the one that is mounted."""
    users = {one["metadata"]["name"] for one in of_kind(rendered("gateway.yaml"), "KafkaUser")}
    mounted = {}
    for pod, settings in started("gateway.yaml", tmp_path):
        volumes = {one["name"]: one for one in pod.spec["volumes"]}
        mounted[pod.component] = volumes["kafka-user"]["secret"]["secretName"]
        if pod.component == "gateway":
            assert pod.container["args"][0] == "serve"
            assert settings.gateway.api_keys
    assert set(mounted.values()) == users
    assert mounted["gateway"] == mounted["router"] == "cascade-router"


def lets_in(policy: Manifest, port: int, namespace: str, labels: dict[str, str]) -> bool:
    """Whether a NetworkPolicy lets a pod in; namespaces have no label but their name."""
    own = namespace == "cascades"
    for rule in policy["spec"]["ingress"]:
        for peer in rule["from"] if port in [one["port"] for one in rule["ports"]] else ():
            spaces = peer.get("namespaceSelector")
            wanted = None if spaces is None else spaces["matchLabels"]
            in_space = own if wanted is None else selects(wanted, {"kubernetes.io/metadata.name": namespace})
            if in_space and selects(peer.get("podSelector", {}).get("matchLabels", {}), labels):
                return True
    return False


def test_gateway_is_reached_by_its_callers_and_nobody_else() -> None:
    found = rendered("gateway.yaml")
    policy, (served,) = of_gateway(found)["NetworkPolicy"], of_gateway(found)["Service"]["spec"]["ports"]
    labels = {pod.component: pod.labels for pod in pods(found)}
    (listened,) = of_gateway(found)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert (listened["name"], listened["containerPort"]) == (served["targetPort"], 8082)
    for is_caller, port, namespace, pod in (
        (True, 8082, "shop", {"app": "search"}),
        (True, 8082, "monitoring", {"app": "prometheus"}),
        (True, 8082, "cascades", labels["test"]),
        (False, 8082, "shop", {"app": "cart"}),
        (False, 8082, "elsewhere", {"app": "search"}),
        (False, 8082, "cascades", labels["router"]),
        (False, 8082, "elsewhere", labels["test"]),
        (False, 22, "shop", {"app": "search"}),
    ):
        assert lets_in(policy, port, namespace, pod) is is_caller, (port, namespace, pod)


# --- helm test ---


def helm_test(folder: Path, patience_s: str, *statuses: int) -> tuple[str, subprocess.CompletedProcess[str]]:
    """Run the script of the test pod against a service, with a command that only says how it is called.

    Its /readyz answers with these statuses in turn, then with the last; it names what is missing.
    """
    left = list(statuses)

    class Handler(Silent):
        def do_GET(self) -> None:  # noqa: N802 the library's name
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.end_headers()
            self.wfile.write(b'{"missing": ["the calibration"]}')

    (pod,) = (pod for pod in pods(rendered("minimal.yaml")) if pod.component == "test")
    script, _, bound_s, *asked = pod.container["args"]
    assert 10 <= float(bound_s) <= 120
    assert len(asked) == 4
    program(folder / "ucci-stream", 'echo "$@"')
    environ = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    with answering(Handler) as address:
        argv = [sys.executable, "-c", script, "canon 5d", patience_s, address]
        return address, subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=60.0)


def test_helm_test_fails_on_a_pod_that_is_ending(tmp_path: Path) -> None:
    """It asked once, and failed where the first answer came from a pod on its way out; now it names what is missing."""
    address, done = helm_test(tmp_path, "30", 503, 200)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == [address, "topics", "ask"]
    address, done = helm_test(tmp_path, "0", 503)
    assert done.returncode == 1
    assert f"{address}: not ready after 0 s" in done.stderr
    assert "the calibration" in done.stderr


# --- Kafka's objects ---


def test_topics_of_strimzi_are_those_that_the_command_makes() -> None:
    """And they outlive the release. Partitions are added where they may be, and nowhere else."""
    found = {one["spec"]["topicName"]: one for one in of_kind(rendered("strimzi-scram.yaml"), "KafkaTopic")}
    assert set(found) == {topic.name("team-a.ucci") for topic in TOPICS}
    for topic in TOPICS:
        made = found[topic.name("team-a.ucci")]
        assert made["spec"]["config"] == topic_config(topic, 14 * 24 * 3600.0) | {"min.insync.replicas": "2"}
        grown = 12 if topic in {QUERIES, RESULTS, FEEDBACK} else 6
        assert made["spec"]["partitions"] == (topic.partitions or grown)
        assert made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
