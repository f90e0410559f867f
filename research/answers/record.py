"""Asks both models of each pair under every kind of drift, and writes ``pool.npz``: minutes of one core.

What the pool holds of a query is counts, u and lengths. Of the demo's clean photo searches these are recorded already.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from research.answers.pairs import PAIRS, Pair
from research.answers.pool import COLUMNS, POOL
from research.answers.queries import Query
from research.answers.shifts import CLEAN, SHIFTS, Change, Shift, cut_short
from research.handoff.models import Answer, LiveModel
from research.recorded.stream import all_outcomes
from schemas.entities import count_pairs, equal
from stream_router.model_client.answer import EntityAnswer, InvalidAnswerError, read_entities
from ucci_demo.recorded.traffic import load_traffic

QUERIES = 1_500
"""Of each kind and size of drift."""
SEED = 17


@dataclass
class Models:
    """A pair's models, opened as they are asked for; the unchanged ones are kept with what they answered."""

    pair: Pair

    def __post_init__(self) -> None:
        self._plain: dict[Path, LiveModel] = {}

    def answers(self, large: bool, change: Change | None, prompts: Sequence[str]) -> list[Answer]:
        """Ask the small or the large model, with its weights changed or not."""
        folder = self.pair.folders[large]
        if change is None:
            if folder not in self._plain:
                self._plain[folder] = LiveModel(str(folder))
            return self._plain[folder].answers(prompts)
        with tempfile.TemporaryDirectory() as made:
            altered = Path(made) / "altered"
            shutil.copytree(folder, altered)
            save_file(change(load_file(folder / "model.safetensors")), altered / "model.safetensors")
            return LiveModel(str(altered)).answers(prompts)


def drawn_queries(pair: Pair, shift: Shift, most: int) -> list[Query]:
    """Return the queries of a shift; those that change no text all meet the same ones, answered once."""
    some = pair.queries() if shift.queries is None else shift.queries(pair, random.Random(f"{pair.name} {shift.name}"))
    return random.Random(SEED).sample(some, min(most, len(some)))


def rows_of(models: Models, shift: Shift, most: int = QUERIES) -> dict[str, list[float]]:
    """Ask both models under a shift, and return the pool's columns, the pair's and the shift's number left out."""
    pair, drawn = models.pair, drawn_queries(models.pair, shift, most)
    prompt = pair.prompt if shift.prompt is None else pair.prompts[shift.prompt]
    prompts = [prompt.replace("{text}", one.text) for one in drawn]
    small = models.answers(shift.promoted, shift.large if shift.promoted else shift.small, prompts)
    large = models.answers(True, None if shift.promoted else shift.large, prompts)
    rows = [_row(pair, shift, *one) for one in zip(drawn, small, large, strict=True)]
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def _taken(clean: dict[str, list[float]], drawn: Sequence[Query]) -> dict[str, list[float]]:
    """Return some of the clean rows, which lie in the order of their queries."""
    rows = np.array([one.base for one in drawn])
    at = np.argsort(clean["base"])[rows]
    return {name: np.array(values)[at].tolist() for name, values in clean.items()}


def _row(pair: Pair, shift: Shift, query: Query, small: Answer, large: Answer) -> tuple[float, ...]:
    if shift.cut is not None and small.tokens > shift.cut:
        whole = cut_short(small.text[: small.marks[shift.cut].start], pair.fields)
        small = replace(small, text=whole, marks=small.marks[: shift.cut], tokens=shift.cut)
    first, second = (_entities(answer.text, pair.fields) for answer in (small, large))
    ours, theirs = (count_pairs(entities, query.gold, pair.fields) for entities in (first, second))
    margins = np.array([mark.margin for mark in small.marks])
    return (
        query.base,
        np.nan if first is None else float(1.0 - (margins if shift.seen is None else shift.seen(margins)).mean()),
        ours.true_positives,
        ours.predicted,
        theirs.true_positives,
        theirs.predicted,
        ours.gold,
        first is not None and ours.true_positives == ours.predicted == ours.gold,
        first is not None and second is not None and equal(first, second, pair.fields),
        small.tokens,
        large.tokens,
    )


def _entities(text: str, fields: Sequence[str]) -> EntityAnswer | None:
    try:
        return read_entities(text, fields)
    except InvalidAnswerError:
        return None


def _recorded_photo() -> dict[str, list[float]]:
    """Return all clean photo searches as the demo's recording has them."""
    clean = [(place, one) for place, one in enumerate(load_traffic()) if one.shift == "none"]
    known = all_outcomes().take(np.array([place for place, _ in clean]))
    columns = {
        "base": np.arange(len(clean)),
        "u": known.uncertainty,
        **{name: getattr(known, name) for name in COLUMNS[2:-2]},
        "small_tokens": np.array([one.small.tokens for _, one in clean]),
        "large_tokens": np.array([one.large.tokens for _, one in clean]),
    }
    return {name: values.tolist() for name, values in columns.items()}


def record(names: Sequence[str], path: Path = POOL, most: int = QUERIES) -> None:
    """Record pairs into the pool; those that are not named stay as they are."""
    parts: list[dict[str, Any]] = []
    if path.is_file():
        with np.load(path) as packed:
            known = {name: packed[name] for name in packed.files}
        kept = ~np.isin(known["pair"], names)
        parts.append({name: values[kept] for name, values in known.items()})
    for name in names:
        models, clean = Models(PAIRS[name]), dict[str, list[float]]()
        for shift in SHIFTS:
            if shift.kind == CLEAN:
                columns = clean = _recorded_photo() if name == "photo" else rows_of(models, shift, 10**6)
            elif shift.kind == "mix":
                columns = _taken(clean, drawn_queries(models.pair, shift, most))
            else:
                columns = rows_of(models, shift, most)
            sys.stderr.write(f"{name} {shift.name}: {summary(columns)}\n")
            count = len(columns["gold"])
            parts.append({"pair": np.full(count, name), "shift": np.full(count, shift.name), **columns})
    merged = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
    np.savez_compressed(path, **{name: _narrow(name, values) for name, values in merged.items()})  # type: ignore[arg-type]


def summary(columns: dict[str, list[float]]) -> str:
    """Return both models' micro-F1 and how often the small one fails, in words."""
    at = {name: np.array(values, dtype=float) for name, values in columns.items()}
    small, large = (
        2 * at[f"{role}_hits"].sum() / (at[f"{role}_named"] + at["gold"]).sum() for role in ("small", "large")
    )
    return (
        f"{len(at['gold'])} queries, small {small:.3f}, large {large:.3f}, agree {at['agree'].mean():.3f}, "
        f"failed {np.isnan(at['u']).mean():.3f}, mean u {np.nanmean(at['u']):.4f}"
    )


def _narrow(name: str, values: Any) -> Any:
    if name in ("pair", "shift"):
        return values
    if name in ("exact", "agree"):
        return values.astype(bool)
    return values.astype(np.float32 if name == "u" else np.int16 if name == "base" else np.uint8)
