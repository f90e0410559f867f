"""``ucci-stream notify test``: one message to each webhook, sent as the fit would send it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import aiohttp

from recalibrator.notify.http_webhook import Attempt, post
from recalibrator.notify.notices import trial_notice
from schemas.errors import ConfigError
from schemas.settings import Settings


def send_tests(settings: Settings, only: str | None) -> dict[str, Attempt]:
    """Send a test message once to each webhook, or to one.

    Raises
    ------
    ConfigError
        When there is none, or none of that name.
    """
    webhooks = settings.notify.webhooks
    if not webhooks:
        raise ConfigError(["notify.webhooks: none is configured; add a table [notify.webhooks.NAME] with a url"])
    if only is not None and only not in webhooks:
        raise ConfigError([f"--webhook: {only} is not configured; give one of {', '.join(webhooks)}"])
    return asyncio.run(_send(settings, [only] if only is not None else list(webhooks)))


async def _send(settings: Settings, names: list[str]) -> dict[str, Attempt]:
    now, notify = datetime.now(UTC), settings.notify
    workload = next(iter(settings.workloads), "test")
    async with aiohttp.ClientSession() as session:
        attempts = await asyncio.gather(
            *(post(session, notify.webhooks[name], trial_notice(now, workload), notify.page_url, now) for name in names)
        )
    return dict(zip(names, attempts, strict=True))
