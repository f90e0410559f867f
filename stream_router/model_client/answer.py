"""Reads a model's reply as a run of the model: entities, or why it is not an answer. Pure.

An answer is one JSON object with nothing around it but white space. Keys beyond the workload's fields are dropped, as
long as no value is lost by it (:mod:`.foreign_keys`); a text with nothing to see in it is null, numbers become their
text; nested objects and booleans make it invalid.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from schemas.entities import MAX_VALUE_CHARS, MAX_VALUES, normalise, with_nulls
from schemas.errors import one_line
from schemas.routed import ModelRun
from stream_router.model_client.foreign_keys import fault_of_keys
from stream_router.ports import Reply, TokenMark

#: As long as a query may be; keeps a result, which holds an answer up to five times, below a record's limit.
MAX_ANSWER_CHARS = 32_768

#: By these alone a server says that more would have followed; servers have many words for an end.
_CUTS = frozenset({"length", "content_filter", "abort"})

_BLANK = " \t\r\n"
#: Some models begin with it; it is no part of the JSON.
_BYTE_ORDER_MARK = "\ufeff"

EntityAnswer = dict[str, str | tuple[str, ...] | None]

#: Why a reply is no answer: it was ``cut``; its log-probabilities give no u (``signal``); it holds no ``text``, or too
#: much; the text is no ``json`` object; a ``value`` is none; its ``keys`` are not the fields.
AnswerFault = Literal["cut", "signal", "text", "json", "value", "keys"]


class InvalidAnswerError(ValueError):
    """The text is not an answer; the message says why."""

    def __init__(self, message: str, fault: AnswerFault = "value") -> None:
        self.fault = fault
        super().__init__(one_line(message))


class JudgedAnswer(NamedTuple):
    """A run of a model, and why it is no answer where it is none."""

    run: ModelRun
    fault: AnswerFault | None


class _Number(str):
    """The text of a JSON number, as distinct from a string."""

    __slots__ = ()


def judge_answer(
    model: str,
    reply: Reply,
    fields: Sequence[str],
    latency_s: float,
    *,
    with_margins: bool = False,
    nulls: Collection[str] = (),
) -> JudgedAnswer:
    """Judge one model's reply: its run is valid when it is whole, has probabilities, and is one JSON object.

    ``with_margins``: whether the run says how sure the model was of each field, where it is known where the tokens
    stand. ``nulls``: the workload's texts that stand for null, in normal form.
    """
    entities = margins = error = fault = None
    try:
        _require_whole(reply)
        entities = read_entities(reply.text, fields)
        entities = with_nulls(entities, nulls) if nulls else entities
        if with_margins and reply.marks:
            margins = field_margins(reply.text, reply.marks, fields)
    except InvalidAnswerError as invalid:
        error = str(invalid)
        fault = invalid.fault
        if fault == "json" and reply.finish_reason not in (None, "stop"):
            error = f"{error} (finish_reason {one_line(reply.finish_reason)})"
    run = ModelRun(
        model=model,
        raw=reply.text[:MAX_ANSWER_CHARS],
        entities=entities,
        valid=error is None,
        uncertainty=reply.uncertainty if error is None else None,
        completion_tokens=reply.completion_tokens,
        finish_reason=reply.finish_reason,
        latency_s=latency_s,
        error=error,
        prompt_tokens=reply.prompt_tokens,
        field_margins=margins or None,
    )
    return JudgedAnswer(run, fault)


def failed_run(model: str, error: str, latency_s: float = 0.0) -> ModelRun:
    """Return the run of a model that gave no reply."""
    return ModelRun(model=model, valid=False, error=error, latency_s=latency_s)


def _require_whole(reply: Reply) -> None:
    """Raise InvalidAnswerError where a reply can be no answer, whatever its text says."""
    if reply.finish_reason is not None and reply.finish_reason.lower() in _CUTS:
        raise InvalidAnswerError(f"the answer was cut (finish_reason {reply.finish_reason})", "cut")
    if reply.defect is not None:
        raise InvalidAnswerError(reply.defect, "signal" if reply.uncertainty is None else "text")
    if reply.uncertainty is None:
        raise InvalidAnswerError("the reply holds no token probabilities", "signal")
    if len(reply.text) > MAX_ANSWER_CHARS:
        message = f"the answer has {len(reply.text)} characters, at most {MAX_ANSWER_CHARS} are taken"
        raise InvalidAnswerError(message, "text")


def read_entities(text: str, fields: Sequence[str]) -> EntityAnswer:
    """Parse a model's text.

    Returns every field, in order; null where the answer leaves it out. Raises InvalidAnswerError when the text is no
    such object.

    Examples
    --------
    >>> read_entities(' {"iso": 100, "lens": "", "mood": "sad"}', ("iso", "lens", "camera"))
    {'iso': '100', 'lens': None, 'camera': None}
    """
    try:
        document = _ANSWERS.decode(text.lstrip(_BLANK).removeprefix(_BYTE_ORDER_MARK))
    except RecursionError:
        raise InvalidAnswerError("the answer is nested too deeply", "json") from None
    except ValueError as error:
        raise InvalidAnswerError(f"the answer is not one JSON object: {error}", "json") from None
    if not isinstance(document, dict):
        raise InvalidAnswerError("the answer is JSON but not an object", "json")
    entities = {field: _value(field, document.get(field)) for field in fields}
    if not document.keys() <= entities.keys() and (fault := fault_of_keys(document, entities)) is not None:
        raise InvalidAnswerError(fault, "keys")
    return entities


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
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidAnswerError(f"{field}: holds half a surrogate pair, which is no text") from None
    # What is empty when it is compared would be served as a value that nobody sees.
    return str(value) if normalise(value) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


#: Kept: to make one takes as long as to read a short answer.
_ANSWERS = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_refuse)


#: A key with its colon, which is a group, or else a string whole, so that nothing inside it passes for a key.
_STRING = re.compile(r'"(?:([^"\\]*)"\s*:\s*|[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)

_DIGITS = 4


def field_margins(text: str, marks: Sequence[TokenMark], fields: Collection[str]) -> dict[str, float]:
    r"""Return the margin of each field that the answer names, in [0, 1], rounded to four places.

    The tokens of a value are those that hold any of its characters: that which opens it decides between a value and
    null, and is often one with the end of the key. ``text``: a valid answer, one JSON object of texts, lists of texts
    and nulls; a key that is written with escapes is not found. ``marks``: of its tokens, in order; tokens that came
    together share one start.

    Examples
    --------
    >>> marks = [TokenMark(0, 1.0), TokenMark(2, 0.9), TokenMark(7, 0.5), TokenMark(11, 0.7), TokenMark(12, 0.2)]
    >>> field_margins('{"iso": "100"}', marks, ("iso", "lens"))
    {'iso': 0.4667}
    """
    keys = [(key, found.end(), found.start()) for found in _STRING.finditer(text) if (key := found[1])]
    if not marks:
        return {}
    starts, sure = zip(*marks, strict=True)
    margins: dict[str, float] = {}
    end = len(text)
    for field, begins, key_begins in reversed(keys):
        # Of a key that comes twice, the last counts in JSON.
        if field in fields and field not in margins:
            first = bisect_left(starts, starts[max(0, bisect_right(starts, begins) - 1)])
            inside = sure[first : bisect_left(starts, end)]
            if inside:
                margins[field] = round(sum(inside) / len(inside), _DIGITS)
        end = key_begins
    return margins
