"""The page as its maker knows it: each state has its words, in colours one can read, and forms a browser can send."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from recalibrator.api.pages.html_page import ACTIONS
from schemas.calibration import Evidence
from schemas.command import Action
from schemas.status import (
    DriftState,
    HappeningEvent,
    LabelerStatus,
    LabelOutlook,
    LabelPlan,
    LabelStatus,
    VersionInUse,
    WorkloadState,
)
from tests.support.api import WORKLOAD, Api, make_api, plain_status
from tests.support.page_scenes import SCENES, filled
from tests.support.versions import sealed_version
from tests.support.workload_statuses import BEGAN, NOW
from tests.support.workload_statuses import recalibrator as recalibrator_status

GLOSSARY = Path(__file__).parents[4] / "docs" / "glossary.md"


def test_states_and_acts_are_in_the_glossary() -> None:
    """A person who does not know a word of the page finds it in the one list of words; every act has its words."""
    assert set(ACTIONS) == set(get_args(Action)) - {"bootstrap"}
    glossary = GLOSSARY.read_text(encoding="utf-8")
    for state in (*get_args(WorkloadState), *get_args(DriftState)):
        assert f"`{state}`" in glossary, state
    known = {word.strip() for row in re.findall(r"^\| (.*?) \|", glossary, re.MULTILINE) for word in row.split(",")}
    assert {title.lower() for title, _ in ACTIONS.values()} <= known


def changed(scene: str, **update: Any) -> Api:
    """Return a scene whose workload's status is told again with these parts changed."""
    api = filled(SCENES[scene])
    status = api.cache.status(WORKLOAD)
    assert status is not None
    api.tell(status.model_copy(update=update))
    return api


def test_the_page_says_and_draws_what_labels_buy() -> None:
    """A card with the plan's sentences and its chart, once the status has a plan; none before."""
    few, many = (
        LabelOutlook(per_query=share, per_day=100_000 * share, half_width=0.02, cost=cost, found_after=9_000)
        for share, cost in ((0.005, 1.6), (0.02, 1.52))
    )
    page = changed("well", label_plan=LabelPlan(now=0, outlooks=(few, many))).client.get("/").text
    assert "With 2,000 labels a day (2%)" in page
    assert "a query would cost 5.0% less" in page
    assert "Cost of a query against labels a day" in page


def test_the_page_stays_light_while_versions_come() -> None:
    """A thousand versions, fifty labelers, every happening that is kept: neither page exceeds 150 kB."""
    api = filled(SCENES["drift"])
    labelers = tuple(LabelerStatus(labeler=f"labeler-{n}", labels=9, compared=9, unanimous=9) for n in range(50))
    api.tell(recalibrator_status().model_copy(update={"labelers": {WORKLOAD: labelers}}))
    for number in range(19, 1_019):
        made, trigger = NOW + timedelta(seconds=number), "activate" if number % 7 == 0 else "threshold_moved"
        evidence = Evidence(trigger=trigger, escalation_rate=number % 9 / 9)
        parts = {"version": number, "parent_version": number - 1, "uncertainty_threshold": number / 2_000}
        version = sealed_version(workload=WORKLOAD, created_at=made, evidence=evidence, **parts)
        happened = HappeningEvent(workload=WORKLOAD, at=made, kind="alarm", sentence="Drift is suspected", is_bad=True)
        api.tell(version, happened)
    for path in (f"/workloads/{WORKLOAD}", f"/workloads/{WORKLOAD}/versions"):
        assert len(api.client.get(path).content) <= 150_000, path


def test_the_version_that_decides_is_the_routers() -> None:
    """The fit has made version 18 already; the routers decide by 17, and so says the page."""
    api = filled(SCENES["well"])
    for router in api.cache.routers():
        api.tell(router.status.model_copy(update={"versions": {WORKLOAD: VersionInUse(version=17)}}))
    page = api.client.get("/").text

    assert "Version 17 decides" in page
    assert "Version 18 is made; routers have yet to take it" in page
    assert re.search(r"class=\"current\"><th[^>]*>17<", api.client.get(f"/workloads/{WORKLOAD}/versions").text)


