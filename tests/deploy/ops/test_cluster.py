"""The chart at a real Kubernetes API server: installed, changed, rolled back, removed: `make test-ops`.

No kubelet runs: the controllers make the pods, which stay pending. tests/deploy/ops/test_first_deployment.py runs them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.ops.cluster import Cluster, cluster
from tests.deploy.ops.manifests import Manifest, objects
from tests.deploy.ops.operators import KINDS, CommandFailedError, crd_of
from tools.ops.render import CHART, RENDERED, values_files

pytestmark = [pytest.mark.ops_tools, pytest.mark.timeout(3_600)]

OURS = (
    "configmaps,services,statefulsets,deployments,poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,"
    "ingresses,jobs,secrets,serviceaccounts,servicemonitors,prometheusrules,scaledobjects,kafkatopics,kafkausers"
)
MADE_BY_OTHERS = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that knows the objects of all operators that the chart has options for."""
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        for kind in KINDS:
            found.kubectl("create", "-f", str(crd_of(kind)))
        found.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield found


@pytest.fixture
def namespace(running: Cluster) -> str:
    """A namespace of this test's own."""
    name = f"cascades-{next(NUMBERS)}"
    running.kubectl("create", "namespace", name)
    return name


def values(**changes: Any) -> dict[str, Any]:
    """Return the least values of the chart's ``ci`` folder; no Job makes topics, since nothing here runs it."""
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / "minimal.yaml").read_text(encoding="utf-8"))
    return merged(merged(found, {"topics": {"create": False}}), changes)


def merged(table: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return table | {
        key: merged(table.get(key, {}), value) if isinstance(value, dict) else value for key, value in more.items()
    }


def release(running: Cluster, namespace: str, given: dict[str, Any], folder: Path) -> None:
    file = folder / "ucci.yaml"
    file.write_text(json.dumps(given), encoding="utf-8")
    running.helm("upgrade", "--install", "ucci", str(CHART), "-n", namespace, "-f", str(file))


def state(running: Cluster, namespace: str) -> dict[tuple[str, str], Manifest]:
    """Return what is asked for of each object that the release made, by kind and name."""
    found: dict[tuple[str, str], Manifest] = {}
    for one in running.get(namespace, OURS):
        key = (one["kind"], one["metadata"]["name"])
        if key not in MADE_BY_OTHERS and not key[1].startswith("sh.helm.release"):
            meta = {word: one["metadata"].get(word, {}) for word in ("labels", "annotations")}
            meta["annotations"].pop("deployment.kubernetes.io/revision", None)
            found[key] = {"metadata": meta, "spec": one.get("spec"), "data": one.get("data")}
    return found


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return the values of a tree by their paths."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {found: leaf for key, one in items for found, leaf in leaves(one, f"{path}.{key}").items()}
    return {path: value}


def changes(before: dict[tuple[str, str], Manifest], after: dict[tuple[str, str], Manifest]) -> set[tuple[str, str]]:
    """Return the name of each object that differs, with the path at which it does."""
    pairs = ((key[1], leaves(before.get(key)), leaves(after.get(key))) for key in before.keys() | after.keys())
    return {(name, path) for name, old, new in pairs for path in old | new if old.get(path) != new.get(path)}


def with_pods(running: Cluster, namespace: str, count: int) -> list[Manifest]:
    """Return the pods once the controllers have made so many."""
    return running.await_objects(namespace, "pods", lambda found: len(found) == count, f"{count} pods")


# --- the objects ---


@pytest.mark.parametrize("path", values_files(), ids=lambda path: path.name)
def test_server_takes_each_object_to_its_last_field(running: Cluster, namespace: str, path: Path) -> None:
    """Of the operators' kinds too, by the operators' own definitions; a field that it does not know is refused."""
    text = (RENDERED / path.name).read_text(encoding="utf-8")
    dry = ("-n", namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-")
    assert len(running.kubectl(*dry, given=text).splitlines()) == len(objects(text))
    for known, wrong in (("minReplicaCount:", "minReplicasCount:"), ("podManagementPolicy:", "podManagement:")):
        if known in text:
            with pytest.raises(CommandFailedError, match=wrong.removesuffix(":")):
                running.kubectl(*dry, given=text.replace(known, wrong, 1))


# --- releases ---


TEMPLATE = ".spec.template.spec.containers.0"
CHECKSUM = ".spec.template.metadata.annotations.checksum/config"
CONFIG = ("ucci-ucci-stream", ".data.ucci.toml")
NAMES = {f"ucci-ucci-stream-{name}" for name in ("router", "join", "fit", "api")}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"router": {"replicas": 3}}, {("ucci-ucci-stream-router", ".spec.replicas")}),
        ({"image": {"tag": "0.2.0"}}, {(name, f"{TEMPLATE}.image") for name in NAMES}),
        ({"config": "micro_f1 = 0.95"}, {(name, CHECKSUM) for name in NAMES} | {CONFIG}),
    ],
    ids=["replicas", "image", "target"],
)
def test_upgrade_changes_what_it_should_and_is_rolled_back(
    running: Cluster, namespace: str, tmp_path: Path, changed: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    """A changed target reaches the pods by their checksum: all are made anew; another number of routers does not."""
    release(running, namespace, values(), tmp_path)
    before = state(running, namespace)
    if "config" in changed:
        changed = {"config": values()["config"].replace("micro_f1 = 0.91", changed["config"])}
    release(running, namespace, values(**changed), tmp_path)
    after = state(running, namespace)
    # The generation counts changes of the specification: the API server counts, too.
    assert changes(before, after) == expected
    running.helm("rollback", "ucci", "-n", namespace)
    assert state(running, namespace) == before
    (last,) = json.loads(running.helm("history", "ucci", "-n", namespace, "--max", "1", "-o", "json"))
    assert (last["revision"], last["description"]) == (3, "Rollback to 1")


def test_disk_of_another_size_wants_its_set_made_anew(running: Cluster, namespace: str, tmp_path: Path) -> None:
    """As docs/operations.md says: Kubernetes refuses the change, and without the sets it is taken while pods go on."""
    release(running, namespace, values(), tmp_path)
    pods = {one["metadata"]["uid"] for one in with_pods(running, namespace, 6)}
    larger = values(recalibrator={"persistence": {"size": "20Gi"}})
    with pytest.raises(CommandFailedError, match=r"updates to statefulset spec .* are forbidden"):
        release(running, namespace, larger, tmp_path)
    sets = ("ucci-ucci-stream-join", "ucci-ucci-stream-fit")
    running.kubectl("-n", namespace, "delete", "statefulset", *sets, "--cascade=orphan")
    release(running, namespace, larger, tmp_path)
    assert {one["metadata"]["uid"] for one in running.get(namespace, "pods")} == pods


def test_uninstalled_release_leaves_its_disks_alone(running: Cluster, namespace: str, tmp_path: Path) -> None:
    """They go by the label that docs/operations.md names."""
    release(running, namespace, values(), tmp_path)
    with_pods(running, namespace, 6)
    running.helm("uninstall", "ucci", "-n", namespace)

    def are_others(found: list[Manifest]) -> bool:
        return {(one["kind"], one["metadata"]["name"]) for one in found} <= MADE_BY_OTHERS

    running.await_objects(namespace, f"pods,{OURS}", are_others, "nothing of the release")
    assert len(running.get(namespace, "pvc")) == 2
    running.kubectl("-n", namespace, "delete", "pvc", "-l", "app.kubernetes.io/instance=ucci", "--timeout=60s")
    assert running.get(namespace, "pvc") == []
