"""One body for every receiver, whose signature can be verified."""

from __future__ import annotations

import base64
import hmac
import json

from recalibrator.notify.http_webhook import body_of, headers_of
from recalibrator.notify.notices import Condition, Notice

GOOD = Condition("active", is_bad=False, since="2026-01-31T12:00:00Z")
BAD = Condition("stale", is_bad=True, since="2026-01-31T12:05:00Z")


def test_the_body_names_the_change_and_the_page() -> None:
    notice = Notice("id-1", "<photo>", "state", GOOD, BAD, "No label <has> come in.")
    sent = json.loads(body_of(notice, "https://ucci.example/"))

    assert (sent["before"], sent["now"], sent["is_bad"], sent["id"]) == ("active", "stale", True, "id-1")
    assert (sent["sentence"], sent["at"]) == (notice.sentence, BAD.since)
    assert sent["page"] == "https://ucci.example/workloads/%3Cphoto%3E"


def test_a_receiver_can_verify_the_signature() -> None:
    """As Standard Webhooks says: HMAC-SHA256 over id, time and body, keyed by the decoded secret."""
    notice = Notice("id-1", "photo", "state", GOOD, BAD, "")
    body = body_of(notice, None)
    for secret, key in (("whsec_" + base64.b64encode(b"k" * 24).decode(), b"k" * 24), ("plain-text-secret", None)):
        headers = headers_of(notice, body, secret, 1_700_000_000)
        signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
        digest = hmac.digest(key or secret.encode(), signed, "sha256")
        assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert "webhook-signature" not in headers_of(notice, body, None, 1_700_000_000)
