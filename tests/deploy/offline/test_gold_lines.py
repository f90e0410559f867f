"""Gold lines: what counts as a value in them, and what is null."""

from __future__ import annotations

from pathlib import Path

from tests.support.recalibrator_events import workload
from ucci_stream.offline.gold_lines import GoldQuery, read_gold, spelt_nulls, with_null_texts

LINES = """{"text": "a", "entities": {"camera": "canon", "lens": null}}
{"text": "b", "entities": {"camera": "None", "lens": ["N/A", "50 mm"]}}
{"text": "c", "entities": {"camera": "nonesuch", "lens": "n/a"}}
"""


def gold(folder: Path) -> tuple[GoldQuery, ...]:
    (folder / "gold.jsonl").write_text(LINES, encoding="utf-8")
    return read_gold(folder / "gold.jsonl")


def test_spelt_nulls_of_a_file_are_one_warning(tmp_path: Path) -> None:
    (warning,) = spelt_nulls(gold(tmp_path), workload())
    assert warning.startswith("2 lines hold a text such as camera = 'None', first on line 2")
    assert "workloads.photo.null_texts" in warning
    assert not list(spelt_nulls(gold(tmp_path), workload(null_texts=("none", "n/a"))))


def test_null_texts_of_gold_lines_are_null(tmp_path: Path) -> None:
    lines = with_null_texts(gold(tmp_path), workload(null_texts=("none", "n/a")))
    assert [dict(query.line.entities) for query in lines] == [
        {"camera": "canon", "lens": None},
        {"camera": None, "lens": ("50 mm",)},
        {"camera": "nonesuch", "lens": None},
    ]
    assert with_null_texts(lines, workload()) == lines
