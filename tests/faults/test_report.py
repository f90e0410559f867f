"""The report counts each harm, names each fault without recovery, and is what scripts and people read."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from typer.testing import CliRunner

from tests.faults.__main__ import app
from tests.faults.campaign import ENTRIES, Row
from tests.faults.checker import Finding
from tests.faults.episodes import Episode
from tests.faults.fault_points import FAULT_POINTS
from tests.faults.page import page
from tests.faults.report import document, is_harmless
from tests.support.checkout import ROOT

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rows() -> list[Row]:
    kills = [Episode("kill join", "join: produce, after", 0.0, seconds) for seconds in (1.0, 2.0, 3.0)]
    harm = [Finding("labels", "lost", "q-1"), Finding("labels", "doubled", "q-2"), Finding("labels", "altered", "q-3")]
    return [
        Row("kill join", kills, harm, queries=50, dead_letters=1),
        Row("broker SIGKILL", [Episode("broker SIGKILL", "fit has not committed", 4.0, None)], [], queries=20),
    ]


def test_the_report_counts_harm_and_recovery_by_kind() -> None:
    made = document(rows(), "make chaos", 7, NOW)
    first, second = made["kinds"]
    assert (first["faults"], first["lost"], first["doubled"], first["contradictory"], first["other"]) == (3, 1, 1, 0, 1)
    assert first["recovery_s"]["p50"] == 2.0
    assert (second["not recovered"], second["recovery_s"]) == (1, {})
    assert made["total"]["faults"] == 4
    assert made["kills_by_step"]["produce, after"] == 3
    assert set(made["kills_by_step"]) == {point.name for point in FAULT_POINTS}
    assert not made["harmless"]


def test_harm_or_a_missing_recovery_is_not_harmless() -> None:
    kept = Row("kill fit", [Episode("kill fit", "fit: anywhere", 0.0, 1.0)], [])
    assert is_harmless([kept])
    assert not is_harmless([kept, rows()[1]])


def test_an_unknown_kind_is_one_line_and_exit_code_2() -> None:
    done = CliRunner().invoke(app, ["--kinds", "earthquake"])
    assert done.exit_code == 2
    assert "no kind begins with 'earthquake'" in done.output


def test_it_is_written_down_what_every_kind_does() -> None:
    text = (ROOT / "docs" / "results" / "chaos" / "what-happens.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)[2:] == [entry.name for entry in ENTRIES]


def test_the_page_shows_every_row_and_its_receipt() -> None:
    text = page(document(rows(), "python -m tests.faults --seed 7", 7, NOW))
    assert "| kill join | 3 | 1 | 1 | 0 | 1 | 0 | 0 | 50 | 1 | 2.0 s | 3.0 s |" in text
    assert "$ python -m tests.faults --seed 7" in text
    assert "| produce | 0 | – | 3 |" in text
    assert "- kill join: lost q-1" in text
