"""Queries with the large model's answer under every handoff, as counts: what a choice of the margin is tried on.

``python -m research.handoff.pool`` asks the demo's two models and writes ``pool.npz``, which is committed: some ten
minutes of one core. Asked of the large model are queries above the lowest threshold that any target here needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from research.handoff.experiment import FIELDS, GRANULARITIES, Floats, entities_of, outcomes
from research.handoff.models import LiveModel
from schemas.basis import Handoff, handoff_name
from schemas.entities import equal
from stream_router.cascade.handoff import handed_over
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic

POOL = Path(__file__).parent / "pool.npz"
MARGINS = (0.98, 0.95, 0.9, 0.8, 0.7)
OFF = "off"
TEXTS = {"clean": 2_000, "typos": 600, "upper": 400}
"""Queries of each kind; those in upper case are other clean ones."""

SEED = 17
_ASKED_ABOVE = 0.4
"""Quantile of u of clean queries above which the large model is asked."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Queries of every kind of text, in no order.

    ``text``: ndarray of int, shape (queries,); place in :data:`TEXTS`. ``u``: ndarray, shape (queries,); 1 where the
    small answer is not valid, which always escalates. ``small``: ndarray, shape (queries, 3); 2·TP, pairs predicted
    plus gold ones, and tokens generated. ``large``: ndarray, shape (handoffs, queries, 3); the same under each handoff
    of :data:`HANDOFFS`, off first; NaN where the large model was not asked. Tokens of answers that had to be asked
    again are in it. ``differs``: ndarray of bool, shape (handoffs, queries); whether the entities are other ones than
    those of the large model alone.
    """

    text: NDArray[np.int64]
    u: Floats
    small: Floats
    large: Floats
    differs: NDArray[np.bool_]

    @classmethod
    def load(cls, path: Path = POOL) -> Pool:
        """Read what :func:`main` wrote."""
        with np.load(path) as packed:
            return cls(**{name: _unpacked(packed[name]) for name in cls.__dataclass_fields__})

    def save(self, path: Path = POOL) -> None:
        """Write as small numbers; u keeps seven digits, which are those that the models have."""
        packed: dict[str, Any] = {
            "text": self.text.astype(np.uint8),
            "u": self.u.astype(np.float32),
            "small": self.small.astype(np.uint16),
            "large": np.where(np.isnan(self.large), _NOT_ASKED, self.large).astype(np.uint16),
            "differs": self.differs,
        }
        np.savez_compressed(path, **packed)


_NOT_ASKED = np.iinfo(np.uint16).max


def _unpacked(column: NDArray[Any]) -> NDArray[Any]:
    if column.dtype == np.uint8:
        return column.astype(np.int64)
    if column.dtype == np.bool_:
        return column
    values = column.astype(np.float64)
    return np.where(values == _NOT_ASKED, np.nan, values)


HANDOFFS: dict[str, Handoff | None] = {OFF: None} | {
    handoff_name(handoff) or OFF: handoff
    for handoff in (
        Handoff(margin=margin, granularity=granularity) for granularity in GRANULARITIES for margin in MARGINS
    )
}


def queries() -> list[tuple[int, RecordedQuery]]:
    """Draw the queries, each with its place in :data:`TEXTS`."""
    rng = np.random.default_rng(SEED)
    shifts = {shift: [query for query in load_traffic() if query.shift == shift] for shift in ("none", "typos")}
    clean = [shifts["none"][place] for place in rng.permutation(len(shifts["none"])).tolist()]
    typos = [shifts["typos"][place] for place in rng.permutation(len(shifts["typos"])).tolist()]
    upper = [replace(query, text=query.text.upper()) for query in reversed(clean)]
    drawn = zip((clean, typos, upper), TEXTS.values(), strict=True)
    return [(place, query) for place, (some, count) in enumerate(drawn) for query in some[:count]]


def ask(drawn: Sequence[tuple[int, RecordedQuery]]) -> Pool:
    """Ask both models."""
    asked = [query for _, query in drawn]
    text = np.array([place for place, _ in drawn])
    prompts = [PROMPT.replace("{text}", query.text) for query in asked]
    begun = LiveModel("small").answers(prompts)
    valid = np.array([entities_of(answer.text) is not None for answer in begun])
    doubt = np.array([1.0 - np.mean([mark.margin for mark in answer.marks]) for answer in begun])
    u = np.where(valid, doubt, 1.0)
    said = outcomes(asked, begun, begun)
    above = np.flatnonzero(u > np.quantile(u[text == 0], _ASKED_ABOVE))
    model, some = LiveModel("large"), [asked[place] for place in above]
    alone = model.answers([prompts[place] for place in above])
    large = np.full((len(HANDOFFS), len(asked), 3), np.nan)
    differs = np.zeros((len(HANDOFFS), len(asked)), dtype=bool)
    for row, handoff in enumerate(HANDOFFS.values()):
        parts = ["" if handoff is None else handed_over(begun[n].text, begun[n].marks, handoff) for n in above]
        answers = model.answers([prompts[n] + part for n, part in zip(above, parts, strict=True)])
        found = outcomes(some, answers, alone, parts)
        large[row, above] = np.stack([found.hits, found.size, found.tokens], axis=1)
        for place, part, answer, other in zip(above, parts, answers, alone, strict=True):
            entities = entities_of(part + answer.text)
            differs[row, place] = entities is not None and not equal(entities, entities_of(other.text), FIELDS)
    return Pool(text, u, np.stack([said.hits, said.size, said.tokens], axis=1), large, differs)


def main() -> None:
    """Ask and write."""
    with threadpool_limits(1):
        ask(queries()).save()


if __name__ == "__main__":
    main()
