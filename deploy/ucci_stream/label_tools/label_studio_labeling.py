"""A workload as Label Studio shows it: fields → labeling configuration, label request → task. Pure.

An annotator sees the query and one text area for each field, filled in with what was served. Gold entities are
canonical values, which often do not stand in the text as they are, so text areas rather than regions; a project that
was changed to label regions is read as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from schemas.entities import Entities
from schemas.label_requested import LabelRequested

SERVED = "served"
"""The version under which served answers stand as predictions."""

INSTRUCTION = (
    "<p>Give the right value of each field, as the text means it. The fields are filled in with the answer that was "
    "served: correct what is wrong, remove what is not there, and leave a field empty where the text says nothing of "
    "it. Press Enter after each value; a field may have several.</p>"
    "<p>Skip a task that you cannot decide. Somebody else may.</p>"
)
_TEXT_TAG = "query"


def labeling_config(fields: Sequence[str]) -> str:
    """Return the labeling configuration of a workload.

    Parameters
    ----------
    fields : sequence of str
        The workload's.

    Returns
    -------
    str
        XML; equal fields give equal text.

    Examples
    --------
    >>> print(labeling_config(["iso"]))
    <View>
      <Text name="query" value="$text" />
      <Header value="iso" size="6" />
      <TextArea name="iso" toName="query" rows="1" editable="true" maxSubmissions="50" />
    </View>
    """
    text_tag = _text_tag(fields)
    view = ET.Element("View")
    ET.SubElement(view, "Text", name=text_tag, value="$text")
    for field in fields:
        # A value that begins with a dollar sign would be looked up in the task.
        ET.SubElement(view, "Header", value=f" {field}" if field.startswith("$") else field, size="6")
        ET.SubElement(view, "TextArea", name=field, toName=text_tag, rows="1", editable="true", maxSubmissions="50")
    ET.indent(view)
    return ET.tostring(view, encoding="unicode")


def task_of(request: LabelRequested, fields: Sequence[str], *, prefill: bool) -> dict[str, Any]:
    """Return the task that asks for a label.

    Parameters
    ----------
    request : LabelRequested
    fields : sequence of str
        The workload's.
    prefill : bool
        Whether the served entities stand in the fields to begin with.
    """
    data = {
        "query_id": request.query_id,
        "text": request.text,
        "reason": request.reason,
        "requested_at": request.model_dump(mode="json")["requested_at"],
    }
    if not prefill:
        return {"data": data}
    return {"data": data, "predictions": [{"model_version": SERVED, "result": _filled_in(request.entities, fields)}]}


def _filled_in(entities: Entities, fields: Sequence[str]) -> list[dict[str, Any]]:
    text_tag, regions = _text_tag(fields), []
    for field in fields:
        value = entities.get(field)
        texts = [value] if isinstance(value, str) else list(value or ())
        if texts:
            regions.append({"from_name": field, "to_name": text_tag, "type": "textarea", "value": {"text": texts}})
    return regions


def _text_tag(fields: Sequence[str]) -> str:
    """Return a name for the text that no field has."""
    name = _TEXT_TAG
    while name in fields:
        name += "_"
    return name
