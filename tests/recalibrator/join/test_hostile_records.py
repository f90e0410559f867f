"""Whatever valid results and labels say, the join neither raises nor writes what the fit could not read."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalibrator.decoding import decode_observation
from recalibrator.join.home_inputs import Uncommitted
from recalibrator.join.joining import Event, Joining, JoinTopics
from recalibrator.join.query_state import NOTHING_KNOWN, QueryState
from schemas import ModelRun
from schemas.errors import DecodeError
from schemas.event import MAX_INTEGER, MAX_RECORD_BYTES
from schemas.routed import RoutedEvent
from tests.support.recalibrator_events import FIELDS, PHOTO, START
from tests.support.strategies import any_of, counts, feedback_events, routed_events, texts
from ucci_runtime.broker.records import Input, Record

NOW_MS = int(START.timestamp() * 1_000)
TOPICS = JoinTopics("results", "feedback", "repartition", "observations", "dead-letters", "label-requests")
WORKLOADS = {PHOTO.name: PHOTO}
JOINING = Joining(WORKLOADS, TOPICS, MAX_RECORD_BYTES)
IDS = ("q-1", "q-2")

answers = st.none() | st.dictionaries(
    st.sampled_from(FIELDS), st.none() | texts | st.lists(texts, max_size=2).map(tuple)
)
runs = any_of(ModelRun, valid=True, entities=answers, completion_tokens=st.just(MAX_INTEGER) | counts)
queries = st.sampled_from(IDS)
results = routed_events(workload=PHOTO.name, query_id=queries) | routed_events(
    workload=PHOTO.name, query_id=queries, small=runs, large=runs
)
labels = st.builds(
    lambda label, query_id: label.model_copy(update={"query_id": query_id, "workload": None}),
    feedback_events(),
    queries,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(results | labels, max_size=8))
def test_no_valid_event_breaks_the_join(events: list[Event]) -> None:
    states: dict[str, QueryState] = defaultdict(lambda: NOTHING_KNOWN)
    uncommitted, outputs = Uncommitted(), list[Any]()
    for offset, sent in enumerate(events):
        topic = TOPICS.results if isinstance(sent, RoutedEvent) else TOPICS.feedback
        record = Record(Input(topic, 0), offset, sent.query_id.encode(), sent.to_json(), NOW_MS)
        arrived = JOINING.read(record)
        if isinstance(arrived.event, DecodeError):
            outputs.append(JOINING.dead_letter(record, arrived.event.reason, str(arrived.event))[0])
            continue
        query_id = arrived.event.query_id
        found = JOINING.join(states[query_id], arrived, NOW_MS, is_live=True)
        states[query_id] = found.state
        outputs += found.outputs
        if found.traffic is not None:
            uncommitted.count_traffic(found.traffic, PHOTO)
    outputs += JOINING.summary_records(uncommitted.summaries())
    for output in outputs:
        if output.topic == TOPICS.observations:
            decode_observation(output.value, WORKLOADS)
