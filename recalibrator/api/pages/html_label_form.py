"""The page on which a person labels, one request at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from recalibrator.api.pages.html_environment import environment
from recalibrator.labelling.form import FieldInput, field_inputs
from schemas.label_requested import LabelRequested

Said = Literal["labelled", "skipped", "withdrawn"]

NAMES_NONE = "none"
DONE: dict[str, Said] = {"label": "labelled", NAMES_NONE: "labelled", "skip": "skipped", "undo": "withdrawn"}
"""What each button of the form has done once it is pressed."""


class LabelForm:
    """Makes the page."""

    def __init__(self) -> None:
        self._environment = environment()

    def page(self, content: Mapping[str, Any]) -> str:
        """Return the page of the first of the open requests.

        Parameters
        ----------
        content : mapping
            The queue's ``page``, the workload's ``fields``, and what was ``given`` in a form that was refused: it stays
            filled in as long as its request is still the first.
        """
        requests: Sequence[LabelRequested] = content["page"].requests
        first = requests[0] if requests else None
        inputs: list[FieldInput] = []
        if first is not None:
            inputs = field_inputs(first.entities, content["fields"])
            given: Mapping[str, str] = content["given"]
            if given.get("query_id") == first.query_id:
                inputs = [one._replace(text=given.get(one.name, one.text)) for one in inputs]
        return self._environment.get_template("label.html").render(content, first=first, inputs=inputs)
