"""Recorded model outputs (parquet) → ``fields.npz``: pair counts by field, which the packed traffic lacks.

Run once; the output is committed. Rows stand in the order of the packed traffic: clean, typos, new names.

Example: python -m research.paper.pack_fields --data DIR
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from research.paper.workloads import FIELD_COUNTS, FIELDS, ROLES
from schemas.entities import count_pairs

SETS = ("photo_eval", "photo_typos", "photo_new_names")


def main() -> None:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    options = parser.parse_args()
    columns = ["gold", *(f"{role}_{part}" for role in ROLES for part in ("text", "valid_json"))]
    tables = [pq.read_table(options.data / f"{name}.parquet", columns=columns) for name in SETS]
    rows = [row for table in tables for row in table.to_pylist()]
    packed: Any = {"gold": np.array([_counts(None, row["gold"])[2] for row in rows], dtype=np.uint8)}
    for role in ROLES:
        counted = [_counts(row[f"{role}_text"] if row[f"{role}_valid_json"] else None, row["gold"]) for row in rows]
        packed[f"{role}_true_positives"] = np.array([one[0] for one in counted], dtype=np.uint8)
        packed[f"{role}_predicted"] = np.array([one[1] for one in counted], dtype=np.uint8)
    np.savez_compressed(FIELD_COUNTS, **packed)


def _counts(answer: str | None, gold: str) -> tuple[list[int], list[int], list[int]]:
    """Return true positives, predicted and gold pairs of one answer, a number a field."""
    found, right = None if answer is None else json.loads(answer), json.loads(gold)
    counts = [count_pairs(found, right, (field,)) for field in FIELDS]
    return (
        [one.true_positives for one in counts],
        [one.predicted for one in counts],
        [one.gold for one in counts],
    )


if __name__ == "__main__":
    main()
