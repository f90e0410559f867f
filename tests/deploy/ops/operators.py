"""What the operators of Kafka, of Prometheus and of KEDA add to Kubernetes: their own definitions of their objects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from ucci_stream.local.kafka_install import java_runtime
from ucci_stream.local.side_environment import cache_directory

KEDA = "github.com/kedacore/keda/v2@v2.21.0"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
STRIMZI = "1.2.0"
#: What the chart makes of them.
KINDS = ("ScaledObject", "ServiceMonitor", "PrometheusRule", "KafkaTopic", "KafkaUser")

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 500.0


class CommandFailedError(AssertionError):
    """A command ended with another exit code than 0; the message is what it wrote."""


def run(*argv: str, cwd: Path = ROOT, timeout_s: float = TIMEOUT_S, given: str | None = None, **environ: str) -> str:
    """Return what a command writes, with these variables in its environment. Raises CommandFailedError."""
    env = os.environ | environ
    done = subprocess.run(
        argv, cwd=cwd, env=env, input=given, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode:
        raise CommandFailedError(f"{' '.join(argv)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def crd_of(kind: str) -> Path:
    """Return the file that defines one of :data:`KINDS`."""
    if kind.startswith("Kafka"):
        return strimzi_crd(kind)
    if kind == "ScaledObject":
        return go_module(KEDA) / "config" / "crd" / "bases" / "keda.sh_scaledobjects.yaml"
    folder = go_module(PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    return folder / f"monitoring.coreos.com_{kind.lower()}s.yaml"


def go_module(module: str) -> Path:
    assert shutil.which("go"), "Go fetches the CRDs and builds the API server: install it"
    return Path(json.loads(run("go", "mod", "download", "-json", module, cwd=Path("/"), GOFLAGS="-mod=mod"))["Dir"])


def strimzi_crd(kind: str) -> Path:
    """Return the CRD as Strimzi's own generator writes it."""
    folder = cache_directory() / f"strimzi-{STRIMZI}"
    target = folder / f"{kind}.yaml"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pom = folder / "pom.xml"
        artifacts = "".join(
            f"<dependency><groupId>io.strimzi</groupId><artifactId>{name}</artifactId><version>{STRIMZI}</version>"
            "</dependency>"
            for name in ("crd-generator", "api")
        )
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
            f"<dependencies>{artifacts}</dependencies></project>"
        )
        run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars")
        model = {"KafkaTopic": "topic", "KafkaUser": "user"}[kind]
        name = f"io.strimzi.api.kafka.model.{model}.{kind}"
        generator = ("-cp", f"{folder}/jars/*", "io.strimzi.crdgenerator.CrdGenerator")
        # It needs a Java of 21 or later.
        run(str(java_runtime()), *generator, "--yaml", f"{name}={target}")
    return target
