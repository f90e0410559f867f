"""The bytes of a row: a query's state as compact JSON, deflated against a dictionary of what every row holds.

Six of seven bytes of a row are names of fields and answers that both models gave. The dictionary is part of the
format: another one makes files unreadable that were written with this one.
"""

from __future__ import annotations

import zlib

from recalibrator.join.query_state import QueryState
from recalibrator.join.row_content import reduced
from schemas.json_bytes import validated

# What is most common stands last, where the distances are shortest.
_DICTIONARY = (
    b'"asked_at":"2026-01-01T00:00:00Z","seen":["","],"received":1,"opinions":[{"labeler":"label-studio:","entities":{'
    b'"labelled_at":"2026-01-01T00:00:00.000000Z","revision":2,"order":1},{"labeler":"","skipped":true,"order":2}],'
    b'"trial":{"version":1,"mode":"shadow","mode":"canary","escalated":true,"base_version":1,"base_escalated":false,'
    b'"acted":false}},"label":{"requested":true,"probability":0.1,"reason":"audit"},"reason":"exploration"},'
    b'"reason":"random"},"reason":"cold_start","reason":"infeasible","reason":"small_failed","reason":"degraded",'
    b'"small":null,"uncertainty":null,"error_probability":null,"threshold":null,"calibration_version":null,'
    b'"answered_by":"large","decision":{"escalated":true,"reason":"threshold","large_probability":1.0},'
    b'"small":{"model":"","entities":null,"valid":false},"large":{"model":"","entities":{"},"valid":true},'
    b'{"routed":{"query_id":"","workload":"","text":"","entities":{""},"answered_by":"small","decision":'
    b'{"escalated":false,"reason":"kept","uncertainty":0.0,"error_probability":0.0,"threshold":0.0,'
    b'"calibration_version":1,"large_probability":0.03},"small":{"model":"","entities":{""},"valid":true},"large":null,'
    b'"cost":{"sequential":0.0,"paper":0.0},"label":{"requested":false,"probability":0.05},'
    b'"routed_at":"2026-01-01T00:00:00.000000Z","routed_by":""}}'
)
_LEVEL = 6
#: Of a row's JSON: sixteen records of the largest size. A damaged row must not fill the memory.
_MAX_BYTES = 16_000_000


def encoded(state: QueryState) -> bytes:
    """Return the state as bytes."""
    packer = zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    return packer.compress(state.model_dump_json(exclude_defaults=True).encode()) + packer.flush()


def decoded(stored: bytes | str) -> QueryState:
    """Return the state of stored bytes. Raises ValueError or zlib.error when they are torn."""
    if isinstance(stored, bytes) and stored[:1] != b"{":
        unpacker = zlib.decompressobj(zdict=_DICTIONARY)
        content = unpacker.decompress(stored, _MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise zlib.error(f"the row unpacks to more than {_MAX_BYTES} bytes")
        return _state(content)
    # Rows of an earlier release are plain JSON, their labels' long values not yet replaced by digests.
    state = _state(stored if isinstance(stored, bytes) else stored.encode())
    opinions = (one.model_copy(update={"entities": one.entities and reduced(one.entities)}) for one in state.opinions)
    return state.model_copy(update={"opinions": tuple(opinions)})


def _state(content: bytes) -> QueryState:
    state: QueryState = validated(QueryState.__pydantic_validator__, content)
    return state
