"""A model's text → entities, or why it is not an answer. Pure.

An answer is one JSON object with nothing around it but white space. Keys beyond the workload's fields are dropped,
"" is null, numbers become their text; nested objects and booleans make it invalid.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from schemas.entities import MAX_VALUE_CHARS, MAX_VALUES

EntityAnswer = dict[str, str | tuple[str, ...] | None]


class InvalidAnswerError(ValueError):
    """The text is not an answer; the message says why."""


class _Number(str):
    """The text of a JSON number, told apart from a string."""

    __slots__ = ()


def read_entities(text: str, fields: Sequence[str]) -> EntityAnswer:
    """Parse a model's text.

    Parameters
    ----------
    text : str
    fields : sequence of str
        The workload's fields.

    Returns
    -------
    dict
        Every field, in order; null where the answer leaves it out.

    Raises
    ------
    InvalidAnswerError
        When the text is no such object.

    Examples
    --------
    >>> read_entities(' {"iso": 100, "lens": "", "mood": "sad"}', ("iso", "lens", "camera"))
    {'iso': '100', 'lens': None, 'camera': None}
    """
    try:
        document = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse)
    except RecursionError:
        raise InvalidAnswerError("the answer is nested too deeply") from None
    except ValueError as error:
        raise InvalidAnswerError(f"the answer is not one JSON object: {error}") from None
    if not isinstance(document, dict):
        raise InvalidAnswerError("the answer is JSON but not an object")
    return {field: _value(field, document.get(field)) for field in fields}


def _value(field: str, value: Any) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return _text(field, value)
    if not isinstance(value, list):
        raise InvalidAnswerError(f"{field}: is a {type(value).__name__}, expected text, a list of texts or null")
    if len(value) > MAX_VALUES:
        raise InvalidAnswerError(f"{field}: holds {len(value)} values, at most {MAX_VALUES} are taken")
    if not all(item is None or isinstance(item, str) for item in value):
        raise InvalidAnswerError(f"{field}: the list holds something other than texts")
    return tuple(text for item in value if (text := _text(field, item)) is not None) or None


def _text(field: str, value: str | None) -> str | None:
    if not value:
        return None
    if len(value) > MAX_VALUE_CHARS:
        raise InvalidAnswerError(f"{field}: a value of {len(value)} characters, at most {MAX_VALUE_CHARS} are taken")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidAnswerError(f"{field}: holds half a surrogate pair, which is no text")
    return str(value)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
