"""Which versions a router takes, in force and on trial: what fits, what is signed, how far one may move escalation."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.basis import Handoff
from schemas.calibration import HIGHEST_VERSION, CalibrationMap, CalibrationVersion, Evidence, Signal
from schemas.canonical import digest
from schemas.event import MAX_INTEGER
from schemas.made_for import MadeFor, made_for
from schemas.settings import Settings
from schemas.settings_text import settings_warnings
from schemas.signature import signed, signed_trial
from schemas.trial import CalibrationTrial
from stream_router.calibration.active_versions import Activated, ActiveVersions, Rejected, RejectionReason, TrialChange
from tests.support.model_clients import workload
from tests.support.versions import sealed_version, trial_of

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BASE = sealed_version(version=7, uncertainty_threshold=0.6)
TRIED = sealed_version(version=8, uncertainty_threshold=0.2, exploration_probability=0.01)
WANTED = {"photo": MadeFor(Signal(small_model="small"))}
LATER = Signal(kind="later", small_model="small")
PHOTO = workload()


def offered(active: ActiveVersions, version: CalibrationVersion) -> Activated | Rejected | None:
    return active.offer(b"photo", version.to_json(), NOW)


def refused(outcome: object, reason: str) -> str:
    """See that a record was rejected for this reason; return the line that says why."""
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reason
    return outcome.error


def on_trial(active: ActiveVersions, value: bytes) -> TrialChange:
    change = active.trials.offer(b"photo", value)
    assert change is not None, "it is of a workload configured here"
    return change


def trial(share: float | None = None, version: CalibrationVersion = TRIED) -> CalibrationTrial:
    return trial_of(version, share)


def test_an_old_version_sent_again_is_taken_without_a_disk() -> None:
    """Beyond ``max_age_s`` it is not; older versions before the newest of the topic are none of anybody's business."""
    week_s, old = 7 * 86_400.0, BASE.created_at + timedelta(days=8)
    fresh = sealed_version(version=8, created_at=old)
    active = ActiveVersions(WANTED, max_age_s=week_s)
    assert [active.offer(b"photo", BASE.to_json(), old), active.in_force("photo")] == [None, None]
    (found,) = active.topic_read(old)
    refused(found, "too_old")
    assert active.rejected() == {"too_old": 1}
    assert active.offer(b"photo", BASE.to_json(), old) == found
    assert active.offer(b"photo", fresh.to_json(), old) == Activated(fresh)

    active = ActiveVersions(WANTED, max_age_s=week_s)
    assert [active.offer(b"photo", one.to_json(), old) for one in (BASE, fresh)] == [None, Activated(fresh)]
    assert (active.topic_read(old), active.rejected()) == ([], {})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, RejectionReason.DELETED),
        (b"{not json", RejectionReason.MALFORMED),
        (BASE.to_json().replace(b'"uncertainty_threshold":0.6', b'"uncertainty_threshold":0'), RejectionReason.DIGEST),
        (BASE.model_copy(update={"digest": ""}).to_json(), RejectionReason.DIGEST),
        (sealed_version(workload="audio").to_json(), RejectionReason.MALFORMED),
        (sealed_version(version=7, uncertainty_threshold=0.1).to_json(), RejectionReason.OLDER),
        (sealed_version(version=8, signal=LATER).to_json(), RejectionReason.FOREIGN_SIGNAL),
        # Routers of earlier releases do not read the topic of trials; were one on theirs, it would change nothing.
        (trial(0.5).to_json(), RejectionReason.MALFORMED),
    ],
)
def test_a_rejected_record_leaves_the_last_good_version(value: bytes | None, reason: RejectionReason) -> None:
    active = ActiveVersions(WANTED)
    offered(active, BASE)
    refused(active.offer(b"photo", value, NOW), reason)
    assert active.in_force("photo") == BASE
    assert active.rejected() == {reason.value: 1}


def test_a_version_of_another_workload_is_not_ours() -> None:
    other = sealed_version(workload="audio").to_json()
    refused(ActiveVersions(WANTED).offer(b"audio", other, NOW), "unknown_workload")


