"""`replay --plot` and `bootstrap --plot`: a picture is drawn, or refused before the work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalibrator.core import Recalibrator
from schemas import LabelledExample, TrafficSummary
from schemas.command import Command
from schemas.status import CostQualityCurve
from tests.support.cascade_stream import START, drive, example, settings, typo_world
from tests.support.commands import invoke, refused
from ucci_stream.offline.bootstrap import preview
from ucci_stream.offline.pictures import plot_calibration
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
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ucci.toml").write_text(CONFIG)
    seen: list[LabelledExample | TrafficSummary | Command] = []

    class Recorder(Recalibrator):
        def observe(self, event: LabelledExample | TrafficSummary | Command):  # type: ignore[no-untyped-def]  # noqa: ANN202
            seen.append(event)
            return super().observe(event)

    drive(Recorder(settings()), typo_world(2_500, 2_500).draw, 2_500)
    (tmp_path / "stream.jsonl").write_bytes(b"".join(event.to_json() + b"\n" for event in seen))
    world = typo_world(600, 600)
    offline = [example(world.draw(number), f"q-{number}", "w", START)[1] for number in range(600)]
    (tmp_path / "offline.jsonl").write_bytes(b"".join(one.to_json() + b"\n" for one in offline))
    return tmp_path


async def test_replay_draws_its_versions_and_still_prints_them(folder: Path) -> None:
    picture, arguments = folder / "versions.png", ("replay", folder / "stream.jsonl", "--config", folder / "ucci.toml")
    done = await invoke(*arguments, "--plot", picture, "--json")
    assert done.exit_code == 0, done.output
    assert '"version":1' in done.stdout
    assert picture.read_bytes().startswith(PNG)


def test_bootstrap_plot_shows_map_and_thresholds_of_its_file(folder: Path) -> None:
    version = preview(settings(), folder / "offline.jsonl", START)
    frontier = CostQualityCurve.model_validate(version.evidence.details["frontier"])
    assert frontier.chosen is not None
    assert frontier.threshold[frontier.chosen] == pytest.approx(version.uncertainty_threshold, abs=1e-6)
    drawn = plot_calibration(version, folder / "calibration.svg")
    assert "Calibration map" in drawn.read_text()


def test_too_few_labels_are_refused_with_the_least_number(folder: Path) -> None:
    lines = (folder / "offline.jsonl").read_text().splitlines()[:20]
    (folder / "few.jsonl").write_text("\n".join(lines))
    with pytest.raises(FeedStopped, match="needs 50 labels"):
        preview(settings(), folder / "few.jsonl", START)


@pytest.mark.parametrize(("name", "fault"), [("out.gif", "must end in"), ("none/out.png", "does not exist")])
async def test_where_nothing_can_be_drawn_is_said_before_the_work(folder: Path, name: str, fault: str) -> None:
    arguments = ("replay", folder / "stream.jsonl", "--config", folder / "ucci.toml")
    done = await invoke(*arguments, "--plot", folder / name)
    assert fault in refused(done)
    assert not done.stdout
