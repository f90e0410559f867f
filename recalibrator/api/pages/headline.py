"""The one sentence on top of a page: what is wrong, since when, what it costs now and what to do. Pure.

The rules stand in order of urgency and the first that applies speaks; what is less urgent stays visible further down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from urllib.parse import quote

from recalibrator.api.pages.traffic import TrafficSpan, moment, traffic_span
from recalibrator.api.read_model.status_documents import SILENT_AFTER
from schemas.costs import CostRate
from schemas.status import (
    DeadLetterCount,
    DetectorStatus,
    RecalibratorStatus,
    RouterStatus,
    WorkloadStatus,
    that_answer,
)
from schemas.target_words import estimated, is_held, of_budget, of_cap, of_fields
from schemas.topics import QUERIES

Severity = Literal["bad", "warn", "calm", "good"]

QUIET_AFTER = timedelta(minutes=10)
"""Without a query for so long, traffic has stopped."""

ESCALATION_JUMP = 0.15
"""By how much a version may escalate more than recent traffic did before that is worth a sentence."""

FEW_LETTERS = 5
"""Fewer dead letters in an hour are a stray producer, not a trend."""

_DECIDING = ("active", "stale", "label_starved")
"""States in which the estimate of the version in force is compared with the target."""

_DRIFTING = ("suspected", "drifted")
_ORDER: tuple[Severity, ...] = ("bad", "warn", "calm", "good")
_HOURS_A_DAY = 24.0
_NAMED = 3


class Act(NamedTuple):
    """A link to what helps: its words, and its address on this site."""

    label: str
    href: str


class Headline(NamedTuple):
    """What a workload's page says first.

    ``kind`` names the rule that spoke. ``remedy`` is empty where there is nothing to do, ``act`` None where no page
    helps.
    """

    kind: str
    severity: Severity
    sentence: str
    remedy: str = ""
    act: Act | None = None


class Facts(NamedTuple):
    """What the headline rests on besides the status document.

    Parameters
    ----------
    recalibrators : sequence of RecalibratorStatus
        All that have reported, silent ones included.
    state_since : datetime or None
        Since when the workload has been in its state.
    outage_since : datetime or None
        Since when, at the latest, the fit has named an outage.
    routers : sequence of RouterStatus
        All that have reported of this workload, those included that have been silent for so long that its status
        leaves them out.
    last_query_at : datetime or None
        When the count of queries last grew, as far as the history goes back.
    expected_rate : float or None
        Share of queries that the version in force was expected to escalate when it was made, in [0, 1].
    prices_tokens : bool
        Whether costs are those of tokens; else they are in calls of the small model.
    """

    now: datetime
    recalibrators: Sequence[RecalibratorStatus] = ()
    state_since: datetime | None = None
    outage_since: datetime | None = None
    routers: Sequence[RouterStatus] = ()
    last_query_at: datetime | None = None
    letters_last_hour: int = 0
    expected_rate: float | None = None
    expected_cost: CostRate | None = None
    prices_tokens: bool = False


class InForce(NamedTuple):
    """What the version in force does to today's queries: share escalated, and cost of a query."""

    escalation_rate: float | None
    cost: float | None


def headline(status: WorkloadStatus, facts: Facts) -> Headline:
    """Return the most urgent thing to say of a workload."""
    found = (rule(status, facts) for rule in _RULES)
    return next((one for one in found if one is not None), _well(status, facts))


def urgency(one: Headline) -> int:
    """Return by what headlines are ordered, the most urgent first.

    Examples
    --------
    >>> [one.kind for one in sorted([Headline("well", "good", ""), Headline("drift", "warn", "")], key=urgency)]
    ['drift', 'well']
    """
    return _ORDER.index(one.severity)


def in_force(status: WorkloadStatus, facts: Facts) -> InForce:
    """Return what the version in force does: to today's mix of queries where that is known, else as it was fitted."""
    rate = facts.expected_rate
    cost = None if facts.expected_cost is None else facts.expected_cost.sequential
    curve = status.frontier
    if curve is not None and curve.chosen is not None and curve.chosen < len(curve.escalation_rate):
        rate = curve.escalation_rate[curve.chosen]
        cost = curve.sequential_cost[curve.chosen] if curve.chosen < len(curve.sequential_cost) else cost
    return InForce(rate, cost)


