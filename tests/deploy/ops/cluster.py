"""A Kubernetes API server with etcd and the controllers, as processes on this machine, and Helm and kubectl for it.

All of them are built from their Go modules, once, into the cache of the other tools: the API server takes most of the
time, a quarter of an hour on 2 cores. The checksum database of Go pins what is built by the versions below. Nothing
here runs pods: see :mod:`tests.deploy.ops.process_node`.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.ops.manifests import Manifest
from tests.deploy.ops.operators import go_module, run
from tests.support.waiting import wait_until
from ucci_stream.local.kafka_node import pick_port
from ucci_stream.local.processes import ChildProcess
from ucci_stream.local.side_environment import cache_directory

KUBERNETES = "1.36.3"
ETCD = "3.6.8"
HELM = "3.22.0"
BUILD_S = 3_000.0
COMMAND_S = 120.0
START_S = 120.0
_KUBERNETES_MODULE = "k8s.io/kubernetes"
_PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": f"{_KUBERNETES_MODULE}/cmd/kubectl",
    "kube-apiserver": f"{_KUBERNETES_MODULE}/cmd/kube-apiserver",
    "kube-controller-manager": f"{_KUBERNETES_MODULE}/cmd/kube-controller-manager",
}
_CONTROLLERS = (
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)


# --- the programs ---


def ensure_programs() -> Path:
    """Return the folder of etcd, kube-apiserver, kube-controller-manager, kubectl and helm, built the first time."""
    home = cache_directory() / f"kubernetes-{KUBERNETES}-helm-{HELM}"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "go.mod").write_text(_module(), encoding="ascii")
        minor = KUBERNETES.split(".")[1]
        version = {"gitVersion": f"v{KUBERNETES}", "gitMajor": "1", "gitMinor": minor}
        places = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        flags = " ".join(["-s -w", *(f"-X {p}.{key}={value}" for p in places for key, value in version.items())])
        for name, package in _PROGRAMS.items():
            _go("build", "-mod=mod", "-ldflags", flags, "-o", str(home / name), package, cwd=home)
        _go("install", f"helm.sh/helm/v3/cmd/helm@v{HELM}", cwd=home, GOBIN=str(home))
        (home / "complete").touch()
    return home


def _module() -> str:
    """Return a module of our own whose dependencies are those of Kubernetes.

    Kubernetes requires its parts, published as modules beside it, as v0.0.0 and replaces them by folders of its own.
    """
    requirements = go_module(f"{_KUBERNETES_MODULE}@v{KUBERNETES}") / "go.mod"
    theirs = json.loads(_go("mod", "edit", "-json", str(requirements), cwd=Path("/")))
    parts = [one["Path"] for one in theirs["Require"] if one["Version"] == "v0.0.0"]
    version = f"v0.{KUBERNETES.partition('.')[2]}"
    return "\n".join(
        [
            "module example.org/cluster",
            # Without it Go reads the requirements of all that is required, thousands of files.
            f"go {theirs['Go']}",
            f"require {_KUBERNETES_MODULE} v{KUBERNETES}",
            f"require {_PROGRAMS['etcd']} v{ETCD}",
            *(f"replace {part} => {part} {version}" for part in parts),
            "",
        ]
    )


def _go(*argv: str, cwd: Path, **environ: str) -> str:
    return run("go", *argv, cwd=cwd, timeout_s=BUILD_S, **environ)


# --- the API ---


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """Requests to the API server as its administrator."""

    address: str
    token: str
    #: The certificate that the server is known by; of its own making.
    authority: Path

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Return the JSON of an answer.

        Raises ApiError where the server refuses; raises OSError where it does not answer.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            with urllib.request.urlopen(request, timeout=COMMAND_S, context=context) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from None


@dataclass(frozen=True)
class Cluster:
    """A running API server, and the commands that operators have for it."""

    api: Api
    programs: Path
    #: Holds ``kubeconfig`` and what Helm keeps.
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which ``helm`` and ``kubectl`` are found, and find this cluster."""
        helm = {f"HELM_{what}_HOME": str(self.directory / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "KUBECONFIG": str(self.directory / "kubeconfig"), **helm}

    def helm(self, *argv: str) -> str:
        """Return what a command of Helm writes."""
        return run(str(self.programs / "helm"), *argv, cwd=self.directory, timeout_s=COMMAND_S, **self.environment)

    def kubectl(self, *argv: str, given: str | None = None) -> str:
        """Return what ``kubectl`` writes."""
        kubectl, where = str(self.programs / "kubectl"), self.directory
        return run(kubectl, *argv, cwd=where, timeout_s=COMMAND_S, given=given, **self.environment)

    def get(self, namespace: str, kinds: str, *argv: str) -> list[Manifest]:
        """Return the objects of some kinds in a namespace."""
        found: list[Manifest] = json.loads(self.kubectl("-n", namespace, "get", kinds, "-o", "json", *argv))["items"]
        return found

    def await_objects(
        self, namespace: str, kinds: str, holds: Callable[[list[Manifest]], bool], what: str
    ) -> list[Manifest]:
        """Return the objects of some kinds once they are as wanted."""
        return wait_until(lambda: self.get(namespace, kinds), what, holds, within_s=START_S)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Run etcd, the API server and the controllers, on free ports and with a token and keys of their own."""
    programs = ensure_programs()
    with ExitStack() as parts:

        def start(name: str, *options: str) -> ChildProcess:
            process = ChildProcess(name, [str(programs / name), *options], directory / f"{name}.log")
            parts.callback(process.kill)
            process.start()
            return process

        etcd = _start_etcd(directory, start)
        api, server = _start_api(directory, etcd, start)
        _await(lambda: api.call("GET", "/version"), server)
        found = Cluster(api, programs, directory)
        (directory / "kubeconfig").write_text(json.dumps(_kubeconfig(api)), encoding="utf-8")
        options = ("--leader-elect=false", "--secure-port=0", f"--controllers={','.join(_CONTROLLERS)}")
        controllers = start("kube-controller-manager", f"--kubeconfig={directory / 'kubeconfig'}", *options)
        # Pods of a namespace are refused before its service account is there.
        _await(lambda: api.call("GET", "/api/v1/namespaces/default/serviceaccounts/default"), controllers)
        yield found


Start = Callable[..., ChildProcess]


def _start_etcd(directory: Path, start: Start) -> str:
    clients, peers = (f"http://127.0.0.1:{pick_port()}" for _ in range(2))
    start(
        "etcd",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # What a test writes need not outlive the machine.
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    return clients


def _start_api(directory: Path, etcd: str, start: Start) -> tuple[Api, ChildProcess]:
    port, token, key = pick_port(), secrets.token_hex(16), directory / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = directory / "tokens.csv"
    tokens.write_text(f"{token},admin,admin,system:masters\n", encoding="ascii")
    certificates = directory / "certificates"
    server = start(
        "kube-apiserver",
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
    )
    return Api(f"https://127.0.0.1:{port}", token, certificates / "apiserver.crt"), server


def _kubeconfig(api: Api) -> Mapping[str, Any]:
    where = {"server": api.address, "certificate-authority": str(api.authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": where}],
        "users": [{"name": "admin", "user": {"token": api.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def _await(asked: Callable[[], object], process: ChildProcess) -> None:
    """Block until a request is answered; raise when the process ends, or does not answer in time."""

    def refusal() -> str:
        try:
            asked()
        except (OSError, ApiError) as refused:  # the file of the authority is written by the server, too
            process.require_alive()
            return repr(refused)
        return ""

    wait_until(refusal, f"{process.name} answers", lambda refused: not refused, within_s=START_S)