def test_trial_leaves_the_version_in_force_alone() -> None:
    """Nothing of it remains after its end; a version above its number is adopted as ever."""
    active = ActiveVersions(WANTED)
    offered(active, BASE)
    begun = on_trial(active, trial(0.5).to_json())
    assert begun.trial == trial(0.5) == active.trial("photo")
    assert active.in_force("photo") == BASE
    assert active.versions()["photo"].trial == 8
    promoted = sealed_version(version=9, uncertainty_threshold=0.2, parent_version=7)
    assert offered(active, promoted) == Activated(promoted, "follows")
    active.trials.offer(b"photo", None)
    assert active.trial("photo") is None
    assert active.versions()["photo"].trial is None
    assert (active.in_force("photo"), active.rejected()) == (promoted, {})


@pytest.mark.parametrize(
    "value",
    [
        b"{not json",
        trial(0.5).to_json().replace(b'"uncertainty_threshold":0.2', b'"uncertainty_threshold":0.9'),
        trial(0.5).to_json().replace(b'"share":0.5', b'"share":1.5'),
        trial(version=sealed_version(version=8, workload="audio")).to_json(),
        trial(version=sealed_version(version=8, signal=Signal(small_model="other"))).to_json(),
        trial(version=sealed_version(version=MAX_INTEGER)).to_json(),
    ],
)
def test_a_trial_that_does_not_fit_is_named_and_none_runs(value: bytes) -> None:
    active = ActiveVersions(WANTED)
    active.trials.offer(b"photo", trial().to_json())
    assert on_trial(active, value).problem
    assert active.trial("photo") is None


@pytest.mark.parametrize("key", [None, b"\xff", b"audio"])
def test_a_trial_of_another_workload_is_none_of_ours(key: bytes | None) -> None:
    active = ActiveVersions(WANTED)
    active.trials.offer(b"photo", trial().to_json())
    assert active.trials.offer(key, b"{}") is None
    assert active.trial("photo") is not None


def test_a_version_of_the_last_number_shuts_no_other_one_out() -> None:
    active = ActiveVersions(WANTED)
    highest = sealed_version(version=HIGHEST_VERSION)
    for number in (HIGHEST_VERSION + 1, MAX_INTEGER):
        assert str(number) in refused(offered(active, sealed_version(version=number)), "number_too_high")
    assert isinstance(offered(active, BASE), Activated)
    assert isinstance(offered(active, highest), Activated)
    assert active.rejected() == {"number_too_high": 2}


KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (BASE, "unsigned"),
        (signed(BASE, OTHER_KEY), "bad_signature"),
        (signed(BASE, KEY).model_copy(update={"signature": "é"}), "bad_signature"),
        # Anybody can compute a digest, and nobody without the key the signature of another threshold.
        (signed(BASE, KEY).model_copy(update={"uncertainty_threshold": 1.0}), "bad_signature"),
    ],
)
def test_a_router_with_a_key_refuses_what_the_fit_has_not_signed(version: CalibrationVersion, reason: str) -> None:
    active = ActiveVersions(WANTED, [KEY])
    resealed = CalibrationVersion.sealed(**version.model_dump(exclude={"digest"}, exclude_unset=True))
    refused(offered(active, resealed), reason)
    change = on_trial(active, trial(version=resealed).to_json())
    assert (change.trial, "sign" in str(change.problem)) == (None, True)
    assert active.in_force("photo") is None


@pytest.mark.parametrize("keys", [[KEY], [OTHER_KEY, KEY], []], ids=["key", "former key", "no key"])
def test_a_signed_version_is_taken(keys: list[bytes]) -> None:
    """By routers with its key, present or former, and by those that know of none."""
    active = ActiveVersions(WANTED, keys)
    assert isinstance(offered(active, signed(BASE, KEY)), Activated)
    assert on_trial(active, signed_trial(trial(), KEY).to_json()).problem is None


