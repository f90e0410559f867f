"""A notice as one JSON body, and the headers that sign it. Pure.

Signature: Standard Webhooks, https://www.standardwebhooks.com . What chat tools show, Alertmanager makes of the same
facts, from the metrics.
"""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256
from urllib.parse import quote

from pydantic_core import to_json

from recalibrator.notify.notices import Notice

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

    Parameters
    ----------
    secret : str or None
        None: unsigned.
    now_s : int
        Unix time of this attempt.

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
        try:
            return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
        except ValueError:
            pass
    return secret.encode()
