"""The docstrings of the models, read by the generated documents, so that each field is explained in one place."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

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

    It stands below the field, or below the last of several that stand together without a blank line; where several
    fields that stand apart share a text, it stands in the ``Parameters`` section of the class.

    Examples
    --------
    >>> from schemas.query import QueryEvent
    >>> parameter_texts(QueryEvent)["created_at"]
    'RFC 3339 with an offset.'
    """
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner.__module__ == "builtins":
            continue
        texts |= _section_texts(owner) | _texts_below_fields(owner)
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


def _texts_below_fields(model: type) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    names: list[str] = []
    end = 0
    for statement in body.body:
        if statement.lineno > end + 1:
            names = []
        end = statement.end_lineno or statement.lineno
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
            case ast.Expr(value=ast.Constant(value=str(text))):
                found |= dict.fromkeys(names, " ".join(text.split()))
                names = []
            case _:
                names = []
    return found
