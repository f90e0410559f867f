"""Dead letters on a real broker: counted by reason, shown whole, and replayed once however often one replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from typer.testing import CliRunner

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.topics import REPLAY_OF
from tests.support.broker import create, produce, read_all
from tests.support.commands import call
from ucci_runtime.broker.dead_letters import cut_to, dead_letter
from ucci_runtime.broker.records import Input, Record
from ucci_stream.cli import app
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.operate import kafka_letters
from ucci_stream.operate.kafka_letters import Letter, Selection, letter_of, replay_headers, replay_letters

pytestmark = pytest.mark.broker
PARTITIONS = 2


class Lab:
    """Topics of one test with letters on them, and the command line that reads them."""

    def __init__(self, broker: LocalBroker, prefix: str, directory: Path) -> None:
        self.bootstrap, self.prefix = broker.bootstrap, prefix
        names = ("queries", "results", "feedback", "dead-letters")
        create(self.bootstrap, {f"{prefix}.{name}": PARTITIONS for name in names})
        self.settings = Settings(kafka={"bootstrap.servers": self.bootstrap}, topics={"prefix": prefix})
        self._config = directory / "ucci.toml"
        lines = f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        self._config.write_text(lines, encoding="utf-8")

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def add(self, name: str, query_id: str, reason: str, *, stage: str = "route", cut: bool = False) -> None:
        """Set a record aside as the services do."""
        key, value = query_id.encode(), json.dumps({"query_id": query_id, "text": "canon"}).encode()
        source = Input(self.topic(name), int(query_id[-1]) % PARTITIONS)
        record = Record(source, 7, key, value * (100 if cut else 1), headers=(("trace", b"abc"),))
        letter = dead_letter(self.topic("dead-letters"), record, stage=stage, reason=reason, error=f"{reason}: why")
        letter = cut_to(letter, 1_200) if cut else letter
        self.produce("dead-letters", letter.key, letter.value, list(letter.headers), partition=0)

    def add_hostile(self) -> None:
        """Set a record aside with headers that no service writes."""
        error = "\x1b]52;c;ZWNobyBoaQ==\x07 \u202egnp.exe \x9b2J".encode()
        named = {"topic": self.topic("queries").encode(), "partition": b"1" * 5_000, "error": error, "reason": error}
        headers = [(f"dlq.{name}", value) for name, value in named.items()]
        self.produce("dead-letters", b"q-8", b'{"query_id": "q-8", "text": "canon"}', headers, partition=1)

    def produce(
        self, name: str, key: bytes | None, value: bytes | None, headers: list[Any], partition: int = -1
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.topic(name), key=key, value=value, headers=headers, partition=partition)
        assert producer.flush(30.0) == 0

    def identity(self, offset: int) -> bytes:
        """Return what names a letter on partition 0."""
        return f"{self.topic('dead-letters')}/0/{offset}".encode()

    def printed(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, ["dead-letters", *arguments, "--config", str(self._config)])
        assert result.exit_code == 0, result.output
        return result.stdout

    def call(self, *arguments: str) -> Any:
        return call("dead-letters", *arguments, "--config", self._config)

    def queries(self) -> list[Message]:
        return read_all(self.bootstrap, self.topic("queries"))


@pytest.fixture
def lab(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> Lab:
    lab = Lab(broker, topic_prefix, tmp_path)
    for number in range(4):
        lab.add("queries", f"q-{number}", "models_failed")
    lab.add("queries", "q-9", "models_failed", cut=True)
    lab.add("feedback", "q-1", "not_json", stage="join")
    lab.add("results", "q-2", "not_json", stage="join")
    return lab


def test_letters_are_counted_by_reason_and_shown_whole(lab: Lab) -> None:
    groups = {(one["stage"], one["reason"], one["topic"]): one for one in lab.call("list")["groups"]}
    failed = groups["route", "models_failed", lab.topic("queries")]
    assert (failed["count"], len(groups)) == (5, 3)
    assert failed["first_at"] <= failed["last_at"]
    assert lab.call("list", "--stage", "join", "--topic", "feedback")["groups"][0]["count"] == 1
    shown = lab.call("show", "0/0")
    assert (shown["error"], shown["source"]) == ("models_failed: why", f"{lab.topic('queries')}/0/7")
    assert json.loads(shown["value"])["query_id"] == "q-0"
    assert shown["headers"] == [["trace", "abc"]]


def test_a_replay_that_is_repeated_writes_nothing_twice(lab: Lab) -> None:
    """Records go back to their partitions, headers and the letter's identity with them; the rest is named."""
    dry = lab.call("replay", "--all", "--dry-run")
    assert (dry["replayed"], lab.queries()) == (5, [])
    done = lab.call("replay", "--all")
    assert done["by_topic"] == {lab.topic("queries"): 4, lab.topic("feedback"): 1}
    assert done["skipped"] == {"truncated": 1, "not_replayable": 1}
    again = lab.call("replay", "--all")
    assert (again["replayed"], again["skipped"]["replayed_before"]) == (0, 5)
    found = {json.loads(message.value() or b"")["query_id"]: message for message in lab.queries()}
    assert len(found) == len(lab.queries()) == 4
    assert {name: message.partition() for name, message in found.items()} == {f"q-{n}": n % 2 for n in range(4)}
    headers = dict(found["q-3"].headers() or ())
    assert headers == {"trace": b"abc", REPLAY_OF: lab.identity(3)}


