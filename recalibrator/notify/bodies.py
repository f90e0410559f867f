"""A notice as the bodies that receivers know, and the headers that sign it. Pure.

Slack: an incoming webhook's message, https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks .
Alertmanager: version 4 of its webhook, https://prometheus.io/docs/alerting/latest/configuration/#webhook_config .
Signature: Standard Webhooks, https://www.standardwebhooks.com .
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from recalibrator.notify.notices import Condition, Notice
from schemas.settings import WebhookFormat

_SECRET_PREFIX = "whsec_"  # noqa: S105 how the specification marks secrets in base64
_NEVER = "0001-01-01T00:00:00Z"
"""Alertmanager's time for "not ended yet"."""

_COLOURS = {True: "danger", False: "good"}


def body_of(notice: Notice, form: WebhookFormat, receiver: str, page_url: str | None) -> bytes:
    """Return the JSON body of a notification.

    Parameters
    ----------
    receiver : str
        The webhook's name in the configuration.
    page_url : str or None
        Address of the page, to link to.
    """
    link = None if page_url is None else f"{page_url.rstrip('/')}/workloads/{quote(notice.workload, safe='')}"
    if form == "slack":
        return to_json(_slack(notice, link))
    if form == "alertmanager":
        return to_json(_alertmanager(notice, receiver, link))
    return to_json(_plain(notice, link))


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
    >>> from recalibrator.notify.notices import Condition, Notice
    >>> now = Condition("stale", True, "2026-01-31T12:00:00Z")
    >>> notice = Notice("msg_1", "photo", "state", None, now, "")
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


def _title(notice: Notice) -> str:
    changed = notice.now.value if notice.before is None else f"{notice.before.value} → {notice.now.value}"
    return f"{notice.workload}: {notice.kind} {changed}".replace("_", " ")


def _slack(notice: Notice, link: str | None) -> dict[str, Any]:
    title, sentence = _escaped(_title(notice)), _escaped(notice.sentence)
    headline = f"*{title}*" if link is None else f"*<{link}|{title}>*"
    # The text is what a phone's lock screen shows; the attachment carries the colour.
    return {
        "text": title,
        "attachments": [
            {
                "color": _COLOURS[notice.now.is_bad],
                "fallback": f"{title}. {sentence}",
                "text": f"{headline}\n{sentence}",
                "mrkdwn_in": ["text"],
            }
        ],
    }


def _escaped(text: str) -> str:
    """Escape what Slack reads as markup: names of workloads and labelers are other people's words."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alertmanager(notice: Notice, receiver: str, link: str | None) -> dict[str, Any]:
    """Return what began, and what ended with it where that was bad."""
    before, now = notice.before, notice.now
    alerts = []
    if before is not None and before.is_bad:
        alerts.append(_alert(notice, before, link, ends_at=now.since))
    if now.is_bad or not alerts:
        alerts.append(_alert(notice, now, link, ends_at=_NEVER if now.is_bad else now.since))
    grouped = {"workload": notice.workload, "kind": notice.kind}
    labels = [alert["labels"] for alert in alerts]
    shared = {name: value for name, value in labels[0].items() if all(one[name] == value for one in labels)}
    return {
        "version": "4",
        "groupKey": f'{{}}:{{kind="{notice.kind}", workload="{notice.workload}"}}',
        "truncatedAlerts": 0,
        "status": "firing" if now.is_bad else "resolved",
        "receiver": receiver,
        "groupLabels": grouped,
        "commonLabels": shared,
        "commonAnnotations": alerts[-1]["annotations"] if len(alerts) == 1 else {},
        "externalURL": link or "",
        "alerts": alerts,
    }


def _alert(notice: Notice, condition: Condition, link: str | None, *, ends_at: str) -> dict[str, Any]:
    labels = {
        "alertname": "UcciWorkload",
        "workload": notice.workload,
        "kind": notice.kind,
        "condition": condition.value,
        "severity": "warning" if condition.is_bad else "info",
    }
    return {
        "status": "firing" if ends_at == _NEVER else "resolved",
        "labels": labels,
        "annotations": {"summary": _title(notice), "description": notice.sentence},
        "startsAt": condition.since,
        "endsAt": ends_at,
        "generatorURL": link or "",
        "fingerprint": _fingerprint(labels),
    }


def _fingerprint(labels: Mapping[str, str]) -> str:
    """Return what identifies an alert: the same for the beginning and the end of one condition."""
    text = "\x00".join(f"{name}\x00{value}" for name, value in sorted(labels.items()))
    return sha256(text.encode()).hexdigest()[:16]


def _plain(notice: Notice, link: str | None) -> dict[str, Any]:
    return {
        "id": notice.notice_id,
        "workload": notice.workload,
        "kind": notice.kind,
        "before": None if notice.before is None else notice.before.value,
        "now": notice.now.value,
        "is_bad": notice.now.is_bad,
        "at": notice.now.since,
        "sentence": notice.sentence,
        "page": link,
    }
