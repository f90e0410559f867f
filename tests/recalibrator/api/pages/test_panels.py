"""Long lists folded: runs of refits to one line, dead letters to their reasons."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recalibrator.api.pages.panels import SHOWN_EXAMPLES, SHOWN_OF_RUN, letter_groups, version_groups
from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.version_lines import VersionLine, version_line
from schemas.calibration import Evidence
from tests.support.versions import sealed_version

START = datetime(2026, 3, 1, 10, tzinfo=UTC)


def line(version: int, trigger: str = "threshold_moved", **changes: Any) -> VersionLine:
    content = {
        "version": version,
        "created_at": START + timedelta(minutes=version),
        "uncertainty_threshold": 0.3 + version / 1_000,
        "parent_version": version - 1 or None,
        "evidence": Evidence(trigger=trigger),
    }
    return version_line(sealed_version(**content | changes))


def refits(count: int) -> list[VersionLine]:
    return [line(number) for number in range(count, 0, -1)]


def test_a_run_of_refits_is_one_line_with_its_span() -> None:
    """Of a long run the latest alone are shown."""
    current, run = version_groups(refits(100), (100,), most=10)

    assert (current.is_run, [row.line.version for row in current.rows]) == (False, [100])
    assert (run.is_run, run.size, run.oldest, len(run.rows)) == (True, 99, 1, SHOWN_OF_RUN)
    assert run.since == START + timedelta(minutes=1)
    assert (run.lowest, run.highest) == (0.301, 0.399)
    assert run.rows[0].changed["uncertainty_threshold"] == (0.398, 0.399)


def test_commands_and_changes_of_state_end_a_run() -> None:
    """What a person did, and what became infeasible, stays in sight between the runs around it."""
    lines = refits(12)
    lines[4], lines[8] = line(8, "activate"), line(4, state="infeasible")
    groups = version_groups(lines, (), most=10)

    assert [(group.is_run, group.size) for group in groups] == [(True, 4), (False, 1), (True, 3), (False, 1), (True, 3)]


def test_the_newest_groups_are_shown() -> None:
    lines = [line(number, "pin") if number % 4 == 0 else line(number) for number in range(40, 0, -1)]

    assert [group.rows[0].line.version for group in version_groups(lines, (), most=3)] == [40, 39, 36]


def test_dead_letters_are_grouped_with_their_latest() -> None:
    log = DeadLetterLog(("photo",))
    for number in range(9):
        reason = b"not_json" if number < 7 else b"models_failed"
        headers = {"dlq.stage": b"router", "dlq.reason": reason, "dlq.error": f"fault {number}".encode()}
        log.take(b"q", b"{", headers, int(START.timestamp() * 1_000) + number)
    first, second = letter_groups(log.status("photo", START + timedelta(minutes=5)), log.latest("photo", 100))

    assert (first.reason, first.count, len(first.examples)) == ("not_json", 7, SHOWN_EXAMPLES)
    assert [one.error for one in second.examples] == ["fault 8", "fault 7"]
    assert log.count_since("photo", START + timedelta(milliseconds=4)) == 5
