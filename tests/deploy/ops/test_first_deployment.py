"""docs/operations.md word for word, from an empty cluster and a secured Kafka to a routed query: `make test-ops`.

The page's own commands and files are what runs here, with this machine's addresses in them. The cluster is a real API
server with real controllers, its node runs each pod's command as a process, and Kafka asks for passwords over TLS.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

import pytest

from schemas.routed import RoutedEvent
from tests.deploy.ops.cluster import Cluster, cluster
from tests.deploy.ops.manifests import Manifest
from tests.deploy.ops.operators import run
from tests.deploy.ops.process_node import ProcessNode, http_status
from tests.support.broker import read_all, running_broker
from tests.support.router_processes import hashed_models
from tests.support.routers import value_of
from tests.support.secured_broker import SecuredBroker, User
from ucci_stream.topics.access import Grant, Operation, Resource

pytestmark = [pytest.mark.ops_tools, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operations.md"
GATEWAY_PAGE = ROOT / "docs" / "gateway.md"
REGISTRY = "registry.example.org/ucci"
NAMESPACE = "cascades"
IMAGES = {f"{REGISTRY}/{name}:0.1.0" for name in ("stream-router", "recalibrator", "ucci-stream")}
USERS = {name: User(f"ucci-{name}", f"password-of-{name}") for name in ("router", "recalibrator", "operator")}
STEP_S = 420.0


@dataclass(frozen=True)
class Step:
    """A block of the page."""

    #: ``toml`` and ``yaml`` are files, ``console`` is commands.
    language: str

    text: str


def blocks(page: Path, start: str, end: str) -> list[Step]:
    """Return the blocks of the part of a page between two of its texts, in their order."""
    part = page.read_text(encoding="utf-8").split(start)[1].split(end, maxsplit=1)[0]
    found = re.findall(r"^( *)```(\w+)\n(.*?)^ *```$", part, re.MULTILINE | re.DOTALL)
    return [Step(language, textwrap.dedent(text)) for _, language, text in found]


@dataclass
class Newcomer:
    """Somebody with a shell in an empty folder who does what the page says."""

    folder: Path
    #: What the page's names are called on this machine.
    here: dict[str, str]
    #: Of the shell; what a block exports stays.
    environment: dict[str, str] = field(default_factory=dict)

    def follow(self, step: Step, values: str = "values.yaml") -> None:
        """Write the block's file, or run its commands; ``values`` is what the page calls a file of values."""
        text = step.text
        for name, actual in self.here.items():
            text = text.replace(name, actual)
        if step.language != "console":
            name = {"toml": "ucci.toml", "yaml": values}[step.language]
            (self.folder / name).write_text(text, encoding="utf-8")
        else:
            self.run(re.sub(r"^\$ ", "", text, flags=re.MULTILINE))

    def run(self, commands: str) -> None:
        """Run commands in the shell that all blocks share."""
        script = f"set -euo pipefail\n{commands}\nenv -0 > environment\n"
        run("bash", "-c", script, cwd=self.folder, timeout_s=STEP_S, **self.environment)
        variables = (self.folder / "environment").read_text(encoding="utf-8").split("\0")
        self.environment = dict(one.split("=", 1) for one in variables if one)


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A Kafka with TLS, passwords and an authorizer, whose users may do nothing yet."""
    with running_broker(SecuredBroker(tmp_path_factory.mktemp("kafka"))) as made:
        made.add_users(USERS.values())
        yield made


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An empty cluster."""
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def newcomer(folder: Path, running: Cluster, secured: SecuredBroker, models: str) -> Newcomer:
    """Return somebody with a copy of the repository, its commands, Helm, kubectl and Kafka's passwords."""
    (folder / "deploy").symlink_to(ROOT / "deploy")
    (folder / "ca.pem").write_bytes(secured.certificate.read_bytes())
    # Kafka's own tool starts a Java machine for each right; what it is asked for is given by one client at the end.
    tool = folder / "kafka-acls.sh"
    tool.write_text('#!/bin/sh\nprintf "%s " "$@" >> "$(dirname "$0")/asked"; echo >> "$(dirname "$0")/asked"\n')
    tool.chmod(0o755)
    here = {
        "kafka:9093": secured.secured,
        "SCRAM-SHA-512": secured.properties(USERS["router"])["sasl.mechanism"],
        "small-4b": "small",
        "large-12b": "large",
        "http://small:8000/v1": models,
        "http://large:8000/v1": models,
    }
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), running.environment["PATH"]))
    passwords = {f"{name.upper()}_PASSWORD": user.password for name, user in USERS.items()}
    return Newcomer(folder, here, os.environ | running.environment | passwords | {"PATH": path})


