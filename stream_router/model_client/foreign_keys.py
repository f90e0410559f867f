"""Keys of an answer that are not the workload's fields: what they mean for the answer, and which field is meant. Pure.

Keys are compared exactly, as JSON does, and as labels name fields. Other keys are dropped, unless that would lose a
value: where an answer has keys and none of them is a field, and where a key differs from a field only in its writing
(``ISO`` for ``iso``, ``focalLength`` for ``focal_length``) and holds a value that the field itself has not got.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

_SHOWN_KEYS = 8
_SHOWN_CHARS = 40
_EMPTY: tuple[Any, ...] = (None, "", [])


def fault_of_keys(document: Mapping[str, Any], entities: Mapping[str, Any]) -> str | None:
    """Return why an answer's keys make it none, or None where they do not.

    ``entities``: what was read of each field.

    Examples
    --------
    >>> fault_of_keys({"Camera": "z1"}, {"camera": None, "iso": None})
    'the answer holds none of the fields; its keys: "Camera" (camera is meant?)'
    >>> fault_of_keys({"camera": "z1", "ISO": "100"}, {"camera": "z1", "iso": None})
    'the answer holds a value under a key that is no field: "ISO" (iso is meant?)'
    >>> fault_of_keys({"camera": "z1", "mood": "sad"}, {"camera": "z1", "iso": None}) is None
    True
    """
    foreign = [key for key in document if key not in entities]
    if entities and foreign and len(foreign) == len(document):
        return f"the answer holds none of the fields; its keys: {_listed(foreign, tuple(entities))}"
    unread = {folded_key(field): field for field, value in entities.items() if value is None}
    meant = [key for key in foreign if document[key] not in _EMPTY and folded_key(key) in unread]
    if not meant:
        return None
    return f"the answer holds a value under a key that is no field: {_listed(meant, tuple(entities))}"


def folded_key(key: str) -> str:
    """Return a key without what writers vary: case, white space, separators and compatible forms of characters.

    Examples
    --------
    >>> folded_key("Shutter-Speed ") == folded_key("shutterSpeed") == folded_key("shutter_speed")
    True
    """
    plain = unicodedata.normalize("NFKC", key).casefold()
    return "".join(one for one in plain if one.isalnum()) or key


def nearest_field(key: str, fields: Sequence[str]) -> str | None:
    """Return the field that a key may stand for: one written otherwise, or one that is spelt nearly so."""
    by_fold = {folded_key(field): field for field in fields}
    near = get_close_matches(folded_key(key[:_SHOWN_CHARS]), by_fold, n=1)
    return by_fold[near[0]] if near else None


def _listed(keys: Sequence[str], fields: Sequence[str]) -> str:
    shown = []
    for key in keys[:_SHOWN_KEYS]:
        field = nearest_field(key, fields)
        cut = key if len(key) <= _SHOWN_CHARS else key[:_SHOWN_CHARS] + "…"
        shown.append(json.dumps(cut, ensure_ascii=False) + (f" ({field} is meant?)" if field else ""))
    return ", ".join(shown) + (f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else "")
