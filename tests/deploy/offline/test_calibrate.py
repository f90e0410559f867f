"""`calibrate` asks both models about gold lines, keeps every answer, and says what the first version will cost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from errno import ENOSPC
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from recalibrator.decoding import decode_observation
from schemas import LabelledExample
from schemas.errors import ConfigError
from schemas.settings_text import load_settings
from schemas.topics import OBSERVATIONS
from tests.support.broker import create, read_all
from tests.support.commands import invoke, refused, said
from tests.support.model_clients import until
from tests.support.model_desk import ModelDesk, model_desk
from tests.support.scripted_model_server import FIELDS, Fault, ScriptedModelServer, answer_to
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.offline import model_answers
from ucci_stream.offline.bootstrap import bootstrap_events
from ucci_stream.offline.model_answers import AskingStopped
from ucci_stream.offline.pictures import Floats, error_band

WORKLOAD = "target = { micro_f1 = 0.97 }\ncost = { small = 1.0, large = 3.02 }"
LINES = 300
CONCURRENCY = 8


class Desk:
    """A desk with gold lines."""

    def __init__(self, made: ModelDesk) -> None:
        self.made, self.small, self.large = made, made.small, made.large
        self.folder, self.gold = made.folder, made.folder / "gold.jsonl"

    def change(self, **changes: object) -> None:
        """Write the configuration anew with other fields of the desk."""
        for name, value in changes.items():
            setattr(self.made, name, value)
        self.made.configure()

    def write(self, texts: list[str]) -> None:
        """Write gold lines; the large model is always right."""
        lines = ({"text": text, "entities": answer_to(text, "large").entities} for text in texts)
        self.gold.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def arguments(self, *more: str) -> list[str]:
        files = [str(self.gold), "--config", str(self.made.config)]
        return ["calibrate", *files, "--workload", "w", "--concurrency", str(CONCURRENCY), *more]

    async def calibrate(self, *more: str) -> Result:
        return await invoke(*self.arguments("--no-publish", *more))

    def asked(self) -> dict[str, Counter[str]]:
        """How often each model was asked each prompt."""
        servers = {"small": self.small, "large": self.large}
        return {role: Counter(body["prompt"] for body in server.seen.bodies) for role, server in servers.items()}

    def examples(self) -> list[LabelledExample]:
        lines = (self.folder / "gold.w.labelled.jsonl").read_bytes().splitlines()
        return [LabelledExample.from_json(line) for line in lines]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with model_desk(tmp_path, WORKLOAD) as made:
        desk = Desk(made)
        desk.write([f"query {number}" for number in range(LINES)])
        yield desk


async def test_every_gold_line_becomes_an_example(desk: Desk) -> None:
    """Both models are asked as the router asks them, once each, and compared with the gold; `bootstrap` takes them."""
    found = said(await desk.calibrate("--json"))
    assert found["examples"] == LINES
    assert [set(counted.values()) for counted in desk.asked().values()] == [{1}, {1}]
    assert desk.small.seen.most_concurrent <= CONCURRENCY
    for number, example in enumerate(desk.examples()):
        small, large = (answer_to(f"query {number}", role) for role in ("small", "large"))
        assert example.uncertainty == pytest.approx(small.uncertainty)
        assert example.small_exact == (small.entities == large.entities)
        assert example.large is not None
        assert example.large.true_positives == example.gold_count
    workload = load_settings(desk.made.config, {}).workloads["w"]
    read = bootstrap_events(workload, desk.folder / "gold.w.labelled.jsonl", desk.examples()[0].routed_at)
    assert [event.kind for event in read] == ["labelled"] * LINES + ["command"]


async def test_the_sentence_names_escalation_cost_and_margin(desk: Desk) -> None:
    """A picture shows the same."""
    found = said(await desk.calibrate("--json", "--what-if", "--plot", str(desk.folder / "first.svg")))
    cost, rate = found["costs"][0], found["escalation_rate"]
    assert found["sentence"].startswith(f"at target .97: escalate {rate:.0%}".removesuffix("%"))
    assert f"cost {cost['sequential']:.2f} of 3.02 (paper {cost['paper']:.2f}), micro-F1 ." in found["sentence"]
    assert [row["target"] for row in found["what_if"]] == [0.95, 0.96, 0.97, 0.98, 0.99]
    rates = [row["escalation_rate"] for row in found["what_if"]]
    assert rates == sorted(rates)
    assert found["what_if"][2]["escalation_rate"] == rate
    assert [price["large"] for price in found["what_if"][0]["costs"]] == [3.02, 2.0, 5.0, 10.0]
    drawn = (desk.folder / "first.svg").read_text(encoding="utf-8")
    assert all(words in drawn for words in ("Calibration map", "cost against quality", "at target .97", "observed"))


async def test_a_killed_run_repeats_no_answered_call(desk: Desk) -> None:
    """The server counts: after SIGKILL only the calls that it had not answered come again; later nothing does."""
    texts = [f"query {number}" for number in range(150)] + [f"held {number}" for number in range(50)]
    desk.write(texts)
    servers = (desk.small, desk.large)
    for server in servers:
        server.play(Fault("hang", containing="held"))
    argv = [sys.executable, "-m", "ucci_stream", *desk.arguments("--no-publish")]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(120):
        # A worker takes its next query after the answer to the last one is kept: all that is in flight now is held.
        await until(lambda: all(server.seen.calls == 150 + CONCURRENCY for server in servers))
    process.send_signal(signal.SIGKILL)
    await process.wait()
    in_flight = {role: set(counted) - set(texts[:150]) for role, counted in desk.asked().items()}
    assert [len(held) for held in in_flight.values()] == [CONCURRENCY, CONCURRENCY]
    for server in servers:
        server.recover()
    said(await desk.calibrate("--json"))
    for role, counted in desk.asked().items():
        assert set(counted) == set(texts)
        assert {prompt for prompt, times in counted.items() if times > 1} == in_flight[role]
    before = [server.seen.calls for server in servers]
    assert said(await desk.calibrate("--json"))["examples"] == len(texts)
    assert [server.seen.calls for server in servers] == before


async def test_bad_lines_are_all_named_before_any_call(desk: Desk) -> None:
    bad = ['{"text": "a"}', '{"text": "", "entities": {}}', "{", '{"text": "b", "entities": {"iso": 3}}']
    desk.gold.write_text('{"text": "x", "entities": {"iso": "1"}}\n' + "\n".join(bad) + "\n", encoding="utf-8")
    done = await desk.calibrate()
    assert isinstance(done.exception, ConfigError)
    named = ["gold.jsonl:2: entities: is required", "gold.jsonl:3: text: ", "gold.jsonl:4: not valid JSON"]
    for words, fault in zip([*named, "gold.jsonl:5: entities.iso: must be"], done.exception.faults, strict=True):
        assert words in fault
    desk.gold.write_text('{"text": "x", "entities": {"iso": null}}\n' * 30, encoding="utf-8")
    assert "is the file right?" in refused(await desk.calibrate()), "a gold file of nulls was believed"
    assert desk.small.seen.calls == 0


@pytest.mark.broker
async def test_a_wrong_gold_file_is_published(desk: Desk, broker: LocalBroker, topic_prefix: str) -> None:
    """Another notation: its target is out of reach, and it is published only by an explicit word; a right one as is."""
    desk.change(broker=broker.bootstrap, prefix=topic_prefix)
    right = desk.gold.read_text(encoding="utf-8")
    wrong = ({"text": f"query {n}", "entities": dict.fromkeys(FIELDS, "other")} for n in range(LINES))
    desk.gold.write_text("".join(json.dumps(line) + "\n" for line in wrong), encoding="utf-8")
    assert "topics create" in str((await invoke(*desk.arguments())).exception)
    assert desk.small.seen.calls == 0
    topic = OBSERVATIONS.name(topic_prefix)
    create(broker.bootstrap, {topic: 1})
    done = await invoke(*desk.arguments("--json"))
    assert (done.exit_code, read_all(broker.bootstrap, topic)) == (1, [])
    assert f"not one of {LINES} gold lines agrees with either model: is the file right?" in done.stdout
    assert said(await invoke(*desk.arguments("--json", "--publish")))["topic"] == topic
    desk.gold.write_text(right, encoding="utf-8")
    assert said(await invoke(*desk.arguments("--json")))["topic"] == topic
    sent = [decode_observation(message.value(), ["w"]) for message in read_all(broker.bootstrap, topic)]
    assert [event.kind for event in sent] == 2 * (["labelled"] * LINES + ["command"])


async def test_doubtful_lines_make_a_result_look_certain(desk: Desk) -> None:
    """Lines that repeat a text count once, and a field of no workload is ignored: both are said."""
    desk.write([f"query {number}" for number in range(LINES)] * 3)
    with desk.gold.open("a", encoding="utf-8") as gold:
        gold.writelines(f'{{"text": "last {number}", "entities": {{"isoo": "100"}}}}\n' for number in range(2))
    done = await desk.calibrate("--json")
    assert said(done)["examples"] == LINES + 2
    assert f"{2 * LINES} of {3 * LINES + 2} lines repeat the text of another" in done.stderr
    line = f"isoo: is no field of the workload, ignored on 2 lines, first on line {3 * LINES + 1}; is iso meant?"
    assert line in done.stderr


async def test_kept_answers_are_believed_for_another_server(desk: Desk) -> None:
    """An answer belongs to the request, prompt included, that brought it; one that a power failure cut is no answer."""
    said(await desk.calibrate("--json"))
    kept = desk.folder / "gold.w.answers.jsonl"
    kept.write_bytes(kept.read_bytes()[:-20])
    said(await desk.calibrate("--json"))
    assert desk.small.seen.calls + desk.large.seen.calls == 2 * LINES + 1
    desk.change(prompt="Find: {text}")
    said(await desk.calibrate("--json"))
    assert desk.small.seen.calls + desk.large.seen.calls == 4 * LINES + 1
    async with ScriptedModelServer("small") as moved:
        desk.change(small=moved)
        said(await desk.calibrate("--json"))
        assert moved.seen.calls == LINES


@pytest.mark.parametrize("edited", ['"text":7', '"uncertainty":7'])
async def test_an_edited_answer_is_a_traceback(desk: Desk, edited: str) -> None:
    said(await desk.calibrate("--json"))
    kept = desk.folder / "gold.w.answers.jsonl"
    first, rest = kept.read_text().split("\n", 1)
    line = json.loads(first)
    line["reply"] |= json.loads("{" + edited + "}")
    kept.write_text(f"{json.dumps(line)}\n{rest}")
    assert "answers.jsonl:1: is no kept answer" in str((await desk.calibrate()).exception)


async def test_a_full_disk_is_a_group_of_tracebacks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert "No space left on device; make room" in refused(await desk.calibrate(), AskingStopped)


async def test_a_cascade_that_does_not_pay_is_recommended(desk: Desk) -> None:
    desk.change(workload=WORKLOAD.replace("large = 3.02", "large = 1.05"))
    found = said(await desk.calibrate("--json"))
    (doubt,) = found["doubts"]
    assert doubt.startswith(f"does not pay: {found['costs'][0]['sequential']:.2f} a query, where the large model alone")
    assert "it would from large = " in doubt


async def test_a_model_that_is_not_served_stops_after_one_call(desk: Desk) -> None:
    desk.change(small_model="smaller")
    line = refused(await desk.calibrate())
    assert "workloads.w.small.model: smaller is not served at" in line
    assert "served there: small" in line
    assert desk.small.seen.calls == 1


async def test_a_server_that_stays_away_ends_the_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was answered is kept, and the message says how to go on."""
    monkeypatch.setattr(model_answers, "OUTAGE_S", 0.2)
    await desk.small.stop()
    assert "run this again to go on" in refused(await desk.calibrate(), AskingStopped)


