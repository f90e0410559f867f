"""SIGHUP on real processes: what may change does, the rest is named, and a wrong file changes nothing."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from schemas.labelled import LabelledExample
from tests.support.broker import coming, produce, unique_prefix
from tests.support.probes import asked
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.routers import create_topics, query, value_of
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.broker]

READ, REFUSED = "configuration read anew", "configuration not taken over; the running one stays"
KEY = "adas-key-01234567"
LABELS = 400


async def hang_up(process: RouterProcess, event: str, times: int = 1) -> dict[str, Any]:
    process.running.send_signal(signal.SIGHUP)
    return await process.until_logged(event, times)


async def next_event(messages: Iterator[Message], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    found = (json.loads(value_of(message)) for message in messages)
    return await asyncio.to_thread(next, filter(wanted, found))


def edit(config: Path, *pairs: tuple[str, str]) -> None:
    text = config.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)


async def test_a_router_goes_by_the_new_file_without_a_restart(
    broker: LocalBroker, tmp_path: Path, start: Callable[..., None]
) -> None:
    """A query before and one after SIGHUP differ in their cost; a file with a fault leaves all as it was."""
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix, 1)
    async with hashed_models() as (url, _models):
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, url, max_in_flight=8)
        router = RouterProcess(config, "router-0", tmp_path / "router.log", forked=True)
        start(router)

        async def cost_of(query_id: str) -> float:
            produce(broker.bootstrap, f"{prefix}.queries", [query(query_id)])
            found = await next_event(results, lambda result: result["query_id"] == query_id)
            return float(found["cost"]["sequential"])

        with closing(coming(broker.bootstrap, f"{prefix}.results")) as results:
            assert await cost_of("before") == 4.0
            edit(config, ("large = 3.0", "large = 9.0"), ("max_in_flight = 8", "max_in_flight = 1"))
            edit(config, ('"lens"]', '"lens", "iso"]'))
            said = await hang_up(router, READ)
            assert said["applied"] == ["router.max_in_flight", "workloads.photo.cost"]
            assert said["need_restart"] == ["workloads.photo.fields"]
            assert await cost_of("after") == 10.0

            edit(config, ("micro_f1 = 0.9", "micro_f1 = 9"), ("large = 9.0", "large = 5.0"))
            (fault,) = (await hang_up(router, REFUSED))["faults"]
            assert fault.startswith("workloads.photo.target.micro_f1: ")
            assert await cost_of("with a fault in the file") == 10.0

            config.unlink()
            (missing,) = (await hang_up(router, REFUSED, times=2))["faults"]
            assert "cannot be read" in missing
            assert await cost_of("without a file") == 10.0
            router.terminate()
            assert await router.exit_code() == 0


async def test_a_recalibrator_refits_to_a_new_target_without_a_restart(
    broker: LocalBroker, tmp_path: Path, start: Callable[..., None]
) -> None:
    """The version that follows SIGHUP carries the target of the file, and the API asks for the file's keys."""
    prefix = unique_prefix()
    create_all_topics(broker.bootstrap, prefix, 1)
    port = pick_port()
    url = f"http://127.0.0.1:{port}/v1/status"
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, tmp_path / "state", port)
    recalibrator = RecalibratorProcess(config, "", tmp_path / "log", stages=("join", "fit", "api"), forked=True)
    start(recalibrator)

    def label(*numbers: int) -> None:
        examples = (LabelledExample.from_events(routed(number), feedback(number)) for number in numbers)
        produce(broker.bootstrap, f"{prefix}.observations", [("photo", one.to_json()) for one in examples])

    def code(key: str = "") -> int:
        return asked(url, {"X-Api-Key": key} if key else {}, 30.0)[0]

    with closing(coming(broker.bootstrap, f"{prefix}.calibration")) as versions:
        label(*range(LABELS))
        first = await next_event(versions, lambda _: True)
        assert first["target"]["micro_f1"] == 0.9
        await eventually(code, lambda found: found == 200)

        keys = f'[recalibrator.api_keys.ada]\nkey = "{KEY}"\nscopes = ["read"]\n[workloads.photo]'
        edit(config, ("micro_f1 = 0.9", "micro_f1 = 0.8"), ("[workloads.photo]", keys))
        edit(config, ("join_retention_s = 86400.0", "join_retention_s = 96400.0"))
        said = await hang_up(recalibrator, READ)
        assert said["applied"] == ["recalibrator.api_keys", "workloads.photo.target"]
        assert said["need_restart"] == ["recalibrator.join_retention_s"]
        label(LABELS)
        renewed = await next_event(versions, lambda version: version["target"]["micro_f1"] == 0.8)
        assert renewed["evidence"]["trigger"] == "settings_changed"
        assert renewed["evidence"]["labels"] >= first["evidence"]["labels"]
        await eventually(code, lambda found: found == 401)
        assert code(KEY) == 200

        edit(config, (KEY, "short"))
        (fault,) = (await hang_up(recalibrator, REFUSED))["faults"]
        assert "16 characters" in fault
        assert (code(), code(KEY)) == (401, 200)
        recalibrator.terminate()
        assert await recalibrator.exit_code() == 0
