"""A file that does not hold one JSON object a line is named for what it is, in one line, by every command."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.settings import Settings
from tests.support.recalibrator_events import workload
from ucci_stream.offline.bootstrap import bootstrap_events, replay
from ucci_stream.offline.gold_lines import read_gold
from ucci_stream.topics.feed import FeedStopped, open_lines, send_feedback, send_queries
from ucci_stream.topics.json_lines import HEAD_BYTES, WANTED, kind_of

WORKLOAD = workload(fields=("camera",))
SETTINGS = Settings(workloads={"photo": WORKLOAD})
OBJECT = {"query_id": "q-1", "text": "canon 5d", "entities": {"camera": "5d"}}
LINE = json.dumps(OBJECT).encode() + b"\n"
FILES: dict[str, bytes] = {
    "(CSV)": b"query_id,text,camera\nq-1,canon 5d,5d\n",
    "(CSV) ": b'"text";"gold camera"\n"canon, 5d";"5d"\n',
    "(TSV)": b"\xef\xbb\xbftext\tcamera\ncanon\t5d\n",
    "UTF-16": LINE.decode().encode("utf-16"),
    "UTF-16 ": LINE.decode().encode("utf-16-be"),
    "UTF-32": LINE.decode().encode("utf-32"),
    "JSON array": json.dumps([OBJECT]).encode(),
    "JSON array ": json.dumps([OBJECT], indent=2).encode(),
    "several lines": json.dumps(OBJECT, indent=2).encode(),
    "several lines ": json.dumps(OBJECT, indent=0).encode(),
    "Python": str(OBJECT).encode(),
    "gzip": gzip.compress(LINE),
    "Parquet": b"PAR1\x15\x04",
    "XLSX": b"PK\x03\x04\x14",
}
COMMANDS: dict[str, Callable[[Path], object]] = {
    "label": lambda path: send_feedback(SETTINGS, path),
    "send": lambda path: send_queries(SETTINGS, path),
    "replay": lambda path: list(replay(WORKLOAD, path)),
    "bootstrap": lambda path: list(bootstrap_events(WORKLOAD, path, datetime(2026, 1, 1, tzinfo=UTC))),
    "calibrate": read_gold,
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind_is_named_in_one_line(command: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_bytes(FILES[kind])
    with pytest.raises(FeedStopped) as refused:
        COMMANDS[command](file)
    assert kind.strip() in str(refused.value)
    assert WANTED in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n\n"])
def test_a_byte_order_mark_is_passed_over(before: bytes, tmp_path: Path) -> None:
    file = tmp_path / "gold.jsonl"
    file.write_bytes(before + LINE)
    assert [one.line.text for one in read_gold(file)] == ["canon 5d"]


def test_a_router_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "router.json"
    calibrator = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    router = {"format": "ucci-router", "version": 1, "calibrator": calibrator, "theta": 0.5, "c_small": 1, "c_large": 3}
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(router, indent=2).encode())
    (command,) = bootstrap_events(WORKLOAD, file, datetime(2026, 1, 1, tzinfo=UTC))
    assert command.kind == "command"


def test_standard_input_is_looked_at_and_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(LINE * 1_000)))
    monkeypatch.setattr(sys, "stdin", stream)
    with open_lines(Path("-")) as lines:
        assert [line for _, line in lines] == [LINE] * 1_000


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.touch()
    with pytest.raises(FeedStopped, match=f"empty.jsonl: is empty; {WANTED}"):
        list(replay(WORKLOAD, file))


@given(
    members=st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.floats() | st.booleans(), st.lists)),
    escaped=st.booleans(),
)
def test_objects_on_lines_are_taken_for_nothing_else(members: dict[str, object], escaped: bool) -> None:
    line = json.dumps(members, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert kind_of((line + b"\n" + line)[:HEAD_BYTES]) is None
