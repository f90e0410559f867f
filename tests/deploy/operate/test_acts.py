"""The acts of the page from the command line, against a whole recalibrator: each answer names the version it led to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from schemas.status import Headline, LabelOutlook, LabelPlan, LabelStatus, LabelsWithoutResult, WorkloadStatus
from tests.support.live_recalibrator import WORKLOAD, LiveRecalibrator, live_settings, new_cluster, running
from tests.support.waiting import wait_until
from tests.support.workload_statuses import status as workload_status
from ucci_stream import cli, options
from ucci_stream.cli import app
from ucci_stream.operate import commands
from ucci_stream.operate.http_api import RecalibratorApi


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRecalibrator]:
    """Versions 1 (threshold .1) and 2 (.2), 2 in force."""
    with running(live_settings(tmp_path_factory.mktemp("state")), new_cluster()) as live:
        live.bootstrap(0.1, 0.2)
        wait_until(lambda: live.status() is not None and current(live) == 2, "two versions")
        yield live


def stands(live: LiveRecalibrator) -> WorkloadStatus:
    status = live.status()
    assert status is not None
    return status


def current(live: LiveRecalibrator) -> int | None:
    return stands(live).calibration_version


def call(live: LiveRecalibrator, *arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--url", live.url, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    # The recalibrator of this process logs between the lines, and after them.
    (answer,) = (line for line in result.stdout.splitlines() if line.startswith("{"))
    return json.loads(answer)


def test_roll_back_names_its_version_and_holds(live: LiveRecalibrator) -> None:
    """Without a number the version before the one in force comes back, and holds until `unpin`."""
    before = current(live)
    answer = call(live, "rollback", "--reason", "worse since noon")
    outcome, status = answer["outcome"], stands(live)
    assert (outcome["is_refused"], answer["reason"], status.state) == (False, "worse since noon", "pinned")
    assert outcome["version"] == status.calibration_version == (before or 0) + 1
    assert call(live, "unpin")["outcome"]["note"] == "unpinned"
    assert stands(live).state != "pinned"
    call(live, "rollback", "1", "--until-refit")
    status = stands(live)
    assert (status.state == "pinned", status.uncertainty_threshold) == (False, 0.1)
    listed = call(live, "versions", "--limit", "100")
    assert listed["calibration_version"] == current(live) == listed["versions"][0]["version"]


def test_a_demo_in_this_folder_is_not_asked_for_another_service(
    live: LiveRecalibrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--url`` the demo's configuration named its own workload, of which that service knows nothing."""
    (tmp_path / "ucci-demo").mkdir()
    config = '[workloads.other]\nfields = ["iso"]\ntarget = { micro_f1 = 0.9 }\n'
    (tmp_path / "ucci-demo" / "ucci.toml").write_text(config, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert call(live, "unpin")["outcome"]["is_refused"] is False


def test_every_act_of_the_page_is_a_command(live: LiveRecalibrator) -> None:
    """Pause, resume, pin, trial and its end: the status shows each as soon as its command has answered."""
    call(live, "pause")
    assert stands(live).state == "paused"
    call(live, "resume")
    in_force = current(live)
    pinned = call(live, "pin")["outcome"]
    assert (pinned["note"], pinned["version"]) == (f"pin of version {in_force}", current(live))
    assert stands(live).state == "pinned"
    call(live, "unpin")
    tried = call(live, "shadow", "1")["outcome"]["version"]
    assert tried != current(live)
    assert call(live, "canary", "2", "--share", "0.5")["outcome"]["version"] == tried + 1
    assert call(live, "stop-trial")["outcome"]["version"] == current(live)
    call(live, "canary", "2", "--share", "0.5")
    assert call(live, "promote")["outcome"]["version"] == current(live)
    assert call(live, "large-only", "--until", "2099-01-01T00:00:00Z")["outcome"]["note"].startswith("large only until")
    assert stands(live).large_only is not None
    call(live, "end-large-only")
    assert stands(live).large_only is None


def test_status_says_the_headline_and_exits_by_its_severity(live: LiveRecalibrator) -> None:
    """As page and API say it: a pinned version is calm; a service that nobody answers could not be asked."""
    call(live, "pin")
    told = call(live, "status")
    assert told["headline"]["kind"] == "held"
    assert list(told["numbers"]) == ["micro-F1", "escalated", "cost", "degraded", "waiting"]
    said = CliRunner().invoke(app, ["status", "--url", live.url]).stdout
    assert told["headline"]["sentence"] in said
    assert f"Once the reason is gone, unpin. {live.url}/confirm?workload=photo&action=unpin" in said
    call(live, "unpin")
    wait_until(lambda: stands(live).state != "pinned", "unpinned")
    assert CliRunner().invoke(app, ["status", "--url", live.url]).exit_code == 3, "few labels are a warning"
    assert CliRunner().invoke(app, ["status", "--url", "http://127.0.0.1:9"]).exit_code == 1


def test_status_tells_of_labels_that_wait_for_a_result() -> None:
    waiting = LabelsWithoutResult(queries=17, oldest_at=datetime.now(UTC) - timedelta(hours=3), latest=("Q-17",))
    labels = LabelStatus(without_result=waiting)
    headline = Headline(kind="well", severity="good", cause="All is well", sentence="All is well.")
    told = workload_status(labels=labels, headline=headline).model_dump(mode="json")
    outcome = commands.stands(told, "http://127.0.0.1:8080")
    line = "Labels of 17 queries wait for a result, the oldest for 3 h; look one up: ucci-stream explain Q-17"
    assert line in outcome.lines
    assert outcome.document["labels_without_result"]["queries"] == 17
    assert outcome.code == 0


def test_what_labels_buy_is_told_and_drawn(
    live: LiveRecalibrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = LabelOutlook(per_query=0.005, per_day=500.0, half_width=0.0201, cost=1.6, found_after=650_000)
    many = LabelOutlook(per_query=0.02, per_day=2_000.0, half_width=0.0129, cost=1.52, found_after=77_000)
    plan, picture = LabelPlan(now=0, outlooks=(few, many)), tmp_path / "labels.png"
    asked = ["labels", "--plan", "--url", live.url]
    unknown = CliRunner().invoke(app, asked)
    assert unknown.exit_code == 1
    assert "not known yet" in unknown.output

    async def status(*_: object) -> dict[str, Any]:
        return {"label_plan": plan.model_dump(mode="json")}

    monkeypatch.setattr(RecalibratorApi, "status", status)
    told = CliRunner().invoke(app, [*asked, "--plot", str(picture)], catch_exceptions=False)
    assert "With 2,000 labels a day (2%) it would be ±0.0129" in " ".join(told.stdout.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert call(live, "labels", "--plan")["outlooks"][1]["per_day"] == 2_000.0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["refit"], 1, "refit refused: needs 50 labels"),
        (["rollback", "99"], 1, "version 99"),
        (["promote"], 1, "no version of photo is on trial"),
        (["believe", "cloe"], 1, "believe refused: cloe "),
        (["compare-again", "cloe"], 1, "compare again refused: cloe "),
        (["pin", "--workload", "nobody"], 1, "workload 'nobody' is not configured here"),
        (["pause", "--workload", WORKLOAD, "--url", "http://127.0.0.1:9"], 1, "is not reached"),
        (["pause", "--workload", WORKLOAD, "--url", "photo:8080/x"], 2, "--url: 'photo:8080/x' is not an address"),
    ],
)
def test_what_is_refused_is_one_line_and_its_exit_code(
    live: LiveRecalibrator, arguments: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    error = io.StringIO()
    monkeypatch.setattr(options, "err", Console(file=error, width=300))
    monkeypatch.setattr("sys.argv", ["ucci-stream", arguments[0], "--url", live.url, *arguments[1:]])
    with pytest.raises(SystemExit) as end:
        cli.main()
    text = error.getvalue()
    assert (end.value.code, said in text, len(text.splitlines())) == (code, True, 1), text


@pytest.mark.parametrize("command", ["status", "versions", "labels"])
def test_an_ascii_terminal_changes_no_exit_code(live: LiveRecalibrator, command: str, tmp_path: Path) -> None:
    codes = []
    for encoding in ("utf-8", "ascii"):
        ended = subprocess.run(
            [sys.executable, "-m", "ucci_stream", command, "--url", live.url],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in ended.stderr
        assert encoding == "utf-8" or (ended.stdout + ended.stderr).isascii()
        codes.append(ended.returncode)
    assert codes[0] == codes[1]
