"""A node of a cluster that runs its pods as processes of this machine: what a kubelet does, as far as the chart goes.

A pod's command is that of its specification, else that of its image by our Dockerfile. Its variables come from the
specification, ConfigMaps and Secrets; what it mounts is written to folders, by which the mount paths in its arguments
and variables are replaced. Each pod has a loopback address of its own, which stands for 0.0.0.0, and names of services
in its arguments become addresses of pods that they select. Readiness is asked over HTTP, a deleted pod gets SIGTERM and
its grace period, and one that has ended is made anew by its controller. Users, read-only roots, limits of resources and
network policies are not enforced, and a volume claim is a folder: `make test-image` runs the images as the chart
hardens them.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

from tests.deploy.ops.cluster import Api, ApiError
from tests.deploy.ops.manifests import Manifest
from tests.deploy.ops.pods import variables
from tests.support.probes import asked
from ucci_stream.local.processes import ChildProcess

NAME = "this-machine"
DOCKERFILE = Path(__file__).parents[3] / "deploy" / "image" / "Dockerfile"
_POLL_S = 0.2
_PROBE_S = 5.0
_END_S = 60.0
_MERGE = "application/strategic-merge-patch+json"


@dataclass
class Running:
    """A pod that has been started."""

    process: ChildProcess
    #: The pod's own.
    address: str
    #: On the monotonic clock, once it is asked to end.
    kill_at_s: float | None = None

    is_ready: bool = False


@dataclass(frozen=True)
class Ended:
    """How a pod's process ended."""

    pod: str
    exit_code: int
    log: str


class ProcessNode:
    """Runs every pod of the cluster, from when a ``with`` block is entered until it is left.

    ``directory``: of logs and of what pods mount. ``images``: references that can be pulled; may change.
    """

    def __init__(self, api: Api, directory: Path, images: set[str]) -> None:
        self.images = images
        self.ended: list[Ended] = []
        self._api = api
        self._directory = directory
        self._running: dict[str, Running] = {}
        self._started = 0
        self._stop = Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_END_S)
        for running in self._running.values():
            running.process.kill()
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"the node has not ended within {_END_S:.0f} s"

    def address(self, pod: str) -> str:
        """Return the address of a pod that runs, by its name."""
        (found,) = (one.address for one in self._running.values() if one.process.name == pod)
        return found

    def _run(self) -> None:
        try:
            while not self._stop.wait(_POLL_S):
                for pod in self._api.call("GET", "/api/v1/pods")["items"]:
                    self._step(pod)
        except Exception as error:  # noqa: BLE001  raised where the block is left
            self._failure = error
        finally:
            for running in self._running.values():
                running.process.kill()

    def _step(self, pod: Manifest) -> None:
        running = self._running.get(pod["metadata"]["uid"])
        try:
            if "deletionTimestamp" in pod["metadata"]:
                self._end(pod, running)
            elif pod["status"].get("phase") in ("Succeeded", "Failed"):
                return
            elif running is None:
                self._start(pod)
            else:
                self._watch(pod, running)
        except ApiError as error:
            # Gone, changed by a controller, or without its Secret yet: the next round sees it.
            if error.status not in (http.client.NOT_FOUND, http.client.CONFLICT):
                raise

    # --- a pod's life ---

    def _start(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
            self._api.call("POST", f"{_path(pod)}/binding", binding)
        if pod["spec"]["containers"][0]["image"] not in self.images:
            self._report(pod, {"waiting": {"reason": "ErrImagePull"}}, phase="Pending")
            return
        address = f"127.1.{self._started // 250}.{self._started % 250 + 1}"
        folder = self._directory / f"{meta['name']}-{meta['uid'][:8]}"
        argv, environ = self._container(pod, folder, address)
        running = Running(ChildProcess(meta["name"], argv, folder / "log", environ), address)
        running.process.start()
        self._started += 1
        self._running[meta["uid"]] = running
        self._report(pod, {"running": {}}, running=running)

    def _watch(self, pod: Manifest, running: Running) -> None:
        code = running.process.exit_code
        if code is not None:
            self._ended(running)
            phase = "Failed" if code else "Succeeded"
            self._report(pod, {"terminated": {"exitCode": code}}, phase=phase, running=running)
            del self._running[pod["metadata"]["uid"]]
        elif (is_ready := _is_ready(pod, running.address)) != running.is_ready:
            running.is_ready = is_ready
            self._report(pod, {"running": {}}, running=running)

    def _end(self, pod: Manifest, running: Running | None) -> None:
        now_s = time.monotonic()
        if running is not None and running.kill_at_s is None:
            running.kill_at_s = now_s + pod["metadata"]["deletionGracePeriodSeconds"]
            running.process.terminate()
        elif running is None or running.process.exit_code is not None or now_s > (running.kill_at_s or 0):
            if running is not None:
                running.process.kill()
                self._ended(running)
                del self._running[pod["metadata"]["uid"]]
            uid = {"uid": pod["metadata"]["uid"]}
            self._api.call("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": uid})

    def _ended(self, running: Running) -> None:
        log = running.process.log_path.read_text(encoding="utf-8", errors="replace")
        self.ended.append(Ended(running.process.name, running.process.exit_code or 0, log))

    def _report(
        self, pod: Manifest, state: dict[str, Any], *, phase: str = "Running", running: Running | None = None
    ) -> None:
        (container,) = pod["spec"]["containers"]
        is_ready = running is not None and running.is_ready
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": [{"type": kind, "status": str(is_ready)} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {"name": container["name"], "image": container["image"], "imageID": "", "ready": is_ready}
                | {"restartCount": 0, "state": state}
            ],
        }
        if running is not None:
            status |= {"podIP": running.address, "podIPs": [{"ip": running.address}]}
        self._api.call("PATCH", f"{_path(pod)}/status", {"status": status}, _MERGE)

    # --- its container ---

    def _container(self, pod: Manifest, folder: Path, address: str) -> tuple[list[str], dict[str, str]]:
        (container,) = pod["spec"]["containers"]
        places = self._mounted(pod, folder)
        pattern = "|".join(re.escape(path) for path in sorted(places, key=len, reverse=True))
        paths = re.compile(rf"(?<![\w.-])({pattern})(?=/|$)", re.MULTILINE)

        def local(text: str) -> str:
            return paths.sub(lambda found: str(places[found[1]]), text)

        name = container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0]
        entrypoint, arguments = image_commands()[name]
        given = container.get("args", [] if "command" in container else arguments)
        services = self._services(pod["metadata"]["namespace"])
        argv = [services.get(word, local(word)) for word in (*container.get("command", entrypoint), *given)]
        environ = {key: local(value) for key, value in self._variables(pod, container).items()}
        environ = {key: address if value == "0.0.0.0" else value for key, value in environ.items()}
        # The commands of this project and `python3` as its images have them.
        environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environ["TMPDIR"] = str(places["/tmp"])
        return argv, environ

    def _variables(self, pod: Manifest, container: Manifest) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            data = self._data(pod, "secrets", source["secretRef"]["name"])
            found |= {key: content.decode() for key, content in data.items()}

        def secret(reference: Manifest) -> str:
            return self._data(pod, "secrets", reference["name"])[reference["key"]].decode()

        return variables(container, pod["metadata"], secret, found)

    def _mounted(self, pod: Manifest, folder: Path) -> dict[str, Path]:
        """Write what a pod mounts; return the folders by their mount paths."""
        (container,) = pod["spec"]["containers"]
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        found: dict[str, Path] = {}
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            where = folder / mount["name"]
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                where = self._directory / "claims" / pod["metadata"]["namespace"] / claim
            where.mkdir(parents=True, exist_ok=True)
            for name, content in self._files(pod, volume).items():
                (where / name).write_bytes(content)
            found[mount["mountPath"]] = where
        return found

    def _files(self, pod: Manifest, volume: Manifest) -> Mapping[str, bytes]:
        if "configMap" in volume:
            return self._data(pod, "configmaps", volume["configMap"]["name"])
        if "secret" not in volume:
            return {}
        data = self._data(pod, "secrets", volume["secret"]["secretName"])
        items = volume["secret"].get("items", [{"key": key, "path": key} for key in data])
        return {one["path"]: data[one["key"]] for one in items}

    def _data(self, pod: Manifest, kind: str, name: str) -> dict[str, bytes]:
        found = self._api.call("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/{kind}/{name}")
        decoded = base64.b64decode if kind == "secrets" else str.encode
        return {key: decoded(text) for key, text in found.get("data", {}).items()}

    def _services(self, namespace: str) -> dict[str, str]:
        """Return the address of a ready pod behind each ``service:port`` of a namespace."""
        path = f"/api/v1/namespaces/{namespace}"
        pods = [one for one in self._api.call("GET", f"{path}/pods")["items"] if self._serves(one)]
        found: dict[str, str] = {}
        services = self._api.call("GET", f"{path}/services")["items"]
        for service, pod in product(services, pods):
            if service["spec"].get("selector", {}).items() <= pod["metadata"]["labels"].items():
                for port in service["spec"]["ports"]:
                    target = f"{pod['status']['podIP']}:{_port(pod, port['targetPort'])}"
                    found.setdefault(f"{service['metadata']['name']}:{port['port']}", target)
        return found

    def _serves(self, pod: Manifest) -> bool:
        running = self._running.get(pod["metadata"]["uid"])
        return running is not None and running.is_ready and "deletionTimestamp" not in pod["metadata"]


