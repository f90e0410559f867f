"""Our schemas at a real registry, Apicurio, over Confluent's protocol; `make test-ops` runs this.

Apicurio comes from Maven Central (159 MB the first time), the Java that it needs (21 or later) from PyPI.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.settings import Settings
from schemas.topics import QUERIES
from stream_router.intake_thread import decode_query
from ucci_stream.local.kafka_install import java_runtime
from ucci_stream.local.processes import ChildProcess, free_port
from ucci_stream.local.side_environment import cache_directory
from ucci_stream.operate.schema_registry import faults, look_up, register, schema_of, subject_of

pytestmark = pytest.mark.ops_tools

VERSION = "3.3.3"
START_S = 180.0
FETCH_S = 500.0


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Of a registry that is up, in memory alone."""
    folder, port = _unpacked(), free_port()
    environ = {
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "h2",
        # Without it every compatibility check of a draft 2020-12 schema ends in HTTP 500.
        "APICURIO_COMPAT_JSON_SCHEMA_USE_APITOMY": "true",
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_PORT": str(free_port()),
    }
    argv = [str(java_runtime()), "-Xmx400m", "-jar", str(folder / "quarkus-run.jar")]
    process = ChildProcess("registry", argv, tmp_path_factory.mktemp("registry") / "log", environ)
    process.start()
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        process.await_http(f"{url}/subjects", START_S)
        yield Settings.model_validate({"topics": {"prefix": "p"}, "schema_registry": {"url": url}})
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


def test_registry_takes_our_schemas_again_and_again(settings: Settings) -> None:
    first, second = register(settings), register(settings)
    assert first == second == look_up(settings)
    assert list(faults(settings, first)) == []


@pytest.mark.parametrize(("level", "passes"), [("FORWARD", True), ("BACKWARD", False), ("FULL", False)])
def test_added_optional_key_is_forward_compatible_alone(settings: Settings, level: str, passes: bool) -> None:
    """Why subjects are registered FORWARD."""
    register(settings)
    subject, document = subject_of(settings, QUERIES), json.loads(str(schema_of("QueryEvent").schema_str))
    document["properties"]["priority"] = {"type": "integer"}
    with SchemaRegistryClient({"url": settings.schema_registry["url"]}) as client:
        client.set_compatibility(subject, level)
        assert client.test_compatibility(subject, Schema(json.dumps(document), "JSON")) is passes
        client.set_compatibility(subject, "FORWARD")
        document["properties"]["text"] = {"type": "integer"}
        assert client.test_compatibility(subject, Schema(json.dumps(document), "JSON")) is False


def test_router_reads_what_confluents_serializer_writes(settings: Settings) -> None:
    register(settings)
    with SchemaRegistryClient({"url": settings.schema_registry["url"]}) as client:
        serializer = JSONSerializer(schema_of("QueryEvent"), client, conf={"auto.register.schemas": False})
        place = SerializationContext(QUERIES.name("p"), MessageField.VALUE)
        value = serializer({"query_id": "q", "text": "canon 5d"}, place)
    assert value is not None
    assert value[:1] == b"\0"
    query, workload = decode_query(value, ["w"])
    assert (query.query_id, query.text, workload) == ("q", "canon 5d", "w")
