"""The label queue as people see it in a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from recalibrator.labelling.queue import LabelQueue, label_budget
from schemas.label_requested import RequestReason
from schemas.settings import WorkloadSettings
from schemas.status import WorkloadStatus
from tests.support.recalibrator_events import label_request
from ucci_stream.label_tools.label_queue import Queue, outcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PHOTO = WorkloadSettings.model_validate({"name": "photo", "fields": ["camera"], "target": {"micro_f1": 0.9}})


def shown(reason: RequestReason, *trusted: str) -> str:
    queue = LabelQueue(["photo"], "ucci", retention_s=60.0, most=9)
    assert queue.take("ucci.label-requests", b"q-1", label_request(1, reason=reason).to_json())
    budget = label_budget(WorkloadStatus.cold_start(PHOTO.name, PHOTO.target))
    return "\n".join(map(str, outcome(Queue(queue.page("photo", NOW, 9), budget, trusted)).lines))


def test_the_queue_marks_audits_and_names_trusted_labelers() -> None:
    """People see which requests are audits and that only trusted labelers should answer them; of others nothing."""
    text = shown("audit", "ada", "bob")
    assert "audit" in text
    assert "only ada, bob" in text
    assert "none of the suspected labels" in shown("audit")
    assert "audit" not in shown("monitoring", "ada") + shown("exploration", "ada")
