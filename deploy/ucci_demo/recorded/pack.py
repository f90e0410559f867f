"""Packs recorded model outputs (parquet) into the files of this folder. Run once; its outputs are committed.

Every recorded answer is computed again by the demo's own engine, which must give the same tokens; what is packed
beside them (the runner-up of each token) comes from that run, so that the memo and a live answer are equal.

Example: python -m ucci_demo.recorded.pack --data DIR --out deploy/ucci_demo/recorded
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pyarrow.parquet as pq

from schemas.entities import count_pairs, equal
from ucci_demo.model_server.checkpoint import Checkpoint
from ucci_demo.model_server.generation import Generation
from ucci_demo.model_server.memo import MEMO_NAME, pack_memo
from ucci_demo.recorded.traffic import COLUMNS, NUMBERS, OFFLINE_EXAMPLES, ROLES, TEXTS

SETS = ("photo_eval", "photo_typos", "photo_new_names")
MEMO_SHIFTS = ("none", "typos")
_SLOTS = 32


def main() -> int:
    """Pack; exit code 1 when a recorded answer is not what the engine computes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    rows = [row for name in SETS for row in pq.read_table(options.data / f"{name}.parquet").to_pylist()]
    _pack_traffic(rows, options.out)
    # The demo never streams its offline set, and new names come only from an interactive query.
    memo_rows = [row for row in rows if row["shift"] in MEMO_SHIFTS][OFFLINE_EXAMPLES:]
    return max(_pack_model(role, memo_rows, options.out) for role in ROLES)


def _pack_traffic(rows: list[dict[str, Any]], out: Path) -> None:
    with gzip.GzipFile(out / TEXTS.name, "wb", mtime=0) as lines:
        for row in rows:
            record = [row["query"], row["shift"], json.loads(row["gold"])]
            lines.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    columns: dict[str, list[float]] = {"gold_count": [row["ngold"] for row in rows]}
    columns["agree"] = [_agree(row) for row in rows]
    for role in ROLES:
        for name in COLUMNS:
            columns[f"{role}_{name}"] = [_column(row, role, name) for row in rows]
    packed: Any = {name: _narrow(values) for name, values in columns.items()}
    np.savez_compressed(out / NUMBERS.name, **packed)


def _narrow(values: list[float]) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    return array.astype(np.int16) if array.dtype.kind == "i" else array


def _agree(row: dict[str, Any]) -> bool:
    if not (row["small_valid_json"] and row["large_valid_json"]):
        return False
    return equal(json.loads(row["small_text"]), json.loads(row["large_text"]))


def _column(row: dict[str, Any], role: str, name: str) -> float:
    """Compute one packed number of one answer."""
    if name in ("true_positives", "predicted", "exact"):
        answer = json.loads(row[f"{role}_text"]) if row[f"{role}_valid_json"] else None
        counts = count_pairs(answer, json.loads(row["gold"]))
        exact = answer is not None and counts.true_positives == counts.predicted == counts.gold
        return {"true_positives": counts.true_positives, "predicted": counts.predicted, "exact": exact}[name]
    p1, p2 = np.asarray(row[f"{role}_p1"]), np.asarray(row[f"{role}_p2"])
    values: dict[str, float] = {
        "valid": row[f"{role}_valid_json"] and row[f"{role}_finish"] == "stop",
        "tokens": row[f"{role}_ntok"],
        "uncertainty": float(1.0 - np.mean(p1 - p2)),
        "entropy": float(np.mean(row[f"{role}_entropy"])),
        "max_probability": float(np.mean(p1)),
        "min_margin": float(np.min(p1 - p2)),
        "negative_log_likelihood": float(-np.mean(np.log(p1))),
    }
    return values[name]


def _pack_model(role: str, rows: list[dict[str, Any]], out: Path) -> int:
    """Answer every query with the engine, compare with the recording, and pack what it said."""
    checkpoint = Checkpoint.open(role, slots=_SLOTS)
    finished = 0

    def progress(_generation: Generation) -> None:
        nonlocal finished
        finished += 1
        if finished % 500 == 0:
            sys.stderr.write(f"{role}: {finished} of {len(rows)}\n")

    texts = list(dict.fromkeys(row["query"] for row in rows))
    generations = {text: Generation(checkpoint.prompt_ids(text), 256, progress) for text in texts}
    for generation in generations.values():
        checkpoint.batch.submit(generation)
    while checkpoint.batch.step():
        pass
    other = sum([t.token_id for t in generations[r["query"]].tokens] != r[f"{role}_ids"] for r in rows)
    pack_memo(generations, out / MEMO_NAME.format(role=role))
    sys.stderr.write(f"{role}: {len(texts)} distinct queries packed, {other} rows differ from the recording\n")
    return int(other > 0)


if __name__ == "__main__":
    raise SystemExit(main())
