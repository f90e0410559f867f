"""Trials over HTTP and on the page: what operators ask for, and the comparison that they see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from markupsafe import escape

from schemas.calibration import CalibrationVersion, Evidence
from schemas.command import Command
from schemas.status import WorkloadStatus
from tests.support.api import KEY, START, WORKLOAD, Api, make_api, plain_status
from tests.support.versions import sealed_version
from tests.support.workload_statuses import canary


@pytest.fixture
def api() -> Api:
    """Versions 1 and 2 in the history, 2 in force."""
    api = make_api()
    offer(api, 1, "bootstrap")
    offer(api, 2, "refit")
    api.tell(status())
    return api


def offer(api: Api, number: int, trigger: str) -> None:
    api.tell(sealed_version(workload=WORKLOAD, version=number, evidence=Evidence(trigger=trigger)))


def status(**changed: Any) -> WorkloadStatus:
    return plain_status(calibration_version=2, **changed)


def post(api: Api, act: str, body: dict[str, Any] | None = None, **query: str) -> Any:
    return api.client.post(f"/v1/calibrations/{WORKLOAD}{act}", json=body, params=query or None)


def confirm(api: Api, **form: str) -> Any:
    return api.client.post("/confirm", data={"workload": WORKLOAD} | form, follow_redirects=False)


def shown(api: Api, **form: str) -> str:
    return api.client.get("/confirm", params={"workload": WORKLOAD} | form).text


def commands(api: Api) -> list[Command]:
    return [Command.from_json(value) for _, _, value in api.producer.records]


def refused(api: Api, answer: Any, field: str) -> bool:
    """Whether it is refused by the name of this field, and nothing became of it."""
    return (answer.status_code, answer.json()["error"]["field"], commands(api)) == (422, field, [])


@pytest.mark.parametrize(
    ("path", "action", "version", "share"),
    [
        (":refit", "refit", None, None),
        (":pause?reason=to%20see", "pause", None, None),
        (":stop-trial", "stop_trial", None, None),
        ("/1:activate", "activate", 1, None),
        ("/1:shadow", "shadow", 1, None),
        ("/1:canary?share=0.25", "canary", 1, 0.25),
    ],
)
def test_an_act_becomes_a_command_with_who_when_and_why(
    api: Api, path: str, action: str, version: int | None, share: float | None
) -> None:
    api.tell(status(trial=canary()))
    assert post(api, path, {} if "reason" in path else {"reason": "to see"}).status_code == 202
    ((topic, key, value),) = api.producer.records
    command = Command.from_json(value)
    assert (topic, key) == ("ucci.observations", WORKLOAD.encode())
    assert (command.action, command.version, command.share, command.reason) == (action, version, share, "to see")
    assert (command.issued_by, command.issued_at) == ("local", START)
    # A version's content goes with it: the fit keeps fewer versions than the history.
    known = api.cache.version_json(WORKLOAD, version or 0)
    assert command.map == (None if known is None else CalibrationVersion.from_json(known).map)


@pytest.mark.parametrize(
    ("act", "body", "field"),
    [
        ("/1:activate", {"hold": "no"}, "hold"),
        *((f"/1:canary?share={share}", {}, "share") for share in ("", "0", "1.01", "nan", "1e400", "half")),
        ("/1:canary", {}, "share"),
        (":large-only?until=tomorrow", {}, "until"),
        # A reason is one line, given once.
        (":pause?reason=a", {"reason": "b"}, "reason"),
        (":pause?reason=a%0Ab", {}, "reason"),
        (":pause?reason=a&reason=b", {}, "reason"),
    ],
)
def test_a_faulty_argument_is_refused_by_name(api: Api, act: str, body: dict[str, str], field: str) -> None:
    assert refused(api, api.client.post(f"/v1/calibrations/{WORKLOAD}{act}", json=body), field)


def test_the_form_of_an_act_asks_for_what_it_needs(api: Api) -> None:
    """A roll-back says that it holds, a canary asks for its share, and the large model for until when."""
    for act, words in (
        ({"action": "activate", "version": "1"}, "Until the workload is unpinned"),
        ({"action": "activate", "version": "1", "hold": "until_refit"}, "Until the workload is unpinned"),
        ({"action": "canary", "version": "1", "share": "0.3"}, '<label for="share">'),
        ({"action": "large_only"}, '<label for="until">'),
    ):
        assert words in shown(api, **act)
        assert confirm(api, **act).status_code == 303
    assert confirm(api, action="canary", version="1", share="2").status_code == 422
    told = [(one.action, one.hold, one.share, one.until) for one in commands(api)]
    assert told == [
        ("activate", True, None, None),
        ("activate", False, None, None),
        ("canary", None, 0.3, None),
        ("large_only", None, None, None),
    ]


def test_a_version_that_is_not_in_the_history_cannot_be_tried(api: Api) -> None:
    for act in ("/9:shadow", "/99:activate", "/-1:activate", "/nine:activate"):
        assert post(api, act).status_code in (404, 422)
    assert api.producer.records == []


def test_acts_need_the_scope_admin() -> None:
    api = make_api(api_keys={"reader": {"key": KEY, "scopes": ["read", "feedback"]}})
    for act in ("/1:shadow", "/1:canary?share=0.5", ":promote", ":stop-trial", ":pause"):
        assert api.client.post(f"/v1/calibrations/{WORKLOAD}{act}", headers={"X-Api-Key": KEY}).status_code == 403


def test_the_page_compares_both_versions_and_offers_acts(api: Api) -> None:
    offer(api, 3, "canary")
    base = canary().base.model_copy(update={"escalation_rate": 0.22, "labels": 0, "micro_f1": None})
    api.tell(status(trial=canary(issued_by="ada <admin>", base=base)))
    page = api.client.get(f"/workloads/{WORKLOAD}").text
    for words in ("ada &lt;admin&gt;", "25.0% of queries", "87.5% of 800", "31.0%", "22.0%", "1.93", "0.912"):
        assert words in page, words
    assert "action=promote" in page
    assert "action=stop_trial" in page
    assert "on trial</span>" in api.client.get(f"/workloads/{WORKLOAD}/versions").text
    assert api.client.get(f"/v1/status/{WORKLOAD}").json()["trial"]["trial"]["queries"] == 203
    api.tell(status(trial=canary(ended_at=START + timedelta(hours=1), ended_by="stop_trial")))
    ended = api.client.get(f"/workloads/{WORKLOAD}").text
    assert ("by stop trial" in ended, "action=promote" in ended) == (True, False)


def test_a_version_only_on_trial_is_no_point_of_the_history(api: Api) -> None:
    api.cache.take("ucci.status", WORKLOAD.encode(), None)
    before = api.client.get(f"/v1/status/{WORKLOAD}/history").json()
    offer(api, 3, "shadow")
    assert api.client.get(f"/v1/status/{WORKLOAD}/history").json() == before
    listed = api.client.get(f"/v1/calibrations/{WORKLOAD}").json()["versions"]
    assert [line["version"] for line in listed] == [3, 2, 1]


def test_promote_without_a_trial_is_202(api: Api) -> None:
    """Nothing would come of it once the trial has ended: the fit has no version to promote."""
    api.tell(status(trial=canary(ended_at=START + timedelta(hours=1), ended_by="stop_trial")))
    answer, form = post(api, ":promote"), confirm(api, action="promote")

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], form.status_code) == (409, "no_trial", 409)
    assert "shadow" in error["message"]
    assert not api.producer.records


@pytest.mark.parametrize("action", ["believe", "compare_again"])
@pytest.mark.parametrize("name", ["cleo", """<i>"o'neil" & co</i>""", "x" * 255, "ab\u202ecd", "a/b?c=d#e"])
def test_a_labeler_of_any_name_is_believed(api: Api, action: str, name: str) -> None:
    page = shown(api, action=action, labeler=name)
    assert f'name="labeler" value="{escape(name)}"' in page
    assert "<i>" not in page
    assert confirm(api, action=action, labeler=name).status_code == 303
    assert post(api, f":{action.replace('_', '-')}", labeler=name).status_code == 202
    assert [(one.action, one.labeler) for one in commands(api)] == [(action, name)] * 2


def test_an_act_on_nothing_is_refused_and_no_fault(api: Api) -> None:
    """A version or a labeler that is not named, or by no name that one can have."""
    refusals = [confirm(api, action=action, share="0.1") for action in ("activate", "shadow", "canary")]
    assert all("version: is required" in answer.text for answer in refusals)
    for name in ("", "x" * 256):
        form = {"workload": WORKLOAD, "action": "believe", "labeler": name}
        answers = [api.client.get("/confirm", params=form), confirm(api, **form), post(api, ":believe", labeler=name)]
        assert all("labeler" in answer.text for answer in answers)
        refusals += answers
    assert {answer.status_code for answer in refusals} == {422}
    assert not api.producer.records
