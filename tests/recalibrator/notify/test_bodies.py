"""Bodies are what Slack and receivers of Alertmanager's webhooks take, and their signature can be verified."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

from recalibrator.notify.bodies import body_of, headers_of
from recalibrator.notify.notices import Condition, Notice
from schemas.settings import WebhookFormat

GOOD = Condition("active", is_bad=False, since="2026-01-31T12:00:00Z")
BAD = Condition("stale", is_bad=True, since="2026-01-31T12:05:00Z")
WORSE = Condition("infeasible", is_bad=True, since="2026-01-31T12:09:00Z")


def document(form: WebhookFormat, before: Condition | None, now: Condition, workload: str = "photo") -> Any:
    notice = Notice("id-1", workload, "state", before, now, "No label <has> come in.")
    return json.loads(body_of(notice, form, "ops", "https://ucci.example/"))


def test_slack_reads_no_markup_in_other_peoples_words() -> None:
    sent = document("slack", GOOD, BAD, "<!channel>")
    assert "<!channel>" not in sent["text"]
    (attachment,) = sent["attachments"]
    assert attachment["color"] == "danger"
    assert "No label &lt;has&gt; come in." in attachment["text"]
    assert "https://ucci.example/workloads/%3C%21channel%3E" in attachment["text"]


def test_alertmanager_receivers_see_an_alert_begin_and_end() -> None:
    fired, ended = document("alertmanager", GOOD, BAD), document("alertmanager", BAD, GOOD)
    assert (fired["version"], fired["status"], ended["status"]) == ("4", "firing", "resolved")
    (begun,), (over,) = fired["alerts"], ended["alerts"]
    assert begun["fingerprint"] == over["fingerprint"]
    assert (begun["startsAt"], begun["endsAt"]) == (BAD.since, "0001-01-01T00:00:00Z")
    assert (over["startsAt"], over["endsAt"]) == (BAD.since, GOOD.since)
    assert fired["groupKey"] == ended["groupKey"]


def test_from_bad_to_worse_ends_one_alert_and_begins_another() -> None:
    sent = document("alertmanager", BAD, WORSE)
    assert [(one["labels"]["condition"], one["status"]) for one in sent["alerts"]] == [
        ("stale", "resolved"),
        ("infeasible", "firing"),
    ]
    assert sent["status"] == "firing"
    assert sent["commonLabels"]["workload"] == "photo"
    assert "condition" not in sent["commonLabels"]


def test_the_plain_body_names_the_change_and_the_page() -> None:
    sent = document("json", GOOD, BAD)
    assert (sent["before"], sent["now"], sent["is_bad"], sent["id"]) == ("active", "stale", True, "id-1")
    assert sent["page"] == "https://ucci.example/workloads/photo"


def test_a_receiver_can_verify_the_signature() -> None:
    """As Standard Webhooks says: HMAC-SHA256 over id, time and body, keyed by the decoded secret."""
    notice = Notice("id-1", "photo", "state", GOOD, BAD, "")
    body = body_of(notice, "json", "ops", None)
    for secret, key in (("whsec_" + base64.b64encode(b"k" * 24).decode(), b"k" * 24), ("plain-text-secret", None)):
        headers = headers_of(notice, body, secret, 1_700_000_000)
        signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
        digest = hmac.digest(key or secret.encode(), signed, "sha256")
        assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert "webhook-signature" not in headers_of(notice, body, None, 1_700_000_000)
