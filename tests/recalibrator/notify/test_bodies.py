"""One body for every receiver, whose signature can be verified."""

from __future__ import annotations

import base64
import hmac
import json

from recalibrator.notify.http_webhook import body_of, headers_of
from recalibrator.notify.outbox import Change, Condition, Notice
from schemas.status import Headline, Link

GOOD = Condition("active", is_bad=False, since="2026-01-31T12:00:00Z")
BAD = Condition("stale", is_bad=True, since="2026-01-31T12:05:00Z")
SAID = Headline(
    kind="label_starvation",
    severity="warn",
    cause="No label <has> come in",
    act="Label what is requested.",
    link=Link(label="Label now", href="/workloads/%3Cphoto%3E/label"),
    sentence="No label <has> come in.",
)
NOTICE = Notice("id-1", "<photo>", (Change("state", GOOD, BAD), Change("drift", None, BAD)), SAID)


def test_the_body_names_the_change_the_act_and_the_page() -> None:
    sent = json.loads(body_of(NOTICE, "https://ucci.example/"))

    assert (sent["before"], sent["now"], sent["is_bad"], sent["id"]) == ("active", "stale", True, "id-1")
    assert (sent["sentence"], sent["at"]) == (SAID.sentence, BAD.since)
    assert (sent["kind"], sent["kinds"], sent["severity"], sent["act"]) == (
        "state",
        ["state", "drift"],
        "warn",
        SAID.act,
    )
    assert sent["link"] == "https://ucci.example/workloads/%3Cphoto%3E/label"
    assert sent["page"] == "https://ucci.example/workloads/%3Cphoto%3E"


def test_a_receiver_can_verify_the_signature() -> None:
    """As Standard Webhooks says: HMAC-SHA256 over id, time and body, keyed by the decoded secret."""
    notice, body = NOTICE, body_of(NOTICE, None)
    for secret, key in (("whsec_" + base64.b64encode(b"k" * 24).decode(), b"k" * 24), ("plain-text-secret", None)):
        headers = headers_of(notice, body, secret, 1_700_000_000)
        signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
        digest = hmac.digest(key or secret.encode(), signed, "sha256")
        assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert "webhook-signature" not in headers_of(notice, body, None, 1_700_000_000)
