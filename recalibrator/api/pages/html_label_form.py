"""The page on which a person labels, one request at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Literal

from markupsafe import Markup

from recalibrator.api.pages.html_environment import environment
from recalibrator.labelling.form import FieldInput, field_inputs
from schemas.entities import EntityValue
from schemas.label_requested import LabelRequested

Said = Literal["labelled", "skipped", "withdrawn"]

NAMES_NONE = "none"
#: What each button of the form has done once it is pressed.
DONE: dict[str, Said] = {"label": "labelled", NAMES_NONE: "labelled", "skip": "skipped", "undo": "withdrawn"}


class LabelForm:
    """Makes the page."""

    def __init__(self) -> None:
        self._environment = environment()

    def page(self, content: Mapping[str, Any]) -> str:
        """Return the page of the first of the open requests.

        ``content``: the queue's ``page``, the workload's ``fields``, and what was ``given`` in a form that was refused:
        it stays filled in as long as its request is still the first.
        """
        requests: Sequence[LabelRequested] = content["page"].requests
        first = requests[0] if requests else None
        inputs: list[FieldInput] = []
        if first is not None:
            inputs = field_inputs(first.entities, content["fields"])
            given: Mapping[str, str] = content["given"]
            if given.get("query_id") == first.query_id:
                inputs = [one._replace(text=given.get(one.name, one.text)) for one in inputs]
        text = None if first is None else marked(first.text, first.entities.values())
        return self._environment.get_template("label.html").render(content, first=first, inputs=inputs, text=text)


def marked(text: str, found: Iterable[EntityValue]) -> Markup:
    """Return a query's text with the values that the model has found in it marked.

    Examples
    --------
    >>> marked("canon & CANON at 50 mm", ["Canon", ("50 mm", "85 mm"), None])
    Markup('<mark>canon</mark> &amp; <mark>CANON</mark> at <mark>50 mm</mark>')
    """
    values = [value for one in found if one for value in ([one] if isinstance(one, str) else one) if value]
    any_of = "|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))
    parts = re.split(f"({any_of})", text, flags=re.IGNORECASE) if values else [text]
    pieces = (f"<mark>{escape(part)}</mark>" if n % 2 else escape(part) for n, part in enumerate(parts))
    return Markup("".join(pieces))  # noqa: S704 escaped, piece by piece
