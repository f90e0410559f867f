"""Trials from the command to the result, on a real broker with real processes: router, join and fit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from schemas.calibration import CalibrationMap, CalibrationVersion
from schemas.command import Command
from schemas.routed import RoutedEvent
from schemas.status import WorkloadStatus
from schemas.trial import CalibrationTrial, TrialStatus
from tests.support.broker import documents, produce, read_all, unique_prefix
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.routers import query, value_of
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MAP = CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.9))
STRICT, LOOSE = 0.2, 0.6
SHARE = 0.3
QUERIES = 400
SIGMAS = 4.0


@dataclass
class Live:
    """The running service, and what a test asks of its topics."""

    bootstrap: str
    prefix: str
    router: RouterProcess
    sent: int = 0

    def command(self, action: str, **arguments: Any) -> None:
        content = {"workload": "photo", "issued_by": "test", "issued_at": datetime.now(UTC), "action": action}
        value = Command.model_validate(content | arguments).to_json()
        produce(self.bootstrap, f"{self.prefix}.observations", [("photo", value)])

    def versions(self) -> dict[int, CalibrationVersion]:
        """Every version made, by number; those on trial included."""
        found = read_all(self.bootstrap, f"{self.prefix}.calibration-history")
        return {v.version: v for v in (CalibrationVersion.from_json(value_of(message)) for message in found)}

    def trial(self) -> CalibrationTrial | None:
        last = read_all(self.bootstrap, f"{self.prefix}.calibration-trial")[-1].value()
        return None if last is None else CalibrationTrial.from_json(last)

    async def until_router_has(self, version: int, trial: int | None) -> None:

        def in_use() -> tuple[object, object]:
            found = documents(self.bootstrap, f"{self.prefix}.routers")
            used = found[-1]["versions"]["photo"] if found else {}
            return used.get("version"), used.get("trial")

        await eventually(in_use, lambda used: used == (version, trial))

    def results(self, ids: Collection[str]) -> list[RoutedEvent]:
        found = (RoutedEvent.from_json(value_of(each)) for each in read_all(self.bootstrap, f"{self.prefix}.results"))
        return [event for event in found if event.query_id in ids]

    async def route(self) -> list[RoutedEvent]:
        ids = {f"q-{n}" for n in range(self.sent, self.sent + QUERIES)}
        self.sent += QUERIES
        produce(self.bootstrap, f"{self.prefix}.queries", [query(query_id, query_id) for query_id in sorted(ids)])
        return await eventually(lambda: self.results(ids), lambda mine: len(mine) >= QUERIES)

    async def compared(self, queries: int) -> TrialStatus:
        """Wait until the status compares so many queries of the trial under way."""

        def trial() -> TrialStatus | None:
            found = read_all(self.bootstrap, f"{self.prefix}.status")
            return WorkloadStatus.from_json(value_of(found[-1])).trial

        found = await eventually(trial, lambda said: said is not None and said.compared == queries)
        assert found is not None
        return found


@asynccontextmanager
async def service(broker: LocalBroker, directory: Path) -> AsyncIterator[Live]:
    prefix = unique_prefix()
    create_all_topics(broker.bootstrap, prefix)
    async with hashed_models() as (models, _):
        more = ["[recalibrator]", f'state_dir = "{directory / "state"}"', "http_port = 0"]
        config = write_config(directory / "ucci.toml", broker.bootstrap, prefix, models, more)
        router = RouterProcess(config, "router-0", directory / "router.log", forked=True)
        recalibrator = RecalibratorProcess(config, "recalibrator", directory / "recalibrator.log", forked=True)
        with router, recalibrator:
            yield Live(broker.bootstrap, prefix, router)


async def test_trial_goes_from_shadow_to_canary_to_promotion(broker: LocalBroker, tmp_path: Path) -> None:
    """A version is tried in shadow, then as a canary, then promoted."""
    async with service(broker, tmp_path) as live:
        live.command("pause")  # labels are not what this is about
        live.command("bootstrap", map=MAP, uncertainty_threshold=STRICT)
        live.command("bootstrap", map=MAP, uncertainty_threshold=LOOSE)
        live.command("shadow", version=1, reason="would the strict one pay?")
        await live.until_router_has(2, 3)
        versions = live.versions()
        shadowed = await live.route()
        for event in shadowed:
            decision, told = event.decision, event.decision.trial
            assert told is not None
            assert (decision.calibration_version, told.version, told.acted) == (2, 3, False)
            assert decision.model_copy(update={"trial": None}) == versions[2].decide(
                decision.uncertainty, event.query_id
            )
            assert told.escalated is versions[3].decide(decision.uncertainty, event.query_id).escalated
            assert (event.large is not None) is told.base_escalated
        stricter = sum(e.decision.trial.escalated and not e.decision.escalated for e in shadowed if e.decision.trial)
        assert stricter > QUERIES / 10
        said = await live.compared(QUERIES)
        assert said.agreement == pytest.approx(1.0 - stricter / QUERIES)
        assert (said.trial.queries, said.base.queries) == (0, QUERIES)

        live.command("canary", version=1, share=SHARE)
        await live.until_router_has(2, 4)
        versions = live.versions()
        routed = await live.route()
        acted = [event for event in routed if event.decision.trial is not None and event.decision.trial.acted]
        assert abs(len(acted) - SHARE * QUERIES) <= SIGMAS * sqrt(QUERIES * SHARE * (1.0 - SHARE))
        for event in routed:
            assert event.decision.trial is not None
            by = versions[4 if event.decision.trial.acted else 2]
            decided = by.decide(event.decision.uncertainty, event.query_id)
            assert event.decision.model_copy(update={"trial": None}) == decided
            assert event.label.probability == by.request_label(decided, event.query_id).probability
            assert (event.large is not None) is decided.escalated
        assert (await live.compared(QUERIES)).trial.queries == len(acted)

        live.router.kill()
        live.router.start()
        await live.until_router_has(2, 4)

        live.command("promote")
        await live.until_router_has(5, None)
        promoted = live.versions()[5]
        assert (promoted.uncertainty_threshold, promoted.evidence.trigger) == (STRICT, "promote")
        in_force = read_all(broker.bootstrap, f"{live.prefix}.calibration")
        assert [CalibrationVersion.from_json(value_of(message)).version for message in in_force] == [1, 2, 5]
        assert live.trial() is None
        assert {event.decision.calibration_version for event in await live.route()} == {5}
