"""What `docs/first-hour.md` shows is true: its lines are valid events, and its code runs against the service."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import FeedbackEvent, QueryEvent, RoutedEvent
from schemas.settings_text import load_settings, parse_settings, require_models
from schemas.topics import DEAD_LETTERS, FEEDBACK
from tests.support.broker import key_of, read_all
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.offline.gold_lines import read_gold
from ucci_stream.topics.admin import create_topics

PAGE = Path(__file__).parents[2] / "docs" / "first-hour.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_three_lines_are_valid_events() -> None:
    query, result, label = blocks("json")
    asked, answered = QueryEvent.from_json(query), RoutedEvent.from_json(result)
    assert asked.workload is None
    assert {asked.query_id, answered.query_id, FeedbackEvent.from_json(label).query_id} == {"first-0"}


def test_the_shown_files_are_valid(tmp_path: Path) -> None:
    (config,) = blocks("toml")
    settings = parse_settings(config, {})
    require_models(settings)
    (tmp_path / "gold.jsonl").write_text(blocks("text")[0], encoding="utf-8")
    (query,) = read_gold(tmp_path / "gold.jsonl")
    assert set(query.line.entities) <= set(settings.workloads["photo-search"].fields)


@pytest.mark.broker
async def test_the_code_of_the_page_runs(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    """A producer and a consumer get a result for each query that names no workload, and the label arrives."""
    code = "".join(blocks("python")).replace('"127.0.0.1:9092"', repr(broker.bootstrap))
    code = code.replace('"ucci.', f'"{topic_prefix}.')
    async with hashed_models() as (url, _models):
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, url)
        create_topics(load_settings(config, {}))
        with RouterProcess(config, "router-0", tmp_path / "router.log", forked=True):
            argv = [sys.executable, "-c", code]
            done = await asyncio.to_thread(
                subprocess.run, argv, capture_output=True, text=True, timeout=120, env=dict(os.environ)
            )
    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == ["first-0", "first-1"]
    (label,) = read_all(broker.bootstrap, FEEDBACK.name(topic_prefix))
    assert key_of(label) == "first-0"
    assert not read_all(broker.bootstrap, DEAD_LETTERS.name(topic_prefix))
