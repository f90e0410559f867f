"""How long queries wait while routers come and go, and how long a recalibrator takes to work again.

Routers: two processes on a real broker, scripted model servers that answer within 50 ms, 50 queries a second. One
router is stopped (SIGTERM) and started again, or killed and left. Given is the longest time from sending a query to
reading its result, over all queries sent from the act until 25 s after it; and that before any act.

Recalibrator: killed and started again, with its state directory and without; the time from the start until both stages
have their partitions.

    python -m benchmarks.handover --json handover.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Producer

from benchmarks.results_json import tell
from tests.support.broker import follow, key_of, unique_prefix
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics
from tests.support.router_processes import RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import create_topics, query
from ucci_stream.local.kafka_node import LocalBroker

PARTITIONS = 6
PERIOD_S = 0.02
WATCHED_S = 25.0
DEADLINE_S = 60.0
STAGES = 2


class Load:
    """Sends queries at a steady pace and notes when the result of each is read.

    Parameters
    ----------
    bootstrap, prefix : str
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._topic = f"{prefix}.queries"
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._consumer = follow(bootstrap, f"{prefix}.results")
        self._sent_s: dict[str, float] = {}
        self._read_s: dict[str, float] = {}
        self._ending = Event()
        self._threads = [Thread(target=each, daemon=True) for each in (self._send, self._read)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def longest_wait(self, since_s: float, until_s: float) -> float:
        """Wait for the results of all queries sent within a time; return the longest wait in seconds."""
        within = {name: at_s for name, at_s in list(self._sent_s.items()) if since_s <= at_s < until_s}
        deadline_s = time.monotonic() + DEADLINE_S
        while within.keys() - self._read_s.keys():
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{len(within.keys() - self._read_s.keys())} of {len(within)} queries have no result"
                )
            time.sleep(PERIOD_S)
        return max(self._read_s[name] - at_s for name, at_s in within.items())

    def _send(self) -> None:
        number = 0
        while not self._ending.wait(PERIOD_S):
            name, value = query(f"q{number}", f"photo {number}")
            self._sent_s[name] = time.monotonic()
            self._producer.produce(self._topic, value, name)
            self._producer.poll(0)
            number += 1
        self._producer.flush(DEADLINE_S)

    def _read(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(1_000, PERIOD_S):
                if message.error() is None:
                    self._read_s[key_of(message)] = time.monotonic()


async def routers(broker: LocalBroker, directory: Path, rounds: int) -> dict[str, list[float]]:
    """Return the longest waits, by what was done to a router."""
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix, PARTITIONS)
    publish_calibration(broker.bootstrap, prefix)
    found: dict[str, list[float]] = {"nothing": [], "stopped": [], "started_again": [], "killed": []}
    async with hashed_models() as (models, _):
        config = write_config(directory / "ucci.toml", broker.bootstrap, prefix, models)
        pair = [RouterProcess(config, f"router-{n}", directory / f"router-{n}.log") for n in range(2)]
        load = Load(broker.bootstrap, prefix)
        for router in pair:
            router.start()
            await router.until_logged("assigned")
        load.start()
        try:
            await _worst(load, lambda: None, WATCHED_S / 5)
            for _ in range(rounds):
                found["nothing"].append(await _worst(load, lambda: None, WATCHED_S / 5))
                found["stopped"].append(await _worst(load, pair[0].terminate))
                await pair[0].exit_code()
                found["started_again"].append(await _worst(load, pair[0].start))
                found["killed"].append(await _worst(load, pair[0].kill))
                pair[0].start()
                await asyncio.sleep(WATCHED_S)
        finally:
            load.close()
            for router in pair:
                router.close()
    return found


async def _worst(load: Load, act: Callable[[], None], watched_s: float = WATCHED_S) -> float:
    began_s = time.monotonic()
    act()
    await asyncio.sleep(watched_s)
    return round(await asyncio.to_thread(load.longest_wait, began_s, began_s + watched_s), 2)


async def recalibrators(broker: LocalBroker, directory: Path, rounds: int) -> dict[str, list[float]]:
    """Return the times from a start until both stages have their partitions, by what became of the state."""
    prefix = unique_prefix()
    create_all_topics(broker.bootstrap, prefix)
    state = directory / "state"
    config = _recalibrator_config(directory / "recalibrator.toml", broker.bootstrap, prefix, state)
    process = RecalibratorProcess(config, "recalibrator", directory / "recalibrator.log")
    found: dict[str, list[float]] = {"state_kept": [], "state_lost": []}
    process.start()
    times = STAGES
    await process.until_logged("assigned", times)
    try:
        for _ in range(rounds):
            for name, waits in found.items():
                process.kill()
                if name == "state_lost":
                    shutil.rmtree(state)
                began_s = time.monotonic()
                process.start()
                times += STAGES
                await process.until_logged("assigned", times)
                waits.append(round(time.monotonic() - began_s, 2))
    finally:
        process.close()
    return found


def _recalibrator_config(path: Path, bootstrap: str, prefix: str, state: Path) -> Path:
    lines = [
        f'kafka = {{ "bootstrap.servers" = "{bootstrap}" }}',
        f'topics = {{ prefix = "{prefix}" }}',
        f"recalibrator = {{ state_dir = {json.dumps(str(state))}, http_port = 0 }}",
        '[workloads.photo]\nfields = ["camera", "lens"]\ntarget = { micro_f1 = 0.9 }\ncost = { large = 3.0 }\n',
    ]
    path.write_text("\n".join(lines))
    return path


def main() -> None:
    """Run the benchmark and print its document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, LocalBroker(Path(name) / "kafka") as broker:
        document = {
            "longest_wait_s": asyncio.run(routers(broker, Path(name), arguments.rounds)),
            "recalibrator_start_s": asyncio.run(recalibrators(broker, Path(name), arguments.rounds)),
        }
    tell(document, arguments.json)


if __name__ == "__main__":
    main()