def test_an_old_signed_version_was_wrapped_into_a_canary() -> None:
    """Whoever may write to the topic has a version that was signed, and no signature for mode and share."""
    active = ActiveVersions(WANTED, [KEY])
    shadow, wrapped = signed_trial(trial(), KEY), trial(1.0, signed(TRIED, KEY))
    for forged in (wrapped, shadow.model_copy(update={"mode": "canary", "share": 1.0})):
        assert on_trial(active, forged.to_json()).trial is None
        assert active.trial("photo") is None
    assert active.trials.offer(b"photo", shadow.to_json()) == TrialChange("photo", shadow)


def test_the_signature_covers_fields_of_a_later_contract() -> None:
    document = json.loads(BASE.to_json()) | {"later": 1}
    document["signature"] = signed(BASE, KEY).signature
    document["digest"] = digest(document)
    refused(ActiveVersions(WANTED, [KEY]).offer(b"photo", json.dumps(document).encode(), NOW), "bad_signature")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"prompt": "Name the camera in {text}."}, "prompt"),
        ({"fields": ("camera",)}, "fields"),
        ({"max_tokens": 9}, "max_tokens 256, not 9"),
        ({"large": {"base_url": "http://h/v1", "model": "27b"}}, "large_model large, not 27b"),
    ],
)
def test_a_version_of_another_prompt_or_model_is_rejected(changed: dict[str, Any], named: str) -> None:
    """In force or on trial: a map says nothing of answers to another prompt; a moved server changes no answer."""
    made = sealed_version(version=8, basis=PHOTO.basis)
    elsewhere = PHOTO.model_validate(PHOTO.model_dump() | changed)
    active = ActiveVersions({"photo": made_for(elsewhere)})
    error = refused(offered(active, made), "foreign_basis")
    assert named in error
    assert on_trial(active, trial(version=made).to_json()).problem == error
    own = sealed_version(version=9, basis=elsewhere.basis)
    assert offered(active, own) == Activated(own)


def test_versions_of_former_releases_and_moved_servers_decide() -> None:
    """The former do not say what they were made with; the latter give the same answers elsewhere."""
    moved = PHOTO.model_validate(PHOTO.model_dump() | {"large": {"base_url": "http://new/v1", "model": "large"}})
    for version in (sealed_version(version=8), sealed_version(version=8, basis=PHOTO.basis)):
        assert offered(ActiveVersions({"photo": made_for(moved)}), version) == Activated(version)


FIELD, TOKEN = Handoff(margin=0.9), Handoff(margin=0.9, granularity="token")
OFF = FIELD.model_copy(update={"active": False})


@pytest.mark.parametrize(
    ("configured", "made_for", "taken"),
    [
        (None, None, True),
        (None, OFF, True),
        (None, FIELD, False),
        (FIELD, FIELD, True),
        (FIELD, OFF, True),
        (FIELD, TOKEN, False),
        (FIELD, None, False),
    ],
)
def test_only_versions_of_the_configured_handoff_decide(
    configured: Handoff | None, made_for: Handoff | None, taken: bool
) -> None:
    """In force or on trial: what was learned of other answers of the large model says nothing of these."""
    active = ActiveVersions({"photo": WANTED["photo"]._replace(handoff=configured)})
    version = sealed_version(version=8, **({} if made_for is None else {"handoff": made_for}))
    outcome, tried = offered(active, version), on_trial(active, trial(version=version).to_json())
    assert (outcome == Activated(version), active.trial("photo") is not None) == (taken, taken)
    if not taken:
        error = refused(outcome, "foreign_handoff")
        assert "handoff" in error
        assert tried.problem == error


def rated(number: int, rate: float | None, trigger: str = "drift", **changed: Any) -> CalibrationVersion:
    return sealed_version(version=number, evidence=Evidence(trigger=trigger, escalation_rate=rate), **changed)


