"""The gateway's benchmark: what counts as an answer of a turn, and what its page says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from research.gateway.callers import turn
from research.gateway.report import write

MADE = {"command": "python -m research.gateway", "machine": "x", "python": "3.11", "commit": "c", "day": "d"}


async def test_a_turn_counts_before_every_caller_is_warm() -> None:
    """Answers from before each caller had two are left out, as many as one of them may have had meanwhile."""
    asked = 0
    last = asyncio.Event()

    async def ask(_session: aiohttp.ClientSession) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:  # the second caller's first request waits until the first caller has had a hundred
            await last.wait()
        elif asked > 100:
            last.set()
        await asyncio.sleep(0)

    found = await asyncio.wait_for(turn(ask, callers=2, seconds=0.0), 30.0)
    assert asked > 100
    assert len(found) < 50


def figures(**more: float) -> dict[str, float]:
    return {"answers": 50, "per_s": 10.0, "p50_ms": 100.0, "p99_ms": 120.0} | more


def test_the_page_shows_ratios_and_the_acknowledgement(tmp_path: Path) -> None:
    """With the least and largest of the rounds beside the median."""
    ratios = {"p50_ratio": 1.1, "p99_ratio": 1.5}
    added = {"p50_acknowledged_ms": 2.5, "p99_acknowledged_ms": -1.0}
    paths = {
        "direct": figures(),
        "kept": figures(**ratios, **added),
        "unacknowledged": figures(**ratios),
        "escalated": figures(**ratios),
    }
    slower = paths | {"kept": figures(**ratios | {"p50_ratio": 1.3}, **added | {"p50_acknowledged_ms": 4.0})}
    load: dict[str, Any] = {"callers": 1_000, "service_ms": 1_000, "rounds": [paths, slower], "median": paths}
    results = {"loads": [load], "answered": 12_345, "answered_without_result": 0, "strayed": 3}
    write(results, MADE, tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| 1,000 | 1,000 ms | gateway, kept | 10 | 100 ms | 120 ms | 1.10 [1.10, 1.30] | 1.50 [1.50, 1.50] |" in page
    assert "| 1,000 | 100 ms | 120 ms | +2.5 [+2.5, +4.0] ms | −1.0 [−1.0, −1.0] ms |" in page
    assert "12,345 queries were answered with 200 in this run, and 0 of them have no" in page
