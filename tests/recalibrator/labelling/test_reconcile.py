"""Whatever was delivered, missed, repeated or deleted, one round makes topic and annotations agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recalibrator.join.query_state import NOTHING_KNOWN, take_feedback
from recalibrator.labelling.label_studio import SOURCE, LabelStudioReader, RecentAnnotations
from recalibrator.labelling.label_tool import AnnotationKey, Task
from recalibrator.labelling.reconcile import Author, Plan, Sent, note_sent, plan
from schemas.event import rfc3339
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from tests.support.recalibrator_events import routed

PROJECT = 2
NOW = datetime(2026, 3, 1, tzinfo=UTC)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
QUERIES = ("q-1", "q-2")


def annotation(number: int, author: int, second: float, value: str | None) -> dict[str, Any]:
    """An annotation as Label Studio lists it; no value is a skip."""
    areas = [{"from_name": "camera", "type": "textarea", "value": {"text": [value]}}] if value else []
    times = dict.fromkeys(("created_at", "updated_at"), rfc3339(LONG_AGO + timedelta(seconds=second)))
    said = {"was_cancelled": value is None, "result": areas}
    return {"id": number, "project": PROJECT, "completed_by": author, **times, **said}


def document(number: int, query_id: str, *annotations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    times = dict.fromkeys(("created_at", "updated_at"), rfc3339(LONG_AGO))
    listed = {"annotations": list(annotations), "drafts": []}
    return {"id": number, "data": {"query_id": query_id, "text": "t"}, **listed, **times, **changes}


def read_task(listed: dict[str, Any]) -> Task:
    return LabelStudioReader(PROJECT).task(listed)


def event_of(content: dict[str, Any], query_id: str) -> FeedbackEvent:
    (one,) = read_task(document(1, query_id, content)).annotations
    return one.event


def make_plan(
    documents: list[dict[str, Any]],
    sent: dict[Author, Sent] | None = None,
    requests: tuple[LabelRequested, ...] = (),
    forgotten_before: datetime = LONG_AGO,
    most: int = 9,
) -> Plan:
    tasks, bounds = [read_task(one) for one in documents], {"over_before": NOW, "forgotten_before": forgotten_before}
    return plan(requests, tasks, sent or {}, most=most, now=NOW, **bounds)


def request(number: int) -> LabelRequested:
    return LabelRequested.from_result(routed(number))


def told(*contents: dict[str, Any]) -> dict[Author, Sent]:
    """What was sent of these annotations of the first query."""
    sent: dict[Author, Sent] = {}
    for content in contents:
        note_sent(sent, event_of(content, "q-1"), SOURCE, str(PROJECT))
    return sent


# --- labels ---


@dataclass
class World:
    """Label Studio, the receiver and the topic between them."""

    annotations: dict[int, tuple[str, int, dict[str, Any]]] = field(default_factory=dict)
    topic: list[FeedbackEvent] = field(default_factory=list)
    recent: RecentAnnotations = field(default_factory=RecentAnnotations)
    second: float = 0
    made: int = 0

    def submit(self, query: str, author: int, value: str | None, delivered: bool, number: int | None = None) -> None:
        # Several changes within a second share a revision.
        self.second += 0.25
        if number is None:
            self.made += 1
            number = self.made
        content = annotation(number, author, self.second, value)
        self.annotations[number] = (query, author, content)
        if delivered:
            event = event_of(content, query)
            self.topic.append(event)
            self.recent.remember(event)

    def change(self, which: int, value: str | None, delivered: bool) -> None:
        if self.annotations:
            number = sorted(self.annotations)[which % len(self.annotations)]
            query, author, _ = self.annotations[number]
            self.submit(query, author, value, delivered, number)

    def delete(self, which: int, delivered: bool) -> None:
        if not self.annotations:
            return
        number = sorted(self.annotations)[which % len(self.annotations)]
        del self.annotations[number]
        event = self.recent.retraction(AnnotationKey(str(PROJECT), str(number)), NOW)
        if delivered and event is not None:
            self.topic.append(event)
            self.recent.forget(event)

    def sync(self) -> int:
        sent: dict[Author, Sent] = {}
        for event in self.topic:
            note_sent(sent, event, SOURCE, str(PROJECT))
        documents = [
            document(index, query, *(content for q, _, content in self.annotations.values() if q == query))
            for index, query in enumerate(QUERIES)
        ]
        todo = make_plan(documents, sent)
        gone = [event for key, event in todo.if_gone if int(key.annotation) not in self.annotations]
        self.topic += [*todo.send, *gone]
        return len(todo.send) + len(gone)

    def labels(self) -> dict[tuple[str, str | None], Any]:
        """What the join holds of each author and query."""
        found: dict[tuple[str, str | None], Any] = {}
        for query in QUERIES:
            state = NOTHING_KNOWN
            for event in self.topic:
                if event.query_id == query:
                    state = take_feedback(state, event, NOW, {}).state
            found |= {(query, one.labeler): (one.entities, one.skipped) for one in state.opinions}
        return {author: said for author, said in found.items() if said != (None, False)}

    def meant(self) -> dict[tuple[str, str | None], Any]:
        """What each author's last annotation of each query says."""
        last: dict[tuple[str, str | None], Any] = {}
        by_time = sorted(self.annotations.values(), key=lambda one: datetime.fromisoformat(one[2]["updated_at"]))
        for query, author, content in by_time:
            event = event_of(content, query)
            last[query, f"label-studio:{author}"] = (event.entities, event.entities is None)
        return last