def _silent(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a fit, or a join that feeds it, that no longer reports; without traffic both go on reporting."""
    known = facts.recalibrators
    if not known and status.updated_at is None:
        return None
    for stage, effect in (
        ("fit", "what follows is as of then, and nothing is refitted"),
        ("join", "labels and traffic no longer reach the fit"),
    ):
        heard = [one.updated_at for one in known if stage in one.stages]
        if any(facts.now - at <= SILENT_AFTER for at in heard):
            continue
        if not heard and stage == "join":
            continue
        last = max(heard, default=status.updated_at)
        sentence = f"The {stage} has been silent since {_at(last)}: {effect}; {_deciding(status)}."
        remedy = "Start the recalibrator again, or read its log."
        return Headline(f"{stage}_silent", "bad", sentence, remedy, _section(status, "service", "Service"))
    return None


def _routers_silent(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of routers that no longer report: without traffic they go on reporting, so that they are gone."""
    routers = that_answer(status.routers)
    silent = [(one.instance_id, one.updated_at) for one in routers if one.silent]
    if not routers:
        # Routers that have been silent for long are in no status: that nobody sends would look the same.
        silent = [(one.instance_id, one.updated_at) for one in that_answer(facts.routers)]
        silent = [] if any(facts.now - at <= SILENT_AFTER for _, at in silent) else silent
    if not silent:
        return None
    last, names = max(at for _, at in silent), _listed([name for name, _ in silent])
    act = _section(status, "service", "Service")
    if len(silent) >= len(routers):
        waiting = f", and {count} queries wait" if (count := _waiting(status)) else ""
        which = " of the topic" if len(routers) < len(status.routers) else ""
        sentence = f"No router has reported since {_at(last)} ({names}): no query{which} is answered{waiting}."
        return Headline("routers_silent", "bad", sentence, "Start the routers again, or read their logs.", act)
    rest = len(routers) - len(silent)
    others = _routers(rest, "answers", "answer")
    sentence = f"{names} {_have(silent)} been silent since {_at(last)}; {rest} other {others} the queries."
    return Headline("router_silent", "warn", sentence, "Start it again, or read its log.", act)


def _outage(status: WorkloadStatus, facts: Facts) -> Headline | None:
    down = {role for one in status.routers if not one.silent for role, it in one.models.items() if it.state == "down"}
    if not down and status.outage is None:
        return None
    failing = (
        {} if status.outage is None else {"small": status.outage.small_failing, "large": status.outage.large_failing}
    )
    role = min(down) if len(down) == 1 else max(sorted(failing), key=lambda one: failing[one], default="small")
    since = "" if facts.outage_since is None else f" since {_at(facts.outage_since)} or earlier"
    who, how = f"The {role} model", f"{'has failed' if since else 'fails'} on {failing.get(role, 0.0):.0%} of calls"
    if role in down:
        how = "has been down" if since else "is down"
    if len(down) > 1:
        who, effect = "Both models", "queries wait until one answers"
        how = "have been down" if since else "are down"
    elif role == "large":
        quality = "" if status.micro_f1 is None else f", for micro-F1 {status.micro_f1.estimate:.3f}"
        effect = f"queries that would escalate are served the small answer or wait{quality}"
    else:
        alone = "" if status.cost is None else f", for {_paid(status.cost.large_only, facts)} each"
        effect = f"the large model answers every query{alone}"
    remedy = "Restore the model server: routers notice by themselves, and no refit is needed."
    return Headline("outage", "bad", f"{who} {how}{since}: {effect}.", remedy, _section(status, "service", "Service"))


def _not_ready(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of routers that report, but answer nothing: none of them has what it needs."""
    del facts
    live = [one for one in that_answer(status.routers) if not one.silent]
    if not live or any(one.ready for one in live):
        return None
    names = _listed([one.instance_id for one in live])
    waiting = f", and {count} queries wait" if (count := _waiting(status)) else ""
    sentence = f"No router is ready now ({names}): they report, but answer no query{waiting}."
    remedy = "Ask a router's /readyz what is missing."
    return Headline("routers_not_ready", "bad", sentence, remedy, _section(status, "service", "Service"))


def _overload(status: WorkloadStatus, facts: Facts) -> Headline | None:
    del facts
    live = [(role, it) for one in status.routers if not one.silent for role, it in one.models.items()]
    crowded = {role for role, it in live if it.overloaded}
    if not crowded:
        return None
    role = "large" if "large" in crowded else "small"
    queued = sum(it.queued for name, it in live if name == role)
    slowest = max((it.latency_s.get("p99", 0.0) for name, it in live if name == role), default=0.0)
    slow = f", and one call in a hundred takes {slowest:.1f} s or longer" if slowest else ""
    effect = "some escalated queries are served the small answer" if role == "large" else "every query waits for it"
    sentence = f"The {role} model is overloaded now: {queued} calls queue for it{slow}; {effect}."
    remedy = f"Give the {role} model more capacity, or send fewer queries."
    return Headline("overload", "bad", sentence, remedy, _section(status, "service", "Service"))


def _stuck(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of queries that wait while none is answered; where none waits, traffic has merely stopped."""
    quiet = _quiet_since(status, facts)
    if quiet is None or not (waiting := _waiting(status)):
        return None
    sentence = f"{waiting} queries wait and none has been answered since {_at(quiet)}."
    remedy = "Look whether the routers are ready and what their logs say."
    return Headline("stuck", "bad", sentence, remedy, _section(status, "service", "Service"))


def _dear(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a version that costs more than the large model alone, or far more than recent traffic did."""
    rate, cost = in_force(status, facts)
    if status.calibration_version is None or rate is None:
        return None
    seen, span = status.escalation_rate, traffic_span(status)
    past = "" if seen is None else f" ({seen:.1%} over {_span(span)})"
    made = "" if status.version is None else f", in force since {_at(status.version.created_at)},"
    large_only = _large_only(status, facts)
    if cost is not None and large_only is not None and cost >= large_only:
        sentence = (
            f"Version {status.calibration_version}{made} costs more than the large model alone: a query costs "
            f"{_paid(cost, facts)}, against {_amount(large_only, facts)}, because it escalates {rate:.1%}{past}."
        )
        return Headline("dear", "bad", sentence, *_cheaper(status, rate))
    if seen is not None and rate - seen > ESCALATION_JUMP:
        priced = "" if cost is None else f", for {_paid(cost, facts)} each"
        sentence = (
            f"Version {status.calibration_version}{made} escalates {rate:.1%} of queries{priced}, far more than "
            f"before{past}."
        )
        return Headline("escalation_jump", "warn", sentence, *_cheaper(status, rate))
    return None


def _cheaper(status: WorkloadStatus, rate: float) -> tuple[str, Act]:
    """Return what to do about a version that escalates too much: its parent where that escalated less."""
    workload, version = status.workload, status.version
    if version is not None and version.parent_version is not None:
        before = version.changed.get("escalation_rate", (None, None))[0]
        if isinstance(before, float) and before < rate and status.state != "infeasible":
            act = f"Roll back to version {version.parent_version}"
            remedy = f"If queries have not changed, {act[0].lower()}{act[1:]}, which escalated {before:.1%}."
            return remedy, Act(act, _confirm(workload, "activate", version.parent_version))
    if status.state == "infeasible":
        return _out_of_reach(status), _section(status, "plots", "Quality for cost")
    return "See what cheaper thresholds would give, or compare with an earlier version.", _section(
        status, "versions", "Versions"
    )


_LOWER = "Lower workloads.{workload}.target.micro_f1 to what can be reached, or use a better large model."
_LOWER_FIELDS = "Lower workloads.{workload}.target to what can be reached, or use a better large model."
_RAISE = "Raise workloads.{workload}.target.cost, or lower sampling.exploration_probability, which is paid first."


def _out_of_reach(status: WorkloadStatus) -> str:
    target = status.target
    remedy = _RAISE if target.cost is not None else _LOWER_FIELDS if target.fields else _LOWER
    return remedy.format(workload=status.workload)


def _infeasible(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "infeasible":
        return None
    best = max(status.frontier.micro_f1, default=None) if status.frontier is not None else None
    if status.target.cost is not None or status.target.fields:
        best = None
    reached = "" if best is None else f"; the best reaches {best:.3f}"
    since = f" since {_at(at)}" if (at := _state_since(status, facts)) is not None else ""
    missed = "kept to" if status.target.cost is not None else "reached"
    sentence = f"No threshold has {missed} {status.target}{since}{reached}{_price(status, facts)}."
    return Headline(
        "infeasible",
        "bad",
        sentence,
        _out_of_reach(status),
        _section(status, "plots", "Quality for cost"),
    )


def _bad_labels(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "bad_labels_suspected":
        return None
    audit = status.details.get("label_audit")
    began = moment(audit.get("since") if isinstance(audit, dict) else None) or facts.state_since
    since = "" if began is None else f" since {_at(began)}"
    held = audit.get("quarantined") if isinstance(audit, dict) else None
    some = isinstance(held, int) and held
    aside = f"some {held} of them are taken for slips" if some else "they count until they are refuted"
    sentence = (
        f"Labels{since} contradict what was known of the models and may be wrong; {aside}{_price(status, facts)}."
    )
    remedy = "A trusted labeler should answer the audits: answers decide whether labels or models have gone wrong."
    return Headline("bad_labels", "bad", sentence, remedy, _labelling(status, "Answer the audits", reason="audit"))


def _capped(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a cap on escalation that binds: it was asked for, and what it costs in quality should be known."""
    remark = of_cap(status.target, status.micro_f1, status.standing)
    if not remark or status.state not in _DECIDING:
        return None
    sentence = f"Version {status.calibration_version} is held back: {remark}{_price(status, facts)}."
    remedy = f"Give the large model more room and raise workloads.{status.workload}.target.max_escalation."
    return Headline("capped", "warn", sentence, remedy, _section(status, "plots", "Quality for cost"))


def _below_target(status: WorkloadStatus, facts: Facts) -> Headline | None:
    quality, target = status.micro_f1, status.target
    if status.state not in _DECIDING or quality is None or is_held(target, quality, status.standing):
        return None
    goal = "" if target.micro_f1 is None else f" for a target of {target.micro_f1:g}"
    fields = of_fields(target, status.standing)
    said = f"micro-F1 {estimated(quality)}{goal}{'; ' if fields else ''}{fields}"
    sentence = f"Version {status.calibration_version} is below its target: {said}{_price(status, facts)}."
    remedy = "The next fit moves the threshold; a refit does so at once."
    return Headline("below_target", "warn", sentence, remedy, Act("Refit", _confirm(status.workload, "refit")))


def alarm_since(status: WorkloadStatus) -> datetime | None:
    """Return when the first of the alarms that last was raised; None where there is none, or nobody knows."""
    return min((one.since for one in _alarms(status) if one.since is not None), default=None)


def _alarms(status: WorkloadStatus) -> list[DetectorStatus]:
    return [one for one in status.drift.detectors if one.state in _DRIFTING]


def _drift(status: WorkloadStatus, facts: Facts) -> Headline | None:
    alarms = _alarms(status)
    if status.drift.state not in _DRIFTING:
        return None
    since = alarm_since(status)
    when = "" if since is None else f" since {_at(since)}"
    what = f" in {_listed([one.watches for one in alarms])}" if alarms else ""
    word = "Drift is suspected" if status.drift.state == "suspected" else "Queries or models have drifted"
    sentence = f"{word}{when}{what}; new labels count more until it is over{_price(status, facts)}."
    remedy = "Label what is requested: the fit follows the drift by labels, without further help."
    return Headline("drift", "warn", sentence, remedy, _labelling(status, "Label now"))


def _starved(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state not in ("label_starved", "stale"):
        return None
    since = f" since {_at(facts.state_since)}" if facts.state_since is not None else ""
    few = f"{status.labels.effective:.0f} effective labels are too few to move the threshold"
    what = (
        few if status.state == "label_starved" else "No requested label has come in, so that the threshold stands still"
    )
    sentence = f"{what}{since}; {status.labels.pending} requests wait{_price(status, facts)}."
    return Headline("label_starvation", "warn", sentence, "Label what is requested.", _labelling(status, "Label now"))


def _one_sided(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "labels_one_sided":
        return None
    since = f" (since {_at(facts.state_since)})" if facts.state_since is not None else ""
    what, _, remedy = status.sentence.partition(". ")
    sentence = f"{what}{since}{_price(status, facts)}."
    return Headline("labels_one_sided", "warn", sentence, remedy, _labelling(status, "Label now"))


def _letters(status: WorkloadStatus, facts: Facts) -> Headline | None:
    letters, recent = status.dead_letters, facts.letters_last_hour
    if letters is None or recent < FEW_LETTERS:
        return None
    usual = letters.total / _HOURS_A_DAY
    trend = ", more than twice as many as in a usual hour of the last day" if recent > 2.0 * usual else ""
    sentence = (
        f"{recent} records were set aside as dead letters in the last hour{trend}: mostly {_reason(letters.by_reason)}."
    )
    remedy = "Fix what sends them, then replay them: ucci-stream dead-letters replay."
    return Headline("dead_letters", "warn", sentence, remedy, _section(status, "dead-letters", "Dead letters"))


def _cold_start(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "cold_start":
        return None
    if not status.queries:
        waits = "No query has come in yet" if facts.routers else "No router has reported yet, and no query has come in"
        sentence = f"{waits}; until a first version is fitted, both models will answer every query."
        begin = "Send queries" if facts.routers else "Start a router and send queries"
        remedy = f"{begin}, or fit a first version offline: ucci-stream calibrate."
        return Headline("cold_start", "calm", sentence, remedy)
    since = "" if status.labels.since is None else f" since {_at(status.labels.since)}"
    sentence = (
        f"Both models have answered every query{since}, as there is no version yet: {status.labels.received} labels "
        f"are in and {status.labels.pending} requests wait{_price(status, facts)}."
    )
    return Headline("cold_start", "calm", sentence, "Label what is requested.", _labelling(status, "Label now"))


def _held(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state not in ("pinned", "paused"):
        return None
    acts = ("pin", "activate") if status.state == "pinned" else ("pause",)
    held_by = next((one for one in reversed(status.commands) if one.action in acts and not one.is_refused), None)
    since = held_by.issued_at if held_by is not None else facts.state_since
    who = "" if held_by is None else f" by {held_by.issued_by}"
    when = "" if since is None else f" since {_at(since)}"
    what = f"Version {status.calibration_version} is held" if status.state == "pinned" else "New versions are held back"
    release = "unpin" if status.state == "pinned" else "resume"
    sentence = f"{what}{who}{when}: later labels change nothing{_price(status, facts)}."
    remedy = (
        f"Once the reason is gone, {release} it." if status.state == "pinned" else "Once the reason is gone, resume."
    )
    return Headline("held", "calm", sentence, remedy, Act(release.capitalize(), _confirm(status.workload, release)))


def _quiet(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if (quiet := _quiet_since(status, facts)) is None:
        return None
    ready = sum(one.ready and not one.silent for one in that_answer(status.routers))
    sentence = (
        f"No query has come in since {_at(quiet)}; the service is up, {ready} {_routers(ready, 'waits', 'wait')} for "
        f"queries, and {_deciding(status)}."
    )
    return Headline("no_traffic", "calm", sentence, "If that is not intended, look at what sends the queries.")


def _well(status: WorkloadStatus, facts: Facts) -> Headline:
    return Headline("well", "good", f"All is well: {_keeping(status)}{_price(status, facts)}.")


def _keeping(status: WorkloadStatus) -> str:
    quality, number, target = status.micro_f1, status.calibration_version, status.target
    if quality is None:
        return f"version {number} decides, and its micro-F1 is not known yet"
    if target.cost is not None:
        spent = of_budget(target, status.standing)
        return f"version {number} buys an estimated micro-F1 of {estimated(quality)} at {spent}"
    fields = of_fields(target, status.standing)
    return f"version {number} holds {target}, at an estimated {estimated(quality)}{'; ' if fields else ''}{fields}"


_RULES: tuple[Callable[[WorkloadStatus, Facts], Headline | None], ...] = (
    _silent,
    _routers_silent,
    _outage,
    _not_ready,
    _overload,
    _stuck,
    _dear,
    _infeasible,
    _bad_labels,
    _one_sided,
    _drift,
    _capped,
    _below_target,
    _letters,
    _cold_start,
    _starved,
    _held,
    _quiet,
)


def _price(status: WorkloadStatus, facts: Facts) -> str:
    """Return what a query costs now, as a clause: by the version in force, else as recent traffic has cost."""
    cost, large_only = in_force(status, facts).cost, _large_only(status, facts)
    if cost is None and status.cost is not None:
        cost = status.cost.sequential
    if cost is None or not large_only:
        return ""
    share = 1.0 - cost / large_only
    compared = f"{share:.0%} less" if share >= 0.0 else f"{-share:.0%} more"
    return f"; a query costs {_paid(cost, facts)} now, {compared} than the large model alone"


def _paid(cost: float, facts: Facts) -> str:
    return f"{_amount(cost, facts)} {'at token prices' if facts.prices_tokens else 'small calls'}"


def _amount(cost: float, facts: Facts) -> str:
    # The price of a token may be any number; a call of the small model is the unit.
    return f"{cost:.3g}" if facts.prices_tokens else f"{cost:.2f}"


def _large_only(status: WorkloadStatus, facts: Facts) -> float | None:
    known = status.cost or facts.expected_cost
    return None if known is None else known.large_only


def _state_since(status: WorkloadStatus, facts: Facts) -> datetime | None:
    return facts.state_since or (None if status.version is None else status.version.created_at)


def _quiet_since(status: WorkloadStatus, facts: Facts) -> datetime | None:
    """Return when the last query was routed, where that is long ago."""
    # A status also comes with a label, long after the last query.
    last = facts.last_query_at or status.updated_at
    return last if last is not None and status.queries and facts.now - last > QUIET_AFTER else None


def _waiting(status: WorkloadStatus) -> int:
    records = (status.lag or {}).get("records")
    count = records.get(QUERIES.suffix) if isinstance(records, dict) else None
    return count if isinstance(count, int) else 0


def _deciding(status: WorkloadStatus) -> str:
    number = status.calibration_version
    return "both models answer" if number is None else f"version {number} stays in force"


def _reason(reasons: Sequence[DeadLetterCount]) -> str:
    return "of unknown reason" if not reasons else f"{reasons[0].reason.replace('_', ' ')} ({reasons[0].stage})"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _have(some: Sequence[object]) -> str:
    return "has" if len(some) == 1 else "have"


def _routers(count: int, one: str, many: str) -> str:
    return f"router {one}" if count == 1 else f"routers {many}"


def _span(span: TrafficSpan | None) -> str:
    return "recent queries" if span is None else span.words


def _at(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment:%d %b %H:%M} UTC"


def _confirm(workload: str, action: str, version: int | None = None) -> str:
    number = "" if version is None else f"&version={version}"
    return f"/confirm?workload={quote(workload, safe='')}&action={action}{number}"


def _section(status: WorkloadStatus, name: str, label: str) -> Act:
    return Act(label, f"/workloads/{quote(status.workload, safe='')}#{name}")


def _labelling(status: WorkloadStatus, label: str, reason: str = "") -> Act:
    return Act(label, f"/workloads/{quote(status.workload, safe='')}/label{f'?reason={reason}' if reason else ''}")