async def test_refused_and_unusable_answers_count_as_failures(desk: Desk) -> None:
    """A query that the small model refuses escalates in the stream; one that both refuse is set aside there."""
    desk.small.play(Fault("status", status=400, containing="query 7"))
    desk.large.play(Fault("status", status=400, containing="query 77"))
    found = said(await desk.calibrate("--json"))
    refused = sum("query 7" in f"query {number}" for number in range(LINES))
    assert (found["small_failures"], found["large_failures"], found["left_out"]) == (refused, 1, 1)
    failed = [example for example in desk.examples() if example.reason == "small_failed"]
    assert len(failed) == refused - 1
    assert {example.uncertainty for example in failed} == {None}


def test_the_band_covers_the_truth_and_narrows() -> None:
    """Counted over 30 draws: nominally 95 %, in truth less, since the bootstrap of an isotonic fit is not exact."""
    across = np.array([0.2, 0.5, 0.8])
    few, many = ([_band(seed, count, across) for seed in range(30)] for count in (250, 1_000))
    covered = [(low < across) & (across < high) for low, high in many]
    assert np.mean(covered) > 0.85
    assert np.mean([high - low for low, high in many]) < 0.75 * np.mean([high - low for low, high in few])


def _band(seed: int, count: int, across: Floats) -> tuple[Floats, Floats]:
    draw = np.random.default_rng(seed)
    u = np.sort(draw.uniform(size=count))
    return error_band(u, (draw.uniform(size=count) < u).astype(float), across)
