"""Answers as a person sees them, and entities as they fill them in: one line of text a field, and back. Pure.

Several values of a field stand on one line with a bar between them; a field whose value holds a bar itself has a line
for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from schemas.draws import uniform
from schemas.entities import EntityMapping, EntityValue, field_values, normalise
from schemas.label_requested import LabelRequested

BAR = "|"
#: What the name of a form's input begins with: values between bars, or a line for each.
IN_LINE, IN_LINES = "value:", "lines:"
_HALF = 0.5


class FieldInput(NamedTuple):
    """One field's input: the field, the name and the text of the input, and whether it has a line for each value.

    ``answers`` has what each answer says of the field, ``differs`` whether that is not the same.
    """

    field: str
    name: str
    text: str
    in_lines: bool
    answers: tuple[str, ...]
    differs: bool


def shown_answers(request: LabelRequested) -> Sequence[EntityMapping]:
    """Return the answers to show, one or two that differ, in an order that does not tell which model gave which."""
    answers = [request.entities, *([] if request.other_entities is None else [request.other_entities])]
    return answers[::-1] if uniform(request.query_id, "label-form") < _HALF else answers


def field_inputs(answers: Sequence[EntityMapping], fields: Iterable[str]) -> list[FieldInput]:
    """Return an input for each field of a workload, with the first answer to start from.

    Examples
    --------
    >>> [one.text for one in field_inputs([{"lens": ("50 mm", "85 mm"), "iso": None}], ("lens", "iso", "camera"))]
    ['50 mm | 85 mm', '', '']
    >>> field_inputs([{"lens": "a|b"}, {}], ("lens",))
    [FieldInput(field='lens', name='lines:lens', text='a|b', in_lines=True, answers=('a|b', ''), differs=True)]
    """
    return [_input(field, [_values(answer.get(field)) for answer in answers]) for field in fields]


def filled_in(form: Mapping[str, str], fields: Iterable[str]) -> dict[str, EntityValue]:
    """Return the entities of a form: no text is null, one value its text, several a list.

    Examples
    --------
    >>> filled_in({"value:lens": "50 mm | 85 mm", "value:iso": " "}, ("lens", "iso", "camera"))
    {'lens': ('50 mm', '85 mm'), 'iso': None, 'camera': None}
    """
    return {field: _value(form, field) for field in fields}


def not_in_text(entities: EntityMapping, text: str, answers: Iterable[EntityMapping]) -> list[str]:
    """Return the values that stand neither in a query's text nor in an answer to it: slips, or names of one's own.

    Examples
    --------
    >>> not_in_text({"lens": "50mm", "iso": "100", "camera": "Leica M6"}, "leica  m6 50MM", [{"iso": "100"}])
    []
    >>> not_in_text({"camera": ("leica", "nikon")}, "leica m6", [])
    ['nikon']
    """
    known, whole = set().union(*(field_values(one) for answer in answers for one in answer.values())), normalise(text)
    typed = (value for one in entities.values() for value in _values(one))
    return [value for value in typed if normalise(value) not in known and normalise(value) not in whole]


def _input(field: str, answers: Sequence[tuple[str, ...]]) -> FieldInput:
    in_lines = any(BAR in value or "\n" in value for values in answers for value in values)
    texts = tuple("\n".join(values) if in_lines else f" {BAR} ".join(values) for values in answers)
    differs = len({field_values(values) for values in answers}) > 1
    return FieldInput(field, f"{IN_LINES if in_lines else IN_LINE}{field}", texts[0], in_lines, texts, differs)


def _values(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _value(form: Mapping[str, str], field: str) -> EntityValue:
    lines = form.get(f"{IN_LINES}{field}")
    parts = form.get(f"{IN_LINE}{field}", "").split(BAR) if lines is None else lines.splitlines()
    values = tuple(text for part in parts if (text := part.strip()))
    return values if len(values) > 1 else values[0] if values else None