def grant_what_was_asked(asked: Path, secured: SecuredBroker) -> None:
    """Give the rights for which Kafka's tool was called."""
    for line in asked.read_text(encoding="utf-8").splitlines():
        words = shlex.split(line)
        words.remove("--add")
        given = [(name.removeprefix("--"), value) for name, value in zip(words[::2], words[1::2], strict=True)]
        options = dict(given)
        ((kind, name),) = ((kind, options.pop(kind)) for kind in get_args(Resource) if kind in options)
        others = ["allow-principal", "bootstrap-server", "command-config", "operation", "resource-pattern-type"]
        assert sorted(options) == others
        user = User(options["allow-principal"].removeprefix("User:"), "")
        is_prefix = {"literal": False, "prefixed": True}[options["resource-pattern-type"]]
        operations = [cast(Operation, value) for option, value in given if option == "operation"]
        secured.allow(user, [Grant(kind, name, is_prefix, operation) for operation in operations])


def answered(secured: SecuredBroker) -> list[str]:
    """Return which model answered each query that has a result."""
    return [RoutedEvent.from_json(value_of(one)).answered_by for one in read_all(secured.bootstrap, "ucci.results")]


def ready_pods(found: list[Manifest]) -> set[str]:
    return {one["metadata"]["name"] for one in found if one["status"].get("containerStatuses", [{}])[0].get("ready")}


async def test_documented_steps_lead_to_routed_queries(
    running: Cluster, secured: SecuredBroker, tmp_path: Path
) -> None:
    """Then a changed target is rolled out, an image that is nowhere rolled back, gateways added, all removed."""
    *steps, removal = blocks(PAGE, "**On Kubernetes**", "\nThe recalibrator runs as three workloads")
    (tmp_path / "home").mkdir()
    async with hashed_models() as (models, _):
        somebody = newcomer(tmp_path / "home", running, secured, models)
        with ProcessNode(running.api, tmp_path / "node", set(IMAGES)) as node:
            for step in steps:
                await asyncio.to_thread(somebody.follow, step)
                if "acls.sh" in step.text:
                    await asyncio.to_thread(grant_what_was_asked, somebody.folder / "asked", secured)
            # Of `helm test`, and of the page's last step: by the large model, as long as nothing is known of the small.
            assert await asyncio.to_thread(answered, secured) == ["large"] * 2
            (checked,) = (one for one in node.ended if one.pod == "ucci-ucci-stream-test")
            assert checked.exit_code == 0, checked.log
            await asyncio.to_thread(the_api_asks_for_the_key, running, node, somebody.folder)
            install = next(step for step in steps if "helm upgrade" in step.text)
            await asyncio.to_thread(a_changed_target_is_rolled_out, running, node, somebody, install)
            await asyncio.to_thread(a_missing_image_is_rolled_back, running, somebody, install)
            ask = next(step for step in steps if "ucci-stream ask" in step.text)
            await asyncio.to_thread(somebody.follow, ask)
            # And of the second `helm test`; none is answered again.
            assert await asyncio.to_thread(answered, secured) == ["large"] * 4
            await asyncio.to_thread(gateways_are_added, running, node, somebody)
            assert await asyncio.to_thread(answered, secured) == ["large"] * 6
            await asyncio.to_thread(somebody.follow, removal)
            running.await_objects(NAMESPACE, "pods,pvc", lambda found: not found, "no pod and no disk")
        failed = [(one.pod, one.log[-2000:]) for one in node.ended if one.exit_code]
        assert failed == []


