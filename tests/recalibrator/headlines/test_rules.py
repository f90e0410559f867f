"""The sentence on top of the page: for each state the most urgent thing, since when, its cost and the act."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from pydantic import JsonValue

from recalibrator.headlines.facts import Facts, in_force
from recalibrator.headlines.rules import headline
from schemas.calibration import BudgetStanding, Interval, LargeOnly, Target, TargetStanding
from schemas.costs import CostRate, ModelCosts, expected_cost
from schemas.settings import WorkloadSettings
from schemas.status import (
    DeadLetterCount,
    DeadLetterStatus,
    DriftState,
    DriftStatus,
    Headline,
    LabelerStatus,
    LabelStatus,
    LabelsWithoutResult,
    OutageStatus,
    StageStatus,
    WorkloadStatus,
)
from tests.support.strategies import any_of
from tests.support.workload_statuses import (
    BEGAN,
    BUSY,
    COSTS,
    DEAR,
    DOWN,
    DRIFTED,
    NOW,
    SETTINGS,
    UP,
    curve,
    facts,
    held,
    recalibrator,
    router,
    router_status,
    status,
)
from ucci_runtime.broker.contact import Heard

REFUSING = DOWN.model_copy(update={"reason": "HTTP 400: no logprobs", "misconfigured": True})
GATEWAY = router("gateway-1").model_copy(update={"serves": "http"})
LETTERS = DeadLetterStatus(
    since=NOW - timedelta(days=1),
    total=40,
    by_reason=(DeadLetterCount(stage="router", reason="models_failed", count=40, last_at=NOW),),
)


AWAY = Heard(NOW - timedelta(seconds=11), BEGAN, is_away=True, address="kafka:9092")


def waiting(last_hour: int, labels_last_hour: int) -> LabelStatus:
    """So many labels of the last hour have no result."""
    found = LabelsWithoutResult(
        queries=last_hour, oldest_at=BEGAN, last_hour=last_hour, labels_last_hour=labels_last_hour
    )
    return LabelStatus(received=900, requested=1_000, pending=100, without_result=found)


WRONG_IDS, FEW_WRONG_IDS, SOME_WRONG_IDS = waiting(30, 120), waiting(9, 9), waiting(30, 151)


def alarmed(*names: str, state: DriftState = "drifted", since: datetime = BEGAN) -> DriftStatus:
    """Detectors of these names alarm."""
    one = DRIFTED.detectors[0].model_copy(update={"state": state, "since": since})
    return DriftStatus(state=state, detectors=[one.model_copy(update={"name": name}) for name in names])


def changed(small: Sequence[float], large: Sequence[float], labels: int = 300) -> dict[str, Any]:
    """What the fit says of how often labels call either model wrong, before a change and since."""
    sides = {name: [was, labels, now, labels] for name, (was, now) in (("small", small), ("large", large))}
    return {"outcomes_changed": {"since": "2026-03-01T10:00:00+00:00", **sides}}


MOVED = "/what-moved?since=2026-03-01T10%3A00%3A00Z"
ALONE = LargeOnly(small_probability=0.1, since=BEGAN, until=BEGAN + timedelta(hours=8), issued_by="ann")
SMALL_WORSE, LARGE_WORSE = changed((0.27, 0.52), (0.1, 0.11)), changed((0.27, 0.28), (0.1, 0.4))


class Case(NamedTuple):
    """What the sentence says of a state, and where its act leads, if not as :data:`LINKS` says.

    Parts of the sentence stand between ellipses; an @ is the time when all began.
    """

    says: str
    status: WorkloadStatus
    around: Facts = facts()
    act: str | None = None


#: Where the act of a kind leads.
CONFIRM = "/confirm?workload=photo&action="
LINKS = {
    **dict.fromkeys(("disk_low", "fit_silent", "join_silent", "kafka", "models_down", "outage"), "#service"),
    **dict.fromkeys(("overload", "router_silent", "routers_not_ready", "routers_silent", "stuck"), "#service"),
    **dict.fromkeys(("agreement_moved", "both_worse", "large_worse", "small_worse", "traffic_moved"), MOVED),
    **dict.fromkeys(("drift", "label_starvation", "labels_one_sided", "suspected"), "/label"),
    **dict.fromkeys(("capped", "infeasible"), "#plots"),
    "below_target": f"{CONFIRM}refit",
    "dear": f"{CONFIRM}large_only",
}
#: Of the kinds that are not ``bad``.
TONES = {
    **dict.fromkeys(("cold_start", "held", "label_free", "large_only", "no_traffic"), "calm"),
    **dict.fromkeys(("agreement_moved", "below_target", "capped", "dead_letters", "drift", "escalation_jump"), "warn"),
    **dict.fromkeys(("disk_low", "label_starvation", "labeler_set_aside", "labels_one_sided"), "warn"),
    **dict.fromkeys(("labels_without_result", "router_silent", "suspected", "traffic_moved"), "warn"),
    "well": "good",
}
#: The stage still works, on a disk that is nearly full.
LOW_STAGES = {"join": StageStatus(ready=True, trouble="only 0.60 GB are left"), "fit": StageStatus(ready=True)}
LOW = recalibrator().model_copy(update={"stages": LOW_STAGES})
MISSED: dict[str, JsonValue] = {"unreached_since": BEGAN.isoformat()}
JUST_MISSED: dict[str, JsonValue] = {"unreached_since": (NOW - timedelta(minutes=30)).isoformat()}
ASIDE: dict[str, JsonValue] = {"labelers_set_aside": {"eve": {"labels": 41, "since": "2026-03-01T10:00:00+00:00"}}}
#: By kind, and a name where one kind has several. The gallery of docs/page has most sentences in full.
CASES = {
    "well": Case("All is well: version 7 holds micro-F1 0.91 … 52% less than the large model", status()),
    "fit_silent": Case("version 7 stays", status(updated_at=BEGAN), facts(recalibrators=(recalibrator(BEGAN),))),
    "kafka": Case("no query is answered", status(routers=(router(silent=True),), drift=DRIFTED), facts(kafka=AWAY)),
    "small_worse": Case("worse @", status(drift=alarmed("agreement", "label_residual"), details=SMALL_WORSE)),
    "large_worse": Case("the small one as ever", status(drift=alarmed("agreement"), details=LARGE_WORSE)),
    "both_worse": Case(
        "Labels call the answers of both models wrong more often @",
        status(drift=alarmed("label_residual"), details=changed((0.27, 0.5), (0.1, 0.4))),
    ),
    "traffic_moved": Case("come in @", status(drift=alarmed("uncertainty_median", "agreement"))),
    "agreement_moved": Case(
        "The models agree less often, or more, than they did at the same u since",
        status(drift=alarmed("agreement"), details=changed((0.27, 0.5), (0.1, 0.4), labels=20)),
    ),
    "suspected": Case("in the mix of u @", status(drift=alarmed("uncertainty_tail", state="suspected"))),
    "infeasible: infeasible while in doubt": Case(
        "No threshold has reached micro-F1 0.91",
        status(state="infeasible", drift=alarmed("uncertainty_tail", state="suspected")),
        act="/label",
    ),
    "join_silent": Case(
        "The join has been silent @ … labels and traffic no longer reach the fit",
        status(),
        facts(recalibrators=(recalibrator(NOW, "fit"), recalibrator(BEGAN, "join"))),
    ),
    "no_traffic": Case("1 router waits for queries", status(), facts(last_query_at=BEGAN)),
    "routers_not_ready": Case(
        "No router is ready (router-1): they report, but answer no query",
        status(routers=(router().model_copy(update={"ready": False}),)),
    ),
    "stuck": Case("none has been answered @", status(updated_at=BEGAN, lag={"records": {"queries": 250}})),
    "routers_silent: a gateway counted as a router": Case(
        "No router (router-1) has reported @: no query of the topic is answered … 12 queries wait",
        status(routers=(GATEWAY, router(silent=True)), lag={"records": {"queries": 12}}),
    ),
    "disk_low": Case("only 0.60 GB are left", status(), facts(recalibrators=(LOW,))),
    "labeler_set_aside": Case("Labels of eve", status(details=ASIDE), act=f"{CONFIRM}believe&labeler=eve"),
    "well: who is set aside has long stopped": Case(
        "All is well",
        status(details=ASIDE, labels=LabelStatus(by_labeler=(LabelerStatus(labeler="eve", labels=41, last_at=BEGAN),))),
    ),
    "router_silent": Case(
        "router-2 has been silent @ … 1 other router answers",
        status(routers=(router(), router("router-2", silent=True))),
    ),
    "outage": Case("The large model has been down @", status(routers=(router(large=DOWN),)), facts(outage_since=BEGAN)),
    "outage: small model fails": Case(
        "The small model fails on 40% of calls … the large model answers every query, for 3.00 small calls each",
        status(outage=OutageStatus(small_failing=0.4)),
    ),
    "outage: some calls of a server that is there": Case(
        "The small model fails on 40% of calls … the large model answers those queries, for 3.00 small calls each",
        status(routers=(router(small=UP, large=UP),), outage=OutageStatus(small_failing=0.4)),
    ),
    "outage: some calls of a large server that is there": Case(
        "The large model fails on 40% of calls … queries whose call fails are served the small answer",
        status(routers=(router(small=UP, large=UP),), outage=OutageStatus(large_failing=0.4)),
    ),
    "outage: small model down": Case(
        "the large model answers every query, for 3.00 small calls each",
        status(routers=(router(small=DOWN, large=UP),), outage=OutageStatus(small_failing=0.4)),
    ),
    "well: the small model is back": Case(
        "All is well",
        status(routers=(router(small=UP, large=UP),), outage=OutageStatus(small_failing=0.4)),
        facts(recovered=frozenset({"small"})),
    ),
    "outage: down again": Case(
        "The small model is down",
        status(routers=(router(small=DOWN, large=UP),), outage=OutageStatus(small_failing=0.4)),
        facts(recovered=frozenset({"small"})),
    ),
    "outage: though it looks like drift": Case(
        "served the small answer", status(drift=DRIFTED, outage=OutageStatus(large_failing=0.9), state="infeasible")
    ),
    "models_down": Case("queries wait", status(routers=(router(large=DOWN, small=DOWN),))),
    "models_down: as configured": Case(
        "Both models are down (small: HTTP 400: no logprobs): queries wait",
        status(routers=(router(large=DOWN, small=REFUSING),)),
    ),
    "outage: as configured": Case(
        "The small model is down (HTTP 400: no logprobs): the large model answers every query",
        status(routers=(router(large=UP, small=REFUSING),)),
    ),
    "overload": Case("42 calls queue … 7.5 s or longer", status(routers=(router(large=BUSY, small=UP),))),
    "dear": Case("15.0% over the latest", status(frontier=curve(0.994), version=DEAR), facts(may_return=True)),
    "large_only": Case(
        "by order of ann, until 01 Mar 18:00 UTC",
        status(frontier=curve(0.994), version=DEAR, large_only=ALONE),
        act=f"{CONFIRM}end_large_only",
    ),
    "dear: large only is over": Case(
        "Version 7 costs more than the large model alone",
        status(frontier=curve(0.994), version=DEAR, large_only=ALONE.model_copy(update={"until": BEGAN})),
    ),
    "escalation_jump": Case(
        "Version 7 escalates much @: 40.0% of queries, for 2.20 small calls each, far more … than before (15.0% over",
        status(frontier=curve(0.4)),
        act="#versions",
    ),
    "infeasible": Case("the best reaches 0.930", status(state="infeasible", details=MISSED, frontier=curve(0.4))),
    "bad_labels": Case(
        "Labels contradict what was known of the models since 01 Mar 09:30 UTC … some 17 of them are taken for slips",
        status(
            state="bad_labels_suspected",
            details={"label_audit": {"since": "2026-03-01T09:30:00+00:00", "quarantined": 17}},
        ),
        act="/label?reason=audit",
    ),
    "drift": Case("Queries or models have changed in the mix of u @ … 1.45 small calls", status(drift=DRIFTED)),
    "below_target": Case(
        "below its target: micro-F1 0.880", status(micro_f1=Interval(estimate=0.88, lower=0.86, upper=0.9))
    ),
    "capped": Case(
        "held back: the cap of 40% escalated costs 0.030 of micro-F1 (0.010 to 0.050): the target would take 52%",
        status(
            target=Target(micro_f1=0.91, max_escalation=0.4),
            micro_f1=Interval(estimate=0.88, lower=0.86, upper=0.9),
            standing=TargetStanding(binds="max_escalation", wanted_escalation=0.52),
        ),
    ),
    "below_target: field below its target": Case(
        "micro-F1 0.913 (0.902 to 0.924) for a target of 0.9; iso 0.880 (0.860 to 0.900) for 0.9; iso binds",
        status(
            target=Target(micro_f1=0.9, fields={"iso": 0.9}),
            standing=TargetStanding(binds="fields.iso", fields={"iso": Interval(estimate=0.88, lower=0.86, upper=0.9)}),
        ),
    ),
    "infeasible: budget out of reach": Case(
        "No threshold has kept to a cost of 1.1 a query since",
        status(state="infeasible", details=MISSED, target=Target(cost=1.1), standing=TargetStanding(binds="cost")),
    ),
    "well: budget kept": Case(
        "buys an estimated micro-F1 of 0.913 (0.902 to 0.924) at 1.448 a query over the last 10,000, for a",
        status(
            target=Target(cost=1.45),
            standing=TargetStanding(binds="cost", budget=BudgetStanding(allowed=1.46, realised=1.448, queries=10_000)),
        ),
    ),
    "dead_letters": Case(
        "30 records were set aside as dead letters in the last hour … models failed (router)",
        status(dead_letters=LETTERS),
        facts(letters_last_hour=30),
        act="#dead-letters",
    ),
    "labels_without_result": Case(
        "30 labels of the last hour (25%) name a query without a result: none of them counts before its result comes",
        status(labels=WRONG_IDS, state="label_starved"),
        act="#labels",
    ),
    "well: a handful of labels without a result": Case("All is well", status(labels=FEW_WRONG_IDS)),
    "well: a small share of labels without a result": Case("All is well", status(labels=SOME_WRONG_IDS)),
    "cold_start": Case(
        "900 labels are in",
        status(state="cold_start", calibration_version=None, frontier=None, version=None),
        act="/label",
    ),
    "cold_start: no label is asked for": Case(
        "no label is asked for that would lead to one",
        status(state="cold_start", calibration_version=None, frontier=None, version=None),
        facts(
            workload=WorkloadSettings.model_validate(
                {"name": "photo", "fields": ["camera"], "target": {"micro_f1": 0.91}, "labels": {"per_day": 0}}
            )
        ),
    ),
    "label_starvation": Case("100 requests wait", status(state="label_starved")),
    "labels_one_sided": Case("kept", status(state="labels_one_sided", details={"silent_side": "kept"})),
    "label_free": Case("No labels are asked for @: u and how often both models agree show", status(state="label_free")),
    "label_starvation: stale": Case("No requested label has come in … @", status(state="stale")),
    "held": Case("held by ada @", status(state="pinned", commands=held("activate")), act=f"{CONFIRM}unpin"),
    "held: paused": Case(
        "New versions are held back by ada @", status(state="paused", commands=held("pause")), act=f"{CONFIRM}resume"
    ),
}


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES)
def test_each_state_has_its_sentence(name: str, case: Case) -> None:
    """The sentence names what is wrong, since when and its cost; the act leads where it can be mended."""
    found, kind = headline(case.status, case.around), name.partition(":")[0]

    assert (found.kind, found.severity) == (kind, TONES.get(kind, "bad"))
    for words in case.says.replace("@", "since 01 Mar 10:00 UTC").split(" … "):
        assert words in found.sentence
    act = LINKS.get(kind, "") if case.act is None else case.act
    assert (found.link.href.removeprefix("/workloads/photo") if found.link else "") == act
    assert bool(found.act) == (found.kind != "well")


def kind_of(around: Facts | None = None, **changes: Any) -> str:
    """Which kind of headline a workload has with these parts changed."""
    return headline(status(**changes), around or facts()).kind


def test_a_rollback_was_offered_to_a_version_made_in_doubt() -> None:
    """To one made of the labels or answers in question, or while they still are in question."""
    dear = status(frontier=curve(0.4), version=DEAR)
    doubts = ({"drift": alarmed("agreement", state="suspected")}, {"details": {"label_audit": {"suspected": "x"}}})
    assert "Roll back" not in headline(dear, facts()).act
    assert "roll back" in headline(dear, facts(may_return=True)).act
    for doubt in doubts:
        said = headline(dear.model_copy(update=doubt), facts(may_return=True))
        assert (said.kind, said.act[:36]) == ("escalation_jump", "Change no target and no version befo")
        assert said.link is not None
        assert "confirm" not in said.link.href


def test_the_headline_quotes_what_was_paid_not_a_forecast() -> None:
    """It said that a query "costs 2.55 now" where 3.66 was paid."""
    paid = status(cost=CostRate(sequential=3.66, paper=3.0, large_only=4.0), frontier=curve(0.2))
    assert "a query has cost 3.66" in headline(paid, facts()).sentence


def test_token_prices_are_not_called_small_calls() -> None:
    in_tokens = SETTINGS.model_copy(update={"cost": ModelCosts(unit="token", small=0.1, large=0.3)})
    dear = status(frontier=curve(0.994), cost=CostRate(sequential=1.45, paper=1.3, large_only=3.0))
    said = headline(dear, facts(workload=in_tokens)).sentence

    assert "by it a query costs 3.98 at token prices, against 3, because" in said
    assert "small calls" not in said


def test_the_version_describes_itself_where_the_window_cannot() -> None:
    """Without a frontier what the version was expected to do stands for what it does, not what others did before it."""
    then = expected_cost(COSTS, 0.994)
    known = facts(expected_rate=0.994, expected_cost=then)

    assert in_force(status(frontier=None), known) == (0.994, then.sequential)
    assert headline(status(frontier=None), known).kind == "dear"


@given(any_of(WorkloadStatus))
def test_any_status_has_one_sentence(drawn: WorkloadStatus) -> None:
    """Whatever a fit of another release writes, the page has something to say and an address on this site."""
    found = headline(drawn, facts())

    assert isinstance(found, Headline)
    assert found.sentence.endswith(".")
    assert found.link is None or found.link.href.startswith("/")


def test_a_router_that_has_just_begun_is_not_called_unready() -> None:
    """Each start of the only router stood as "No router is ready" for a minute."""
    waiting = (router().model_copy(update={"ready": False}),)
    for seconds, kind in ((3, "well"), (11, "routers_not_ready")):
        begun = router_status().model_copy(update={"started_at": NOW - timedelta(seconds=seconds)})
        assert kind_of(facts(routers=(begun,)), routers=waiting) == kind


def test_a_server_that_refuses_everybody_is_to_be_corrected() -> None:
    """To restore it, as after an outage, would help nobody."""
    found = headline(status(routers=(router(large=UP, small=REFUSING),)), facts())
    assert found.act.startswith("Correct the workload's settings or the server")


def test_calls_that_fail_of_overload_are_no_outage() -> None:
    """A slow large model was first called overloaded and then, by the calls that timed out, to be restored."""
    failing = OutageStatus(large_failing=0.22)
    assert kind_of(routers=(router(large=BUSY),), outage=failing) == "overload"
    assert kind_of(routers=(router(large=UP, small=BUSY),), outage=failing) == "outage"
    assert kind_of(routers=(router("a", large=DOWN), router("b", large=BUSY)), outage=failing) == "outage"


def heard_at(age_s: float, kafka_age_s: float = 0.0) -> tuple[WorkloadStatus, Facts]:
    """Everybody has reported so long ago, and Kafka was heard so long ago; queries wait."""
    heard, kafka = NOW - timedelta(seconds=age_s), Heard(NOW - timedelta(seconds=kafka_age_s), BEGAN, is_away=False)
    around = facts(recalibrators=(recalibrator(heard),), routers=(router_status(heard=heard),), kafka=kafka)
    return status(updated_at=heard, routers=()), around


def test_lost_routers_were_named_after_half_a_minute() -> None:
    """Reports come every 2 s: by 10 s several in a row are missing."""
    lost, around = heard_at(8.5)
    assert headline(lost, around._replace(recalibrators=(recalibrator(),))).kind == "routers_silent"
    assert headline(lost, around).kind == "fit_silent"
    assert headline(*heard_at(7.0)).kind == "well"


def test_kafka_that_pauses_looked_like_lost_routers() -> None:
    """Before Kafka counts as away, everybody else is silent for as long as it is."""
    assert headline(*heard_at(9.5, kafka_age_s=9.0)).kind == "well"


def test_routers_that_answer_were_called_gone() -> None:
    """A leader that fails holds back reports for 10 s, while queries on other partitions are answered."""
    for seconds, kind in ((12.0, "well"), (31.0, "routers_silent")):
        late, around = heard_at(seconds)
        around = around._replace(recalibrators=(recalibrator(),), last_query_at=NOW - timedelta(seconds=1))
        assert headline(late, around).kind == kind


def test_a_symptom_was_named_before_its_cause() -> None:
    """Within a minute of the first alarm mostly a cause shows; until then a doubt is all that is known."""
    for age_s, kind in ((30.0, "suspected"), (90.0, "dear")):
        told = alarmed("label_residual", state="suspected", since=NOW - timedelta(seconds=age_s))
        assert kind_of(frontier=curve(0.994), drift=told) == kind


def test_a_jump_was_named_before_the_large_model_was() -> None:
    """By labels alone no alarm is raised; versions escalate more some seconds before the model is named."""
    for rate, late in ((0.4, "escalation_jump"), (0.994, "dear")):
        for age_s, kind in ((30.0, "well"), (90.0, late)):
            around = facts(jumped_since=NOW - timedelta(seconds=age_s))
            assert kind_of(around, frontier=curve(rate), escalation_rate=0.2) == kind
    # The higher cost still names the model at once.
    worse = large_changed("10:00", changed((0.27, 0.28), (0.1, 0.4)))
    around = facts(jumped_since=NOW - timedelta(seconds=30))
    assert kind_of(around, frontier=curve(0.994), escalation_rate=0.2, details=worse) == "large_worse"


def test_an_alarm_changed_the_headline_before_its_cause_did() -> None:
    """That something is suspected, that something has changed, and what: three headlines within 22 s."""
    for age_s, kind in ((30.0, "suspected"), (90.0, "drift")):
        assert kind_of(drift=alarmed("label_residual", since=NOW - timedelta(seconds=age_s))) == kind


def test_lower_the_target_was_said_where_a_model_got_worse() -> None:
    """Within the hour something else has changed; notices and `doctor`, which know no history, say so as the page."""
    said = [headline(status(state="infeasible", details=told), Facts(NOW)).act for told in ({}, JUST_MISSED, MISSED)]
    assert [act.partition(" ")[0] for act in said] == ["Change", "Change", "Lower"]


def test_the_large_model_was_blamed_for_careless_labels() -> None:
    """A few labels show the large model's errors first, of which there were hardly any; the small one's are as many."""
    for labels, kind in ((60, "drift"), (400, "large_worse")):
        told = large_changed("11:30", changed((0.3, 0.33), (0.03, 0.18), labels))
        assert kind_of(drift=alarmed("label_residual"), details=told) == kind


def test_a_large_model_clearly_worse_waited_for_a_symptom() -> None:
    """Of late; what has been so for hours has shown in all there is to show."""
    for since, kind in (("11:30", "large_worse"), ("10:00", "well")):
        assert kind_of(details=large_changed(since, changed((0.27, 0.28), (0.1, 0.4)))) == kind


def test_the_small_model_was_blamed_for_careless_labels() -> None:
    """While labels alone call its answers wrong, and too few tell of the large one."""
    told = changed((0.3, 0.6), (0.03, 0.4))
    told["outcomes_changed"]["large"] = [0.03, 300, 0.4, 20]
    for name, kind in (("label_residual", "drift"), ("agreement", "small_worse")):
        assert kind_of(drift=alarmed(name), details=told) == kind


def large_changed(since: str, told: dict[str, Any]) -> dict[str, Any]:
    """What labels alone say of the large model, since an hour of the day."""
    return {"large_changed": told["outcomes_changed"] | {"since": f"2026-03-01T{since}:00+00:00"}}