values = st.sampled_from(["canon", "nikon", None])
steps = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(QUERIES), st.integers(1, 2), values, st.booleans()),
    st.tuples(st.just("change"), st.integers(0, 5), values, st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("sync")),
    st.tuples(st.just("restart")),
)


@settings(max_examples=300)
@given(st.lists(steps, min_size=2, max_size=25))
def test_after_a_round_the_join_holds_each_authors_last_word(history: list[tuple[Any, ...]]) -> None:
    world = World()
    for step, *arguments in history:
        if step == "restart":
            world.recent = RecentAnnotations()
        else:
            getattr(world, step)(*arguments)
    world.sync()
    assert world.labels() == world.meant()
    assert world.sync() == 0


def test_a_listing_from_before_a_correction_takes_nothing_back() -> None:
    """That the hook sent meanwhile, within the same second."""
    sent = told(annotation(7, 1, 5.25, "canon"), annotation(7, 1, 5.5, "nikon"))
    assert make_plan([document(1, "q-1", annotation(7, 1, 5.25, "canon"))], sent).send == ()


def test_a_task_deleted_whole_leaves_its_labels_standing() -> None:
    todo = make_plan([document(1, "q-2")], told(annotation(7, 1, 5, "canon")))
    assert (todo.send, todo.if_gone) == ((), ())


def test_what_was_told_of_another_project_is_left_alone() -> None:
    assert told(annotation(7, 1, 5, "canon") | {"project": 3}) == {}


def test_a_label_of_a_forgotten_query_is_not_sent_again() -> None:
    documents = [document(1, "q-1", annotation(7, 1, 5, "canon"))]
    assert [len(make_plan(documents, forgotten_before=LONG_AGO + timedelta(seconds=s)).send) for s in (5, 6)] == [1, 0]


def test_an_unreadable_annotation_is_reported_not_retracted() -> None:
    broken = annotation(7, 1, 5, "canon") | {"result": [{"value": {"labels": ["camera"]}}]}
    task = read_task(document(4, "q-1", broken))
    assert (task.annotations, task.is_untouched) == ((), False)
    assert task.faults[0].startswith("task 4, annotation 7: annotation.result.0.value.text: is required")


def test_a_task_that_people_made_themselves_is_none_of_ours() -> None:
    for data in ({}, {"query_id": 5}, {"query_id": ""}, None, "text"):
        foreign = read_task(document(1, "q-1", annotation(7, 1, 5, "canon"), data=data))
        assert (foreign.query_id, foreign.annotations, foreign.faults) == (None, (), ())


# --- tasks ---


def test_no_more_are_pushed_than_may_wait() -> None:
    fresh = {"created_at": rfc3339(NOW)}
    documents = [document(1, "q-8", **fresh), document(2, "q-9"), document(3, "q-7", annotation(7, 1, 5, "canon"))]
    wanted = tuple(request(number) for number in (3, 2, 1))
    todo = make_plan(documents, requests=wanted, most=3)
    assert ([one.query_id for one in todo.push], todo.remove) == (["q-3", "q-2"], ("2",))
    assert make_plan(documents, requests=wanted, most=1).push == ()


def test_only_old_untouched_tasks_leave_with_their_request() -> None:
    documents = [
        document(1, "q-1"),
        document(2, "q-2", annotation(7, 1, 5, None)),
        document(3, "q-3", drafts=[{"id": 1}]),
        document(4, "q-4", created_at=rfc3339(NOW)),
        document(5, "q-5"),
    ]
    assert make_plan(documents, requests=(request(5),)).remove == ("1",)


def test_the_untouched_double_of_a_task_leaves_at_once() -> None:
    fresh = rfc3339(NOW)
    labelled = document(4, "q-2", annotation(7, 1, 5, "canon"), created_at=fresh)
    doubles = [document(2, "q-1", created_at=fresh), document(3, "q-2", created_at=fresh)]
    # A page of the listing may come again.
    documents = [document(1, "q-1"), document(1, "q-1"), *doubles, labelled]
    assert make_plan(documents, requests=(request(1), request(2))).remove == ("2", "3")
