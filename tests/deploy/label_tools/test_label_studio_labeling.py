"""A workload as annotators see it: every field has its area, filled in with what was served."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.labelling.label_studio import of_annotation
from schemas.label_requested import LabelRequested
from tests.support.recalibrator_events import FIELDS, routed
from ucci_stream.label_tools.label_studio_labeling import labeling_config, task_of

names = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cn"], exclude_characters="￾￿"), min_size=1)


@given(st.lists(names | st.just("query"), min_size=1, max_size=5, unique=True))
def test_every_field_has_one_area_and_the_text_a_name_that_no_field_has(fields: list[str]) -> None:
    view = ET.fromstring(labeling_config(fields))
    areas = view.findall("TextArea")
    assert [area.get("name") for area in areas] == fields
    (text,) = view.findall("Text")
    assert text.get("name") not in fields
    assert {area.get("toName") for area in areas} == {text.get("name")}
    assert not any((header.get("value") or "").startswith("$") for header in view.findall("Header"))


def test_a_task_left_as_it_was_served_is_a_label_of_the_served_entities() -> None:
    served = {"camera": ("canon", "nikon"), "lens": "50 mm", "iso": None}
    request = LabelRequested.from_result(routed(1, entities=served))
    task = task_of(request, (*FIELDS, "iso"), prefill=True)
    (prediction,) = task["predictions"]
    submitted = {
        "id": 1,
        "project": 1,
        "updated_at": "2026-01-01T00:00:00Z",
        "completed_by": 1,
        "result": prediction["result"],
    }
    event = of_annotation(submitted, task)
    assert event.query_id == request.query_id
    assert event.entities == {"camera": ("canon", "nikon"), "lens": "50 mm"}


def test_a_blind_task_shows_nothing_of_the_answer() -> None:
    task = task_of(LabelRequested.from_result(routed(1)), FIELDS, prefill=False)
    assert task.keys() == {"data"}
    assert task["data"].keys() == {"query_id", "text", "reason", "requested_at"}