def test_only_its_own_replay_or_answer_keeps_a_letter_back(lab: Lab) -> None:
    """A record that names another's letter, or has its bytes on another topic, does not count as its replay.

    A query that its producer sent again, and that was answered meanwhile, would be answered twice.
    """
    for number, (name, text) in enumerate([("queries", "x"), ("queries", "y"), ("feedback", "canon")]):
        value = json.dumps({"query_id": f"q-{number}", "text": text}).encode()
        lab.produce(name, f"q-{number}".encode(), value, [(REPLAY_OF, lab.identity(number))])
    produce(lab.bootstrap, lab.topic("results"), [("q-1", b"{}")])
    done = lab.call("replay", "--reason", "models_failed")
    assert (done["replayed"], done["skipped"]) == (3, {"truncated": 1, "answered": 1})
    assert lab.call("replay", "--reason", "models_failed")["skipped"]["replayed_before"] == 3


def test_a_replay_that_died_is_ended_by_the_next_one(lab: Lab) -> None:
    """What it had not committed does not show, and is replayed."""
    dead = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"{lab.prefix}-dead-letters-replay"})
    dead.init_transactions(30.0)
    dead.begin_transaction()
    dead.produce(lab.topic("queries"), key=b"q-0", value=b'{"query_id": "q-0"}', headers=[(REPLAY_OF, lab.identity(0))])
    assert dead.flush(30.0) == 0
    assert lab.call("replay", "0/0")["replayed"] == 1
    assert [message.key() for message in lab.queries()] == [b"q-0"]


def test_one_hostile_letter_steers_the_terminal_or_ends_a_replay(lab: Lab) -> None:
    """Its partition has more digits than Python reads, its reason what moves a terminal's cursor."""
    lab.add_hostile()
    for command in (["list"], ["show", "1/0"], ["show", "1/0", "--json"]):
        assert lab.printed(*command).replace("\n", "").isprintable()
    assert lab.call("replay", "--all")["replayed"] == 6
    assert len(lab.queries()) == 5


def test_a_replay_keeps_to_its_selection_rate_and_memory(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="or --all"):
        lab.call("replay")
    pauses: list[float] = []
    done = replay_letters(lab.settings, Selection(), rate=2.0, dry_run=False, wait=pauses.append)
    assert (done.by_topic.total(), pauses) == (5, [1.0, 1.0])
    monkeypatch.setattr(kafka_letters, "MOST_BYTES", 100)
    with pytest.raises(kafka_letters.ReplayFailed, match="choose fewer"):
        replay_letters(lab.settings, Selection(), rate=100.0, dry_run=True)


def test_a_letter_of_no_time_ends_every_list() -> None:
    """Producers choose the times of their records, and some brokers take any."""
    assert letter_of(Record(Input("letters", 0), 7, b"", b"", timestamp_ms=1 << 60)).at.year == 2999


def test_a_replay_cut_short_keeps_its_transaction_open(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C too: what is written to the topic meanwhile would wait for its time-out."""

    def interrupted(letter: Letter) -> list[Any]:
        if letter.record.key == b"q-3":
            raise KeyboardInterrupt
        return replay_headers(letter)

    monkeypatch.setattr(kafka_letters, "replay_headers", interrupted)
    aborted, abort = list[bool](), Producer.abort_transaction
    spied = {"abort_transaction": lambda self, *wait: aborted.append(abort(self, *wait) is None)}
    monkeypatch.setattr(kafka_letters, "Producer", type("Spied", (Producer,), spied))
    with pytest.raises(KeyboardInterrupt):
        replay_letters(lab.settings, Selection(), rate=100.0, dry_run=False)
    assert aborted == [True]
    assert lab.queries() == []
