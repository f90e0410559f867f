"""Every command of `docs/workloads.md` runs, in order, against services that run, and each ends as the page says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.broker import read_all
from tests.support.commands import program
from tests.support.router_processes import hashed_models, write_config
from tests.support.routers import value_of
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
GOLD_LINES = 320
FAILS = "   # exit code 1"
BEFORE = """
ucci-stream topics create
ucci-stream calibrate gold.jsonl --workload photo-search
recalibrator run 2> recalibrator.log & recalibrator=$!
stream-router run 2> router.log & router=$!
trap 'kill $recalibrator $router' EXIT
until ucci-stream check-config --against-running --json | grep -q 'stays in force'; do sleep 0.5; done
"""

AFTER = """
until ucci-stream versions --workload photo-search --json | grep -q settings_changed; do sleep 0.5; done
kill $recalibrator $router; trap - EXIT; wait $recalibrator && wait $router
"""


def commands() -> Iterator[str]:
    """Yield the page's commands."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                yield line.removeprefix("$ ")


def script() -> str:
    """Return the page as one script, which ends at the first command that does not end as the page says."""
    lines = [BEFORE]
    for command in commands():
        expected = int(command.endswith(FAILS))
        # Not in a subshell: a command may set a variable. Services log to where the end of a failed test shows it.
        run = command.removesuffix(FAILS).replace(" run & ", " run 2>> restarted.log & ")
        lines += [f"echo {shlex.quote('$ ' + command)}", run, f"[ $? = {expected} ] || exit 9"]
    return "\n".join([*lines, AFTER])


def shims(folder: Path) -> Path:
    """Put the commands of this checkout where a shell finds them."""
    for name in ("ucci-stream", "stream-router", "recalibrator"):
        program(folder / name, f'exec {sys.executable} -m {name.replace("-", "_")} "$@"')
    return folder


def write_lines(folder: Path) -> None:
    """Write gold lines that the large model answers rightly under either prompt, and queries."""

    def gold(prompt: str, number: int) -> str:
        text = f"{prompt} {number}"
        lens = sha256(f"large {text}".encode()).digest()[2]
        return json.dumps({"text": str(number), "entities": {"camera": str(number), "lens": f"large {lens}"}})

    for name in ("gold", "reviews"):
        (folder / f"{name}.jsonl").write_text("\n".join(gold("find", number) for number in range(GOLD_LINES)))
    queries = (json.dumps({"query_id": f"q-{number}", "text": f"camera {number}"}) for number in range(20))
    (folder / "queries.jsonl").write_text("\n".join(queries))


async def test_every_command_of_the_page_runs(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    """A workload is added, its neighbour's prompt and then its target are changed; nothing becomes a dead letter."""
    write_lines(tmp_path)
    async with hashed_models() as (models, _):
        own = ["[recalibrator]", f"http_port = {pick_port()}", 'state_dir = "state"']
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, models, own)
        named = config.read_text().replace("workloads.photo", "workloads.photo-search")
        config.write_text(named.replace("[topics]", "[topics]\npartitions = 1"))
        text = script().replace("http://small:8000/v1", models).replace("http://large:8000/v1", models)
        text = text.replace("small-4b", "small").replace("large-12b", "large")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("UCCI_", "KAFKA_"))}
        environ["PATH"] = f"{shims(tmp_path / 'bin')}:{environ['PATH']}"
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", text], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=360
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    versions = [json.loads(value_of(record)) for record in read_all(broker.bootstrap, f"{topic_prefix}.calibration")]
    renewed = [one for one in versions if one["evidence"]["trigger"] == "settings_changed"]
    assert {(one["workload"], one["target"]["micro_f1"]) for one in renewed} >= {("photo-search", 0.85)}
    prompts = {one["basis"]["prompt"] for one in versions if one["workload"] == "photo-search"}
    assert len(prompts) == 2
    assert not read_all(broker.bootstrap, f"{topic_prefix}.dead-letters")