def limited(limit: float | None = 0.25) -> ActiveVersions:
    """Return a router's versions after its start, with version 1 in force, which escalates 30 %."""
    active = ActiveVersions(WANTED, max_jump=limit)
    offered(active, rated(1, 0.3))
    active.topic_read(NOW)
    return active


@pytest.mark.parametrize("rate", [0.0, 0.04, 0.56, 1.0])
def test_a_jump_of_the_escalation_rate_is_refused(rate: float) -> None:
    active = limited()
    error = refused(offered(active, rated(2, rate)), "escalation_jump")
    assert f"{rate:.3g}" in error
    assert "max_escalation_jump" in error
    assert active.rejected() == {"escalation_jump": 1}
    assert active.versions()["photo"].version == 1
    assert isinstance(offered(active, rated(3, 0.35)), Activated), "it shuts no other one out"


@pytest.mark.parametrize(
    ("limit", "rate", "trigger"),
    [
        *((0.25, rate, "drift") for rate in (0.06, 0.3, 0.55, None)),
        (None, 1.0, "drift"),
        # A person may ask for any jump: else a refused version could be taken by a change of the configuration alone.
        *((0.25, 1.0, trigger) for trigger in ("activate", "pin", "promote", "bootstrap")),
    ],
)
def test_no_jump_beyond_the_limit_is_taken(limit: float | None, rate: float | None, trigger: str) -> None:
    """Nor one that is not known, nor one that a person asked for."""
    assert isinstance(offered(limited(limit), rated(2, rate, trigger)), Activated)


def test_a_cold_start_counts_as_escalating_all() -> None:
    empty = CalibrationMap(uncertainty=(), error_probability=())
    cold = rated(2, None, state="cold_start", map=empty, threshold=None)
    assert isinstance(offered(limited(), cold), Rejected)


def test_what_was_in_force_before_a_start_is_not_judged_again() -> None:
    """A topic that still holds former versions gives the same one in force as a topic that was compacted."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    for number, rate in ((1, 0.1), (2, 0.9)):
        offered(active, rated(number, rate))
    active.topic_read(NOW)
    assert active.versions()["photo"].version == 2


def test_a_jump_is_judged_against_the_version_on_disk() -> None:
    """A version that was refused before a restart is refused after it."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    active.restore(b"photo", rated(1, 0.3).to_json(), NOW)
    assert isinstance(offered(active, rated(2, 0.9)), Rejected)
    assert active.topic_read(NOW) == []
    found = active.versions()["photo"]
    assert (found.version, found.source) == (1, "disk")


def test_a_limit_without_a_state_directory_is_warned_of() -> None:
    limit = {"calibration": {"max_escalation_jump": 0.2}}
    assert any("router.state_dir" in line for line in settings_warnings(Settings.model_validate(limit)))
    kept = Settings.model_validate(limit | {"router": {"state_dir": "./state"}})
    assert not any("router.state_dir" in line for line in settings_warnings(kept))


@pytest.mark.parametrize(("parent", "lineage"), [(5, "follows"), (7, "skips"), (4, "forks"), (None, "forks")])
def test_lineage_follows_from_the_parent_that_is_named(parent: int | None, lineage: str) -> None:
    active = ActiveVersions(WANTED)
    assert offered(active, rated(5, 0.3)) == Activated(rated(5, 0.3), "first")
    taken = offered(active, rated(9, 0.3, parent_version=parent))
    assert isinstance(taken, Activated)
    assert taken.lineage == lineage == active.versions()["photo"].lineage


def test_a_canary_moved_escalation_beyond_the_limit() -> None:
    """Its share of the difference counts, against whatever version is in force; a shadow acts on none."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    offered(active, rated(5, 0.3))
    taken = {}
    for share in (1.0, 0.4, None):
        change = on_trial(active, trial(share, rated(6, 0.9)).to_json())
        taken[share] = change.problem is None
    assert taken == {1.0: False, 0.4: True, None: True}
    active.trials.offer(b"photo", trial(0.4, rated(6, 0.9)).to_json())
    offered(active, rated(7, 0.1))
    assert active.trial("photo") is None
