"""The docstrings of the models, read by the generated documents, so that each field is explained in one place."""

from __future__ import annotations

import inspect
import re

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
    """Return the text of each entry of the ``Parameters`` section, those of its bases included.

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
    >>> parameter_texts(Point)
    {'x': 'Where it lies, in metres.', 'y': 'Where it lies, in metres.'}
    """
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        texts |= _own_parameter_texts(owner)
    return texts


def _own_parameter_texts(model: type) -> dict[str, str]:
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
