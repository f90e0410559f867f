"""Large only from the command to the result, on a real broker with real processes, through a kill of the router."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from schemas.draws import uniform
from tests.recovery.test_trial import MAP, QUERIES, STRICT, service
from tests.support.broker import produce
from tests.support.routers import query
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


async def test_large_alone_answers_until_told_otherwise(broker: LocalBroker, tmp_path: Path) -> None:
    """The router really leaves the small call out, but for the drawn share; a kill in between changes no result."""
    async with service(broker, tmp_path) as live:
        live.command("bootstrap", map=MAP, uncertainty_threshold=STRICT)
        until = datetime.now(UTC) + timedelta(hours=1)
        live.command("large_only", until=until)
        await live.until_router_has(2, None)
        alone = live.versions()[2].large_only
        assert alone is not None
        share = alone.small_probability
        ids = [f"k-{n}" for n in range(QUERIES)]
        produce(broker.bootstrap, f"{live.prefix}.queries", [query(one, one) for one in ids[: QUERIES // 2]])
        live.router.kill()
        live.router.start()
        produce(broker.bootstrap, f"{live.prefix}.queries", [query(one, one) for one in ids[QUERIES // 2 :]])
        found = await eventually(lambda: live.results(ids), lambda results: len(results) >= QUERIES)
        assert Counter(event.query_id for event in found) == Counter(ids)
        for event in found:
            is_asked = uniform(event.query_id, "photo") < share
            assert (event.answered_by, event.decision.reason) == ("large", "large_only")
            assert (event.small is not None) is is_asked
            assert event.cost.sequential == pytest.approx(event.cost.paper + (1.0 if is_asked else 0.0))
            assert (event.decision.large_probability, event.decision.small_probability) == (1.0, share)
            assert not event.label.requested or is_asked
        assert 0 < sum(event.small is not None for event in found) < QUERIES / 2

        live.command("end_large_only")
        await live.until_router_has(3, None)
        assert {event.decision.reason for event in await live.route()} <= {"threshold", "kept", "exploration"}
        assert all(event.small is not None for event in await live.route())
