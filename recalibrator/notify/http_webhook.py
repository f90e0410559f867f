"""One attempt to deliver one notice to one webhook, and what its answer means for the next attempt."""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Literal, NamedTuple
from urllib.parse import quote

import aiohttp
from pydantic_core import to_json

from recalibrator.notify.outbox import Notice, trial_notice
from schemas.settings import NotifySettings, Webhook
from ucci_runtime.http_proxy import proxy_use

_SECRET_PREFIX = "whsec_"  # noqa: S105 how the specification marks secrets in base64


def body_of(notice: Notice, page_url: str | None) -> bytes:
    """Return the JSON body of a notification, with a link to the workload's page where its address is known."""
    site = None if page_url is None else page_url.rstrip("/")
    first, one = notice.changes[0], notice.headline
    return to_json(
        {
            "id": notice.notice_id,
            "workload": notice.workload,
            "kind": first.kind,
            "kinds": [change.kind for change in notice.changes],
            "before": None if first.before is None else first.before.value,
            "now": first.now.value,
            "is_bad": first.now.is_bad,
            "at": first.now.since,
            "severity": one.severity,
            "sentence": one.sentence,
            "act": one.act,
            "link": None if site is None or one.link is None else f"{site}{one.link.href}",
            "page": None if site is None else f"{site}/workloads/{quote(notice.workload, safe='')}",
        }
    )


def headers_of(notice: Notice, body: bytes, secret: str | None, now_s: int) -> dict[str, str]:
    """Return a notification's headers: its id, by which receivers tell a repetition, and its signature.

    ``secret``: None leaves it unsigned. ``now_s``: Unix time of this attempt.

    Examples
    --------
    >>> from schemas.status import Headline
    >>> notice = Notice("msg_1", "photo", (), Headline(kind="stale", severity="warn", cause="", sentence=""))
    >>> headers_of(notice, b"{}", "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ=", 1_700_000_000)["webhook-signature"]
    'v1,n0nNM+ianMhbhS1ZqNClquSisYqe5ws7vXC7ZRT9upE='
    """
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "ucci-stream",
        "webhook-id": notice.notice_id,
        "webhook-timestamp": str(now_s),
    }
    if secret is None:
        return headers
    signed = b".".join((notice.notice_id.encode(), str(now_s).encode(), body))
    digest = hmac.new(_key(secret), signed, sha256).digest()
    return headers | {"webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


def _key(secret: str) -> bytes:
    """Return the bytes of a secret: base64 after its prefix, else the text itself."""
    if secret.startswith(_SECRET_PREFIX):
        with suppress(ValueError):
            return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    return secret.encode()


Outcome = Literal["delivered", "retried", "refused"]
#: Between two attempts, whatever a receiver asks for.
LONGEST_WAIT_S = 300.0

_OK, _REDIRECTED, _SERVER = 200, 300, 500
_PASSING = frozenset({408, 425, 429})
_ANSWER_BYTES = 300
#: Longest time for one attempt.
ATTEMPT_S = 10.0


class Attempt(NamedTuple):
    """How an attempt ended."""

    #: ``refused`` for good, by an answer that a repetition would not change.
    outcome: Outcome

    detail: str
    retry_after_s: float | None = None


async def post(
    session: aiohttp.ClientSession, webhook: Webhook, notice: Notice, page_url: str | None, now: datetime
) -> Attempt:
    """Send a notice once; takes no longer than ``ATTEMPT_S``, and raises nothing."""
    url, body = webhook.url.get_secret_value(), body_of(notice, page_url)
    secret = None if webhook.secret is None else webhook.secret.get_secret_value()
    headers, limit = headers_of(notice, body, secret, int(now.timestamp())), aiohttp.ClientTimeout(total=ATTEMPT_S)
    use = proxy_use(url)
    try:
        # A redirect would carry the notice to an address that nobody has configured.
        asked = session.post(
            url, data=body, headers=headers | use.headers, timeout=limit, allow_redirects=False, **use.options
        )
        async with asked as answer:
            said = (await answer.content.read(_ANSWER_BYTES)).decode("utf-8", "replace").strip()
            return _judged(answer.status, said, answer.headers.get("Retry-After"))
    except TimeoutError:
        return Attempt("retried", f"no answer within {ATTEMPT_S:g} s")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Messages of the client may name the address, which may hold a token.
        return Attempt("retried", type(error).__name__)


async def post_tests(settings: NotifySettings, names: Sequence[str], workload: str, now: datetime) -> list[Attempt]:
    """Send a test message once to each of these webhooks, as the fit would send it."""
    notice = trial_notice(now, workload)
    async with aiohttp.ClientSession() as session:
        sent = (post(session, settings.webhooks[name], notice, settings.page_url, now) for name in names)
        return await asyncio.gather(*sent)


def _judged(status: int, said: str, retry_after: str | None) -> Attempt:
    detail = f"answered {status}" + (f": {said}" if said and status >= _REDIRECTED else "")
    if _OK <= status < _REDIRECTED:
        return Attempt("delivered", detail)
    if status >= _SERVER or status in _PASSING:
        return Attempt("retried", detail, _seconds(retry_after))
    return Attempt("refused", detail)


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header; its other form, a date, is left to the usual back-off."""
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return min(float(retry_after), LONGEST_WAIT_S)