def _path(pod: Manifest) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _port(pod: Manifest, name: str | int) -> int:
    ports = [port for one in pod["spec"]["containers"] for port in one.get("ports", [])]
    return next(int(port["containerPort"]) for port in ports if name in (port.get("name"), port["containerPort"]))


def _is_ready(pod: Manifest, address: str) -> bool:
    (container,) = pod["spec"]["containers"]
    probe = container.get("readinessProbe")
    if probe is None:
        return True
    url = f"http://{address}:{_port(pod, probe['httpGet']['port'])}{probe['httpGet']['path']}"
    return http.client.OK <= asked(url, timeout_s=_PROBE_S)[0] < http.client.BAD_REQUEST


def http_status(address: str, port: int, method: str, path: str, timeout_s: float = 30.0, **more: Any) -> int:
    """Return the status of an answer; ``more`` are headers and a body."""
    with closing(http.client.HTTPConnection(address, port, timeout=timeout_s)) as connection:
        connection.request(method, path, **more)
        return connection.getresponse().status


@cache
def image_commands() -> dict[str, tuple[list[str], list[str]]]:
    """Return entry point and default arguments of each image, by our Dockerfile."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for stage in DOCKERFILE.read_text(encoding="utf-8").split("\nFROM ")[1:]:
        entrypoint, arguments = (re.search(rf"^{key} (\[.*\])$", stage, re.MULTILINE) for key in ("ENTRYPOINT", "CMD"))
        if entrypoint and arguments:
            name = stage.partition("\n")[0].rpartition(" AS ")[2]
            found[name] = json.loads(entrypoint[1]), json.loads(arguments[1])
    return found
