"""Labelled addresses of PyPI's ``usaddress`` → ``addresses.npz``: what two small taggers answer, as counts and signals.

Run once; the output is committed, and holds no text. Every address is answered by taggers that never saw it: the set is
cut into folds at random, and each fold is tagged by models trained on the others.

Example: python -m research.paper.pack_addresses --seed 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research.paper.labeled_addresses import (
    ADDRESS_FIELDS,
    LABELS_OF_FIELD,
    Address,
    FetchFailed,
    entities,
    labelled_addresses,
)
from research.paper.taggers import GreedyTagger, Look, Tagged, look_briefly, look_closely, signals
from research.paper.workloads import ADDRESS_COUNTS
from schemas.entities import count_pairs

FOLDS = 5
LOOKS: dict[str, Look] = {"small": look_briefly, "large": look_closely}
Columns = dict[str, NDArray[np.generic]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, train, tag and write; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.paper.pack_addresses",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="of the folds; 1 by default")
    parser.add_argument("--out", type=Path, default=ADDRESS_COUNTS, help="file of the results")
    options = parser.parse_args(arguments)
    try:
        addresses = labelled_addresses()
    except FetchFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    np.savez_compressed(options.out, **columns(addresses, options.seed))
    sys.stderr.write(f"written: {options.out}, {len(addresses):,} addresses\n")
    return 0


def columns(addresses: Sequence[Address], seed: int, folds: int = FOLDS) -> Columns:
    """Return counts by field of both models' answers, and the small one's signals; a row an address, in their order.

    ``seed``: of the folds. ``folds``: each is tagged by models trained on the others.
    """
    answers = {role: out_of_fold(look, addresses, seed, folds) for role, look in LOOKS.items()}
    gold = [entities(one.tokens, one.labels) for one in addresses]
    packed: Columns = {"fields": np.array(ADDRESS_FIELDS), "gold": _counts(gold, gold)[1]}
    for role, tagged in answers.items():
        found = [entities(one.tokens, answer.labels) for one, answer in zip(addresses, tagged, strict=True)]
        packed[f"{role}_true_positives"], packed[f"{role}_predicted"] = _counts(found, gold)
    doubts = [signals(tagged) for tagged in answers["small"]]
    return packed | {f"signal_{name}": np.array([one[name] for one in doubts]) for name in doubts[0]}


def out_of_fold(look: Look, addresses: Sequence[Address], seed: int, folds: int = FOLDS) -> list[Tagged]:
    """Return what taggers that never saw an address answer to it."""
    fold = np.random.default_rng(seed).permutation(len(addresses)) % folds
    found: dict[int, Tagged] = {}
    for held_out in range(folds):
        tagger = GreedyTagger(look).fit([addresses[row] for row in np.flatnonzero(fold != held_out)])
        rows = np.flatnonzero(fold == held_out).tolist()
        found |= dict(zip(rows, tagger.tag([addresses[row].tokens for row in rows]), strict=True))
    return [found[row] for row in range(len(addresses))]


def _counts(
    found: list[dict[str, list[str]]], gold: list[dict[str, list[str]]]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return true positives and predicted pairs, shape (addresses, fields)."""
    counts = [
        [count_pairs(one, right, labels) for labels in LABELS_OF_FIELD.values()]
        for one, right in zip(found, gold, strict=True)
    ]
    hits = np.array([[field.true_positives for field in row] for row in counts], dtype=np.uint8)
    return hits, np.array([[field.predicted for field in row] for row in counts], dtype=np.uint8)


if __name__ == "__main__":
    raise SystemExit(main())
