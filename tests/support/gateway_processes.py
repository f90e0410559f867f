"""A gateway as a process of its own, and one query to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.router_processes import RouterProcess


@dataclass
class GatewayProcess(RouterProcess):
    """One ``stream-router serve``."""

    def start(self) -> None:
        self._run("stream_router", "serve")

    async def until_serving(self) -> str:
        """Wait until it answers queries; return its URL."""
        return await self.until_ready((await self.until_logged("serving"))["port"])


async def ask(http: aiohttp.ClientSession, url: str, query_id: str, text: str = "canon") -> tuple[int, dict[str, Any]]:
    body = {"model": "photo", "messages": [{"role": "user", "content": text}], "metadata": {"query_id": query_id}}
    async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
        return answer.status, await answer.json()
