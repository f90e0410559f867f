"""Our schemas at a real registry, Apicurio, over Confluent's protocol; `make test-ops` runs this.

Apicurio comes from Maven Central (159 MB the first time), the Java that it needs (21 or later) from PyPI.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from schemas.topics import FEEDBACK, LABEL_REQUESTS, QUERIES, RESULTS, Topic
from ucci_stream.local.kafka_install import java_runtime
from ucci_stream.local.kafka_node import pick_port
from ucci_stream.local.processes import ChildProcess
from ucci_stream.local.side_environment import cache_directory

pytestmark = pytest.mark.ops_tools

VERSION = "3.3.3"
START_S = 180.0
FETCH_S = 500.0
SCHEMAS = Path(__file__).parents[3] / "schemas" / "generated"
#: What other systems write or read.
SHARED = (QUERIES, FEEDBACK, RESULTS, LABEL_REQUESTS)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry that is up, in memory alone."""
    folder, port = _unpacked(), pick_port()
    environ = {
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "h2",
        # Without it every compatibility check of a draft 2020-12 schema ends in HTTP 500.
        "APICURIO_COMPAT_JSON_SCHEMA_USE_APITOMY": "true",
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_PORT": str(pick_port()),
    }
    argv = [str(java_runtime()), "-Xmx400m", "-jar", str(folder / "quarkus-run.jar")]
    process = ChildProcess("registry", argv, tmp_path_factory.mktemp("registry") / "log", environ)
    process.start()
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        process.await_http(f"{url}/subjects", START_S)
        yield url
    finally:
        process.kill()


def _unpacked() -> Path:
    folder = cache_directory() / f"apicurio-{VERSION}"
    if not folder.exists():
        archive = folder.with_name(f"{folder.name}.download")
        artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        argv = ["mvn", "-q", "dependency:copy", artifact, f"-DoutputDirectory={archive}"]
        subprocess.run(argv, check=True, timeout=FETCH_S)
        (file,) = archive.glob("*.tar.gz")
        with tarfile.open(file) as packed:
            packed.extractall(archive / "app", filter="data")
        (archive / "app").rename(folder)
    return folder


def asked(url: str, method: str, content: object) -> dict[str, Any]:
    """Return what the registry answers. Raises HTTPError where it refuses."""
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(url, json.dumps(content).encode(), kind, method=method), timeout=START_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def as_content(document: object) -> dict[str, str]:
    return {"schemaType": "JSON", "schema": json.dumps(document)}


@pytest.mark.parametrize(("level", "passes"), [("FORWARD", True), ("BACKWARD", False), ("FULL", False)])
@pytest.mark.parametrize("topic", SHARED, ids=lambda topic: topic.suffix)
def test_added_optional_key_is_forward_compatible_alone(registry: str, topic: Topic, level: str, passes: bool) -> None:
    """Why docs/operations.md has subjects registered FORWARD."""
    subject, (event,) = topic.name("p") + "-value", topic.events
    document = json.loads((SCHEMAS / f"{event}.schema.json").read_text(encoding="utf-8"))
    asked(f"{registry}/config/{subject}", "PUT", {"compatibility": "FORWARD"})
    first, again = (asked(f"{registry}/subjects/{subject}/versions", "POST", as_content(document)) for _ in range(2))
    assert first == again
    asked(f"{registry}/config/{subject}", "PUT", {"compatibility": level})
    compared = f"{registry}/compatibility/subjects/{subject}/versions/latest"
    document["properties"]["priority"] = {"type": "integer"}
    assert asked(compared, "POST", as_content(document))["is_compatible"] is passes
    document["properties"]["query_id"] = {"type": "integer"}
    assert asked(compared, "POST", as_content(document))["is_compatible"] is False