def the_api_asks_for_the_key(running: Cluster, node: ProcessNode, folder: Path) -> None:
    """The page's key opens the status page to a browser, and nobody gets in without."""
    (pod, *_) = (name for name in ready_pods(running.get(NAMESPACE, "pods")) if "-api-" in name)
    key = (folder / "ada.key").read_text(encoding="ascii").strip()
    login = {"Authorization": f"Basic {base64.b64encode(f'ada:{key}'.encode()).decode()}"}
    for headers, status in (({}, 401), (login, 200)):
        assert http_status(node.address(pod), 8080, "GET", "/v1/status", headers=headers) == status


def gateways_are_added(running: Cluster, node: ProcessNode, somebody: Newcomer) -> None:
    """By docs/gateway.md, word for word; the page's key is answered, and nobody is without."""
    for step in blocks(GATEWAY_PAGE, "### Deployment", "### Measured"):
        somebody.follow(step, values="gateway.yaml")
    gateways = sorted(name for name in ready_pods(running.get(NAMESPACE, "pods")) if "-gateway-" in name)
    assert len(gateways) == 2
    key = (somebody.folder / "shop.key").read_text(encoding="ascii").strip()
    asked = json.dumps({"model": "photo-search", "prompt": "canon 5d f2.8 at night"})
    address = node.address(gateways[0])
    for login, status in (({}, 401), ({"Authorization": f"Bearer {key}"}, 200)):
        headers = {"Content-Type": "application/json", **login}
        assert http_status(address, 8082, "POST", "/v1/completions", headers=headers, body=asked) == status


def revisions(running: Cluster) -> dict[str, tuple[str, str]]:
    """Return the image and the configuration's checksum of each pod of the release that is ready."""
    return {
        one["metadata"]["name"]: (one["spec"]["containers"][0]["image"], annotations["checksum/config"])
        for one in running.get(NAMESPACE, "pods")
        if ready_pods([one]) and "checksum/config" in (annotations := one["metadata"].get("annotations", {}))
    }


def a_changed_target_is_rolled_out(running: Cluster, node: ProcessNode, somebody: Newcomer, install: Step) -> None:
    """Every pod is replaced by one with the new file; those before have drained and ended well."""
    before, ended = revisions(running), len(node.ended)
    somebody.run("sed -i 's/micro_f1 = 0.91/micro_f1 = 0.95/' ucci.toml")
    somebody.follow(install)
    after = revisions(running)
    assert len(before) == len(after) == 6
    assert set(before.values()).isdisjoint(after.values())
    assert {one.pod for one in node.ended[ended:]} >= set(before)


def a_missing_image_is_rolled_back(running: Cluster, somebody: Newcomer, install: Step) -> None:
    """A rollout that stands still does no harm to the other replicas, and does not need anybody to delete pods."""
    before = revisions(running)
    upgrade = next(line for line in install.text.splitlines() if "helm upgrade" in line).removeprefix("$ ")
    # Without hooks: the Job of the topics would need the image first, and hold the release back.
    somebody.run(upgrade.replace("--wait", "--no-hooks --set image.tag=nowhere"))
    running.await_objects(
        NAMESPACE, "pods", lambda found: "ErrImagePull" in json.dumps(found), "a pod whose image is missing"
    )
    assert len(ready_pods(running.get(NAMESPACE, "pods"))) >= 3
    somebody.run("helm rollback ucci -n cascades --wait")
    assert sorted(revisions(running).values()) == sorted(before.values())