#: By what it is about: a scene, what its page shows (an expression), and what it does not.
SAYS = {
    "degraded answers": ("outage", r"Answers served degraded</dt><dd class=\"bad\">[1-9]", "Asked for"),
    "measured quality": ("well", "measured 0.911, 0.898 to 0.924, on 1,320 served answers", 'id="label-plan"'),
    "the page failed before quality was measured": ("label-starvation", "", "served answers"),
    "the way back": ("well", "Back to version 17, the last that held for an hour", "Asked for"),
    "no way back to labels of another world": ("drift", "", "the last that held for an hour"),
    "labels that wait for a result": (
        "labels-without-result",
        "Labels of 17 queries wait for a result, the oldest for 2 h.*120 labels lay in other partitions",
        "No labeler has sent feedback",
    ),
    # Requests that have expired are pending for ever; the page counts those that somebody can still answer.
    "what waits for a label": ("label-starvation", "<b>24</b> queries wait for a label(?!.*956)", "asked for a label"),
}


@pytest.mark.parametrize(("scene", "shows", "hides"), SAYS.values(), ids=SAYS)
def test_the_page_says_what_holds_and_nothing_else(scene: str, shows: str, hides: str) -> None:
    page = filled(SCENES[scene]).client.get("/").text

    assert re.search(shows, page, re.DOTALL)
    assert hides not in page


def test_more_labels_came_than_were_asked_for() -> None:
    """An offline set counts among what came: the page said "5964 of 2026 asked for have come"."""
    page = changed("label-starvation", labels=LabelStatus(requested=20, received=600)).client.get("/").text
    assert "600 labels have come, offline ones among them" in page
    assert "asked for have come" not in page


def test_a_labeler_set_aside_is_marked_can_be_believed_and_back() -> None:
    api = changed("well", details={"labelers_set_aside": {"bob": {"labels": 40}}})
    api.tell(HappeningEvent(workload=WORKLOAD, at=BEGAN, kind="set_aside", sentence="so", is_bad=True, labeler="bob"))
    aside = api.client.get("/").text
    assert re.search(r">bob <span class=\"bad\">set aside since <time[^>]*>01 Mar 10:00<", aside)
    assert f'href="/confirm?workload={WORKLOAD}&amp;action=believe&amp;labeler=bob"' in aside
    believed = changed("well", details={"labelers_believed": ["bob"]}).client.get("/").text
    assert "believed by command" in believed
    assert f'href="/confirm?workload={WORKLOAD}&amp;action=compare_again&amp;labeler=bob"' in believed


TARGETS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "micro-F1": ({"micro_f1": 0.9}, ("target 0.9</dd>", "--v:0.9500;--t:0.9", "the tick is the target of all")),
    "cap": ({"micro_f1": 0.9, "max_escalation": 0.4}, ("0.9, with at most 40% escalated", "--v:0.9500;--t:0.9")),
    "field": (
        {"micro_f1": 0.9, "fields": {"camera": 0.97}},
        ("0.9 and camera 0.97", 'bar low" style="--v:0.9500;--t:0.97"', "own target, else that of all"),
    ),
    "budget": ({"cost": 1.7}, ("target: a cost of 1.7 a query", 'style="--v:0.9500"', "no field has a target")),
}


@pytest.mark.parametrize(("target", "shown"), TARGETS.values(), ids=TARGETS)
def test_the_page_states_the_target_in_its_form(target: dict[str, object], shown: tuple[str, ...]) -> None:
    """Whatever is promised stands under the estimate and beside the fields; no line is drawn where there is no τ."""
    api = make_api()
    points = {"threshold": [-1.0, 0.3, 1.0], "escalation_rate": [1.0, 0.3, 0.0], "micro_f1": [0.93, 0.91, 0.7]}
    known = {"estimate": 0.91, "lower": 0.9, "upper": 0.92}
    api.tell(plain_status(target=target, micro_f1=known, per_field={"camera": 0.95}, frontier={**points, "chosen": 1}))
    page = api.client.get(f"/workloads/{WORKLOAD}").text
    for words in shown:
        assert words in page
    assert api.client.get("/").status_code == 200


def test_after_an_act_the_page_says_what_was_asked_for() -> None:
    """Nothing that a link says is told as an act."""
    client = make_api().client
    answer = client.post("/confirm", data={"workload": WORKLOAD, "action": "pause"})
    page = client.get(f"/workloads/{WORKLOAD}", params={"asked": "<script>", "version": "3"}).text

    assert (answer.status_code, "Asked for: pause" in answer.text) == (200, True)
    assert "Asked for" not in page
    assert "<script>" not in page
