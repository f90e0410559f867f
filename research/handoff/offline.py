"""The demo's offline queries, answered by its large model where it goes on from the small one.

``python -m research.handoff.offline`` asks both models and writes ``handed_over.npz`` beside the demo's recordings,
which takes a minute of one core. A workload that hands over learns from labels made under its handoff alone, and so
does the demo's first calibration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from research.handoff.experiment import FIELDS, entities_of
from research.handoff.models import LiveModel
from schemas.entities import count_pairs, equal
from stream_router.cascade.handoff import handed_over
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import (
    HANDED_OVER,
    HANDED_OVER_COLUMNS,
    OFFLINE_EXAMPLES,
    RecordedQuery,
    load_traffic,
)
from ucci_stream.local.stack import HANDOFF


def rows_of(queries: list[RecordedQuery]) -> list[dict[str, Any]]:
    """Return what is packed of each query; an answer that is not valid is asked for again, alone, as routers do."""
    prompts = [PROMPT.replace("{text}", query.text) for query in queries]
    begun, model = LiveModel("small").answers(prompts), LiveModel("large")
    parts = [handed_over(answer.text, answer.marks, HANDOFF) for answer in begun]
    answers = model.answers([prompt + part for prompt, part in zip(prompts, parts, strict=True)])
    rows = []
    for query, prompt, small, part, large in zip(queries, prompts, begun, parts, answers, strict=True):
        said, tokens = entities_of(part + large.text), large.tokens
        if said is None and part:
            (alone,) = model.answers([prompt])
            said, tokens = entities_of(alone.text), tokens + alone.tokens
        counts, first = count_pairs(said, query.gold, FIELDS), entities_of(small.text)
        rows.append(
            {
                "true_positives": counts.true_positives,
                "predicted": counts.predicted,
                "exact": said is not None and counts.true_positives == counts.predicted == counts.gold,
                "valid": said is not None,
                "tokens": tokens,
                "agree": said is not None and first is not None and equal(first, said, FIELDS),
            }
        )
    return rows


def main() -> None:
    """Ask and write."""
    offline = [query for query in load_traffic() if query.shift == "none"][:OFFLINE_EXAMPLES]
    with threadpool_limits(1):
        rows = rows_of(offline)
    packed = {name: np.array([row[name] for row in rows]) for name in (*HANDED_OVER_COLUMNS, "agree")}
    narrow: Any = {name: some if some.dtype == np.bool_ else some.astype(np.int16) for name, some in packed.items()}
    np.savez_compressed(HANDED_OVER, **narrow)


if __name__ == "__main__":
    main()
