"""The docstrings of the models, read by the generated documents, so that each field is explained in one place."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache

_HEADING = re.compile(r"^(?P<names>\w+(?:, \w+)*) : ")
_SECTION_AFTER = re.compile(r"\n\n(?=[A-Z]\w+\n-{3,})")


def summary(model: type) -> str:
    """Return what stands before the first section of a class's docstring, as one paragraph.

    Examples
    --------
    >>> class Point:
    ...     '''A point.
    ...
    ...     Parameters
    ...     ----------
    ...     x, y : float
    ...         Where it lies,
    ...         in metres.
    ...     '''
    >>> summary(Point)
    'A point.'
    """
    text = _SECTION_AFTER.split(inspect.cleandoc(model.__doc__ or ""))[0]
    return " ".join(text.split())


def parameter_texts(model: type) -> dict[str, str]:
    """Return the text of each field, those of its bases included.

    It stands above the field, in a comment that begins with ``#:``, and holds for those that follow without another
    one or a blank line; where fields that stand apart share a text, it stands in the ``Parameters`` section.

    Examples
    --------
    >>> from schemas.routed import QueryEvent
    >>> parameter_texts(QueryEvent)["created_at"]
    'RFC 3339 with an offset.'
    """
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner.__module__ == "builtins":
            continue
        texts |= _section_texts(owner) | _texts_above_fields(owner)
    return texts


def _section_texts(model: type) -> dict[str, str]:
    sections = _SECTION_AFTER.split(inspect.cleandoc(model.__doc__ or ""))
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for section in sections:
        if not section.startswith("Parameters\n"):
            continue
        for line in section.splitlines()[2:]:
            heading = _HEADING.match(line)
            if heading:
                names = heading["names"].split(", ")
                found |= {name: [] for name in names}
            else:
                for name in names:
                    found[name].append(line.strip())
    return {name: text for name, lines in found.items() if (text := " ".join(lines).strip())}


@cache
def _texts_above_fields(model: type) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(model))
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    fields = {statement.lineno: statement for statement in body.body if isinstance(statement, ast.AnnAssign)}
    found: dict[str, str] = {}
    comment: list[str] = []
    is_used = False
    number = 0
    lines = source.splitlines()
    while number < len(lines):
        number += 1
        line = lines[number - 1].strip()
        if line.startswith("#:"):
            comment, is_used = ([] if is_used else comment), False
            comment.append(line.removeprefix("#:").strip())
        elif number in fields and comment:
            found[ast.unparse(fields[number].target)] = " ".join(comment)
            number = fields[number].end_lineno or number
            is_used = True
        else:
            comment = []
    return found
