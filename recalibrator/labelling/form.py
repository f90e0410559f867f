"""Entities as a person fills them in: one line of text a field, and back. Pure.

Several values of a field stand on one line with a bar between them; a field whose value holds a bar itself has a line
for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from schemas.entities import EntityMapping, EntityValue, normalise

BAR = "|"
#: What the name of a form's input begins with: values between bars, or a line for each.
IN_LINE, IN_LINES = "value:", "lines:"


class FieldInput(NamedTuple):
    """One field's input: the field, the name and the text of the input, and whether it has a line for each value."""

    field: str
    name: str
    text: str
    in_lines: bool


def field_inputs(answer: EntityMapping, fields: Iterable[str]) -> list[FieldInput]:
    """Return an input for each field of a workload, with a model's answer to start from.

    Examples
    --------
    >>> [one.text for one in field_inputs({"lens": ("50 mm", "85 mm"), "iso": None}, ("lens", "iso", "camera"))]
    ['50 mm | 85 mm', '', '']
    >>> field_inputs({"lens": "a|b"}, ("lens",))
    [FieldInput(field='lens', name='lines:lens', text='a|b', in_lines=True)]
    """
    return [_input(field, _values(answer.get(field))) for field in fields]


def filled_in(form: Mapping[str, str], fields: Iterable[str]) -> dict[str, EntityValue]:
    """Return the entities of a form: no text is null, one value its text, several a list.

    Examples
    --------
    >>> filled_in({"value:lens": "50 mm | 85 mm", "value:iso": " "}, ("lens", "iso", "camera"))
    {'lens': ('50 mm', '85 mm'), 'iso': None, 'camera': None}
    """
    return {field: _value(form, field) for field in fields}


def not_in_text(entities: EntityMapping, text: str, answer: EntityMapping) -> list[str]:
    """Return the values that stand neither in a query's text nor in the model's answer: slips, or names of one's own.

    Examples
    --------
    >>> not_in_text({"lens": "50mm", "iso": "100", "camera": "Leica M6"}, "leica  m6 50MM", {"iso": "100"})
    []
    >>> not_in_text({"camera": ("leica", "nikon")}, "leica m6", {})
    ['nikon']
    """
    known, whole = {normalise(value) for one in answer.values() for value in _values(one)}, normalise(text)
    typed = (value for one in entities.values() for value in _values(one))
    return [value for value in typed if normalise(value) not in known and normalise(value) not in whole]


def _input(field: str, values: tuple[str, ...]) -> FieldInput:
    in_lines = any(BAR in value or "\n" in value for value in values)
    text = "\n".join(values) if in_lines else f" {BAR} ".join(values)
    return FieldInput(field, f"{IN_LINES if in_lines else IN_LINE}{field}", text, in_lines)


def _values(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _value(form: Mapping[str, str], field: str) -> EntityValue:
    lines = form.get(f"{IN_LINES}{field}")
    parts = form.get(f"{IN_LINE}{field}", "").split(BAR) if lines is None else lines.splitlines()
    values = tuple(text for part in parts if (text := part.strip()))
    return values if len(values) > 1 else values[0] if values else None
