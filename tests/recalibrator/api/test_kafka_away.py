"""Kafka stops answering: page, status and metrics say so, and nothing on them asks for a restart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from schemas.calibration import Target
from schemas.status import WorkloadStatus
from tests.support.api import START, WORKLOAD, Api, make_api, plain_router


@pytest.fixture
def silenced() -> Api:
    """An API whose services were well until Kafka, a minute ago, stopped answering."""
    api = make_api()
    status = WorkloadStatus.cold_start(WORKLOAD, Target(micro_f1=0.9)).model_copy(update={"updated_at": START})
    api.tell(status, plain_router("router-1"))
    api.clock.advance(60.0)
    api.kafka.append(api.kafka[0]._replace(is_away=True))
    return api


def test_services_were_called_silent_as_kafka_came_back(silenced: Api) -> None:
    """Their reports take some seconds; what has not been said since Kafka answers again is no silence."""
    silenced.client.get("/")
    silenced.kafka.append(silenced.kafka[0]._replace(at=silenced.clock.now(), since=silenced.clock.now()))
    silenced.clock.advance(5.0)
    page = silenced.client.get("/").text

    assert "has not answered since 01 Jan 00:00:00 UTC: this is over since 00:01:05 UTC" in page
    assert "ucci_kafka_contact_timestamp_seconds 1.76722566e+09" in silenced.client.get("/metrics").text
    silenced.clock.advance(60.0)
    assert "silent" in silenced.client.get("/").text


def test_a_page_that_waits_for_records_learns_that_none_come(silenced: Api) -> None:
    with silenced.client.stream("GET", "/v1/stream") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data:"))
        first = int(next(lines).partition(":")[2])
        silenced.kafka.append(silenced.kafka[0]._replace(at=START + timedelta(minutes=2)))
        assert int(next(lines).partition(":")[2]) != first
