"""The form to label with: what is filled in becomes feedback, under the same rights as over the API."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from typing import Any

import pytest

from recalibrator.join.query_state import NOTHING_KNOWN, take_feedback
from recalibrator.labelling.form import shown_answers
from schemas.entities import EntityMapping
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from tests.support.api import KEY, WORKLOAD, Api, make_api
from tests.support.recalibrator_events import label_request

PATH = f"/workloads/{WORKLOAD}/label"
READER = "a-key-that-only-reads"


def ask(api: Api, number: int, entities: EntityMapping | None = None, **changes: Any) -> LabelRequested:
    """Put a request in the queue, the later the higher its number."""
    asked = {"camera": "canon", "lens": None} if entities is None else entities
    text = f"query {number} <b> nikon leica 50 mm"
    request = label_request(number, workload=WORKLOAD, text=text, entities=asked, **changes)
    api.tell(request)
    return request


def form_of(page: str, act: str = "label") -> dict[str, str]:
    """Return what a browser would send of the page's form that has this button, with nothing changed."""
    forms: list[str] = re.findall(r"<form.*?</form>", page, re.DOTALL)
    form = next(one for one in forms if f'value="{act}"' in one)
    sent = dict(re.findall(r'<input[^>]*name="([^"]*)"[^>]*? value="([^"]*)"', form))
    sent |= dict(re.findall(r'<textarea[^>]*name="([^"]*)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL))
    sent = {name: unescape(value) for name, value in sent.items()}
    return sent | {"act": act, "labeler": sent.get("labeler") or "ada"}


def accepted(page: str, letter: str) -> dict[str, str]:
    """Return what a browser would send of the form by the button with this access key."""
    (answer,) = re.findall(rf'name="answer" value="([^"]*)" accesskey="{letter}"', page)
    form = form_of(page)
    del form["act"]
    return form | {"answer": unescape(answer)}


def sent(api: Api) -> list[FeedbackEvent]:
    return [FeedbackEvent.from_json(value) for _, _, value in api.producer.records]


@pytest.fixture
def api() -> Api:
    api = make_api()
    for number in (1, 2):
        ask(api, number)
    return api


@pytest.fixture
def form(api: Api) -> dict[str, str]:
    """The form of q-2, the newest, as it is shown first."""
    return form_of(api.client.get(PATH).text)


def test_what_is_filled_in_becomes_feedback(api: Api, form: dict[str, str]) -> None:
    """The model's answer corrected and a second value added; the next request follows, with a way back."""
    answer = api.client.post(PATH, data=form | {"value:camera": "nikon | leica", "value:lens": " 50 mm "})

    (event,) = sent(api)
    assert (event.query_id, event.labeler, event.source) == ("q-2", "ada", "page")
    assert event.entities == {"camera": ("nikon", "leica"), "lens": "50 mm"}
    assert "Labelled: q-2" in answer.text
    assert "query 1 &lt;b&gt;" in answer.text
    assert form_of(answer.text)["labeler"] == "ada"


def test_an_answer_left_as_it_is_confirms_the_model(api: Api) -> None:
    ask(api, 3, {"camera": ["a", "b"], "lens": 'f "1|2"'})
    page = api.client.get(PATH).text
    assert "<textarea" in page

    api.client.post(PATH, data=form_of(page) | {"lines:lens": 'f "1|2"'})

    assert sent(api)[0].entities == {"camera": ("a", "b"), "lens": 'f "1|2"'}


def test_a_form_without_fields_says_that_there_are_none(api: Api, form: dict[str, str]) -> None:
    bare = {name: value for name, value in form.items() if not name.startswith(("value:", "lines:"))}
    for emptied in (bare, form | {"value:camera": " | "}):
        assert "every field is empty" in api.client.post(PATH, data=emptied).text
    assert sent(api) == []
    api.client.post(PATH, data=form | {"act": "none"})
    assert sent(api)[0].entities == {"camera": None, "lens": None}


def test_right_is_asked_of_a_single_answer_alone(api: Api) -> None:
    """Of two answers a labeler does not know which was served: "wrong" alone is offered, for neither is right."""
    alone = api.client.get(PATH).text
    ask(api, 3, other_entities={"camera": "leica"})
    both = api.client.get(PATH).text

    assert 'value="right"' in alone
    assert 'value="right"' not in both
    api.client.post(PATH, data=form_of(alone, "right"))
    for act in ("wrong", "skip"):
        api.client.post(PATH, data=form_of(both, act))
    said = [(one.query_id, one.verdict, one.entities, one.labeler) for one in sent(api)]
    assert said == [("q-2", "right", None, "ada"), ("q-3", "wrong", None, "ada"), ("q-3", None, None, "ada")]


def test_an_undo_withdraws_and_stays_where_one_is(api: Api, form: dict[str, str]) -> None:
    """The withdrawal outranks the label, and the request on the screen stays there."""
    labelled = api.client.post(PATH, data=form)
    api.clock.advance(1.0)
    undone = api.client.post(PATH, data=form_of(labelled.text, "undo"))
    first, second = sent(api)
    assert (second.query_id, second.retracted, second.revision > first.revision) == ("q-2", True, True)
    assert form_of(undone.text)["query_id"] == "q-1"


def test_a_correction_over_http_was_dropped_after_a_form_label(api: Api, form: dict[str, str]) -> None:
    """A correction without a revision replaces the form's label; an older one is 409."""
    api.client.post(PATH, data=form)
    correction = {"query_id": "q-2", "entities": {"camera": "leica"}, "labeler": "ada"}
    api.client.post("/v1/feedback", json=correction)
    stale = api.client.post("/v1/feedback", json=correction | {"entities": {"camera": "x"}, "revision": 2})

    state = NOTHING_KNOWN
    for event in sent(api):
        state = take_feedback(state, event, api.clock.now(), {}).state
    assert state.standing is not None
    assert state.standing.entities == {"camera": "leica"}
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale_revision")


def test_what_was_typed_outlives_a_broker_that_is_away(api: Api, form: dict[str, str]) -> None:
    api.producer.is_away = True
    ask(api, 3)  # newer than the one on the screen
    answer = api.client.post(PATH, data=form | {"value:camera": "Nikon"})

    assert answer.status_code == 503
    assert form_of(answer.text).items() >= {"query_id": "q-2", "value:camera": "Nikon"}.items()


def test_either_answer_is_accepted_by_one_button(api: Api) -> None:
    """Its values are the label, whatever stands in the fields, also where they are not in the text."""
    ask(api, 3, other_entities={"camera": "leica m6", "lens": ["a|b", "c"]})
    page = api.client.get(PATH).text
    for letter in "ab":
        api.client.post(PATH, data=accepted(page, letter) | {"value:camera": "nikn", "query_id": f"q-{letter}"})

    assert page.count('class="differs"') == 2
    labels = sorted((one.entities or {} for one in sent(api)), key=str)
    assert labels == [{"camera": "canon", "lens": None}, {"camera": "leica m6", "lens": ("a|b", "c")}]


def test_where_an_answer_stands_tells_nothing_of_its_model(api: Api) -> None:
    """Neither place nor words do; and one answer may be of two models that agree."""
    told = [ask(api, n, other_entities={"camera": "leica"}, reason="exploration") for n in range(3, 203)]
    first = Counter(shown_answers(one)[0] == one.entities for one in told)
    page = api.client.get(PATH).text

    assert min(first.values()) > 70
    assert not re.search("small|large|explor|monitor|served", page.split("<main")[1].split("</main")[0])


def test_few_are_shown_most_telling_first_and_none_twice(api: Api) -> None:
    """Of the newest six: explored ones, then by doubt times weight; what comes meanwhile does not push in."""
    ask(api, 3, probability=0.01, error_probability=0.01)
    ask(api, 4, probability=0.1, error_probability=0.5)
    ask(api, 5, reason="exploration", error_probability=0.01)
    ask(api, 6, probability=0.1, error_probability=0.01)
    ask(api, 7, probability=0.1, error_probability=0.9)
    page, seen = api.client.get(PATH).text, []
    assert "6 at hand, of 7 that wait" in page
    ask(api, 8)
    while "data-query" in page:
        seen.append(form_of(page)["query_id"])
        page = api.client.post(PATH, data=accepted(page, "a")).text

    assert seen == ["q-5", "q-3", "q-4", "q-2", "q-7", "q-6", "q-1"]
    assert "Begin with the newest again" in page


def test_an_audit_names_who_should_answer_it() -> None:
    api = make_api(workload={"trusted_labelers": ["grace"]})
    ask(api, 1, reason="audit")
    ask(api, 2)

    assert "only grace should answer it" in api.client.get(PATH, params={"reason": "audit"}).text
    assert "grace" not in api.client.get(PATH).text


def test_a_reader_types_a_key_that_gives_feedback() -> None:
    """Who has come with such a key already is asked for none, and labels as its labeler."""
    keys = {"wall": {"key": READER, "scopes": ["read"]}, "ada": {"key": KEY, "scopes": ["read", "feedback"]}}
    api = make_api(api_keys=keys)
    ask(api, 1)
    own, page = (api.client.get(PATH, auth=("", key)).text for key in (KEY, READER))
    assert 'type="password"' not in own
    assert "Key with the scope feedback" in page

    refused = api.client.post(PATH, data=form_of(page), auth=("", READER))
    assert (refused.status_code, "lacks the scope feedback" in refused.text) == (403, True)
    assert api.client.post(PATH, data=form_of(own), auth=("", KEY)).status_code == 200
    assert api.client.post(PATH, data=form_of(page) | {"key": KEY}, auth=("", READER)).status_code == 200
    assert [one.labeler for one in sent(api)] == ["ada", "ada"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"act": "burn"}, "none of label, none, skip"),
        ({"query_id": ""}, "query_id"),
        ({"value:camera": "x" * 5_000}, "not in the text"),
        ({"cursor": "nowhere", "batch": ""}, "cursor"),
        ({"batch": "nowhere"}, "no list of queries"),
        ({"answer": '{"camera": 1}'}, "entities"),
        # Nobody could compare it with others', nor set it aside.
        ({"labeler": ""}, "give your name"),
    ],
)
def test_a_faulty_form_is_refused_in_words(api: Api, form: dict[str, str], changes: dict[str, str], words: str) -> None:
    answer = api.client.post(PATH, data=form | changes)

    assert (answer.status_code, words in answer.text) == (422, True)
    assert "cursor" in changes or sent(api) == []


def test_a_value_not_in_the_text_is_asked_about_once(api: Api, form: dict[str, str]) -> None:
    """A slip is caught; a name that is meant is saved by pressing again, and another slip is asked about anew."""
    asked = api.client.post(PATH, data=form | {"value:camera": "nikn"})
    again = api.client.post(PATH, data=form_of(asked.text) | {"value:camera": "lieca"})

    assert asked.status_code == again.status_code == 422
    assert "not in the text: nikn. Save again if that is meant" in asked.text
    assert sent(api) == []
    assert api.client.post(PATH, data=form_of(again.text)).status_code == 200
    assert sent(api)[0].entities == {"camera": "lieca", "lens": None}


def test_help_is_beside_its_field_and_found_values_are_marked() -> None:
    api = make_api(workload={"field_help": {"lens": "focal length & speed"}})
    ask(api, 1, {"lens": "50 MM", "camera": None})
    page = api.client.get(PATH).text

    assert "focal length &amp; speed</p>" in page
    assert page.count('aria-describedby="help-2 bars"') == 1
    assert "&lt;b&gt; nikon leica <mark>50 mm</mark></blockquote>" in page
