"""`replay --plot` and `bootstrap --plot`: a picture is drawn, or refused before the work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalibrator.core import Recalibrator
from schemas import LabelledExample, TrafficSummary
from schemas.command import Command
from tests.support.cascade_stream import START, drive, example, settings, typo_world
from tests.support.commands import invoke, refused
from ucci_stream.offline.bootstrap import preview
from ucci_stream.topics.feed import FeedStopped

CONFIG = """\
[kafka]
"bootstrap.servers" = "127.0.0.1:1"

[workloads.w]
prompt = "{text}"
fields = ["a", "b", "c", "d", "e", "f"]
small = { base_url = "http://127.0.0.1:1/v1", model = "small" }
large = { base_url = "http://127.0.0.1:2/v1", model = "large" }
target = { micro_f1 = 0.93 }
cost = { small = 1.0, large = 3.02 }
"""
PNG = b"\x89PNG"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "ucci.toml").write_text(CONFIG)
    return tmp_path / "ucci.toml"


async def test_replay_draws_its_versions_and_still_prints_them(config: Path, tmp_path: Path) -> None:
    seen: list[LabelledExample | TrafficSummary | Command] = []

    class Recorder(Recalibrator):
        def observe(self, event: LabelledExample | TrafficSummary | Command):  # type: ignore[no-untyped-def]  # noqa: ANN202
            seen.append(event)
            return super().observe(event)

    drive(Recorder(settings()), typo_world(2_500, 2_500).draw, 2_500)
    picture, stream = tmp_path / "versions.png", tmp_path / "stream.jsonl"
    stream.write_bytes(b"".join(event.to_json() + b"\n" for event in seen))
    done = await invoke("replay", stream, "--config", config, "--plot", picture, "--json")
    assert done.exit_code == 0, done.output
    assert '"version":1' in done.stdout
    assert picture.read_bytes().startswith(PNG)


def test_too_few_labels_are_refused_with_the_least_number(tmp_path: Path) -> None:
    world = typo_world(20, 20)
    labels = [example(world.draw(number), f"q-{number}", "w", START)[1] for number in range(20)]
    (tmp_path / "few.jsonl").write_bytes(b"".join(one.to_json() + b"\n" for one in labels))
    with pytest.raises(FeedStopped, match="needs 50 labels"):
        preview(settings(), tmp_path / "few.jsonl", START)


@pytest.mark.parametrize(("name", "fault"), [("out.gif", "must end in"), ("none/out.png", "does not exist")])
async def test_where_nothing_can_be_drawn_is_said_before_the_work(
    config: Path, tmp_path: Path, name: str, fault: str
) -> None:
    (tmp_path / "stream.jsonl").write_text("no event, if it were read\n")
    done = await invoke("replay", tmp_path / "stream.jsonl", "--config", config, "--plot", tmp_path / name)
    assert fault in refused(done)
    assert not done.stdout
