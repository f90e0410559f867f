"""The one sentence of a workload: what is wrong, since when, what that does to answers, and one act. Pure.

The gravest rule that applies speaks (:data:`KINDS`): a cause before its symptoms, since an act against a symptom may do
harm. What is less grave stays visible further down the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from urllib.parse import quote, urlencode

from recalibrator.headlines.facts import (
    LONG_SILENT,
    SILENT_AFTER,
    Change,
    Facts,
    Moved,
    change,
    in_force,
    moment,
    traffic_span,
)
from recalibrator.headlines.without_result import look_up, unusual_share
from schemas.event import rfc3339
from schemas.status import ALARMED, DetectorStatus, Headline, Link, OutageStatus, Severity, WorkloadStatus, that_answer
from schemas.target_words import estimated, is_held, of_budget, of_cap, of_fields
from schemas.topics import QUERIES

#: Without a query for so long, traffic has stopped.
QUIET_AFTER = timedelta(minutes=10)

#: A router that begins reports before it has its partitions.
BEGINS_WITHIN = timedelta(seconds=10)

#: By how much a version may escalate more than recent traffic did before that is worth a sentence.
ESCALATION_JUMP = 0.15

#: Fewer dead letters in an hour are a stray producer, not a trend.
FEW_LETTERS = 5

_ORDER: tuple[Severity, ...] = ("bad", "warn", "calm", "good")
#: States in which the estimate of the version in force is compared with the target.
_DECIDING = ("active", "stale", "label_starved")

_OF_MIX = frozenset({"uncertainty_median", "uncertainty_tail"})
_HOUR = timedelta(hours=1)
_NAMED = 3
_WAIT = "Change no target and no version before the doubt is settled"
_DEPLOYED = "Was {} deployed anew? Restore what answered before; otherwise the fit follows by labels"


def headline(status: WorkloadStatus, facts: Facts) -> Headline:
    """Return the most urgent thing to say of a workload; of symptoms only once a doubt had time to show its cause."""
    has_jumped = facts.jumped_since is not None and facts.now - facts.jumped_since < _SETTLES
    waits = _SYMPTOMS if _is_open(status, facts) else _OF_A_JUMP if has_jumped else ()
    found = (rule(status, facts) for rule in _RULES)
    return min((one for one in found if one is not None and one.kind not in waits), key=gravity)


def urgency(one: Headline) -> int:
    """Return by what headlines of several workloads are ordered, the most urgent first."""
    return _ORDER.index(one.severity)


def gravity(one: Headline) -> int:
    """Return by what headlines of one workload are ordered, the gravest first."""
    return KINDS.index(one.kind) if one.kind in KINDS else len(KINDS)


def alarm_since(status: WorkloadStatus) -> datetime | None:
    """Return when the first of the alarms that last was raised; None where there is none, or nobody knows."""
    return min((one.since for one in _alarms(status, *ALARMED) if one.since is not None), default=None)


def in_doubt(status: WorkloadStatus) -> bool:
    """Whether an alarm, an audit or an outage is open: versions fitted since then may rest on wrong data."""
    suspects = status.detail("label_audit").get("suspected") is not None
    return suspects or status.outage is not None or bool(_alarms(status, *ALARMED))


def _is_open(status: WorkloadStatus, facts: Facts) -> bool:
    """Whether the first alarm that lasts is so young that its cause may not show yet."""
    began = alarm_since(status)
    return began is not None and facts.now - began < _SETTLES


def _say(
    status: WorkloadStatus, kind: str, cause: str, effect: str = "", act: str = "", **more: Link | datetime | None
) -> Headline:
    since = more.get("since")
    assert since is None or isinstance(since, datetime)
    # Kafka's silence is a matter of seconds.
    when = "" if since is None else f" since {f'{since:%d %b %H:%M:%S} UTC' if kind == 'kafka' else _at(since)}"
    link = more.get("link", _section(status, "service", "Service") if kind in OBSERVED else None)
    said = f"{cause}{when}{f': {effect}' if effect else ''}."
    content = {"kind": kind, "severity": _SEVERITIES[kind], "cause": cause, "since": since, "effect": effect}
    return Headline.model_validate(content | {"sentence": said, "act": f"{act}." if act else "", "link": link})


def _kafka(status: WorkloadStatus, facts: Facts) -> Headline | None:
    kafka = facts.kafka
    if kafka is None or not kafka.is_away:
        return None
    cause = f"Kafka ({kafka.address}) has not answered"
    effect = "no query is answered, and nothing is lost; everything below is as of then"
    act = "Look at the broker; do not restart routers or recalibrator"
    return _say(status, "kafka", cause, effect, act, since=kafka.at)


def _silent(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a fit, or a join that feeds it, that no longer reports; without traffic both go on reporting."""
    known = facts.recalibrators
    if known is None or not facts.may_be_silent or (not known and status.updated_at is None):
        return None
    effects = {"fit": "what follows is as of then, and nothing is refitted"}
    for stage, effect in (effects | {"join": "labels and traffic no longer reach the fit"}).items():
        heard = [one.updated_at for one in known if stage in one.stages]
        # What the fit says of a workload is a report as well, on another topic.
        heard += [status.updated_at] if stage == "fit" and status.updated_at is not None else []
        if any(facts.heard_until - at <= SILENT_AFTER for at in heard) or (not heard and stage == "join"):
            continue
        cause, act = f"The {stage} has been silent", "Start the recalibrator again, or read its log"
        return _say(status, f"{stage}_silent", cause, f"{effect}; {_deciding(status)}", act, since=max(heard))
    return None


def _no_room(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a stage that waits for room on its disk, or soon will: queries are answered all the same."""
    live = [one for one in facts.recalibrators or () if facts.heard_until - one.updated_at <= SILENT_AFTER]
    troubled = [(it.ready, name, it.trouble) for one in live for name, it in one.stages.items() if it.trouble]
    if not troubled:
        return None
    (is_ready, name, trouble), then = min(troubled), "labels and traffic no longer reach the fit"
    act, effect = "Free space on its disk", f"{then}; {_deciding(status)}"
    if is_ready:
        effect = f"{trouble}; once it is full, {then}"
        return _say(status, "disk_low", f"The {name}'s disk is nearly full", effect, act)
    return _say(status, "disk_full", f"The {name} waits: {trouble}", effect, act)


def _routers_silent(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of routers that no longer report: without traffic they go on reporting, so that they are gone."""
    routers = that_answer(status.routers)
    silent = [(one.instance_id, one.updated_at) for one in routers if one.silent]
    if not routers:
        # Routers that have been silent for long are in no status: that nobody sends would look the same.
        silent = [(one.instance_id, one.updated_at) for one in that_answer(facts.routers)]
        silent = [] if any(facts.heard_until - at <= SILENT_AFTER for _, at in silent) else silent
    if not silent or not facts.may_be_silent:
        return None
    last, names = max(at for _, at in silent), _listed([name for name, _ in silent])
    if len(silent) >= len(routers):
        quiet = facts.heard_until - max(last, facts.last_query_at or last)
        if quiet < SILENT_AFTER / 2 and facts.heard_until - last <= LONG_SILENT:
            # Queries are answered: reports are late, as where their topic's leader has failed.
            return None
        which = " of the topic" if len(routers) < len(status.routers) else ""
        cause, effect = f"No router ({names}) has reported", f"no query{which} is answered{_queue(status)}"
        return _say(status, "routers_silent", cause, effect, "Start the routers again, or read their logs", since=last)
    rest = len(routers) - len(silent)
    cause = f"{names} {'has' if len(silent) == 1 else 'have'} been silent"
    effect = f"{rest} other {_routers(rest, 'answers', 'answer')} the queries"
    return _say(status, "router_silent", cause, effect, "Start it again, or read its log", since=last)


def _outage(status: WorkloadStatus, facts: Facts) -> Headline | None:
    down = {role for role, server in status.servers if server.state == "down"}
    if not down and status.outage is None:
        return None
    out = status.outage or OutageStatus()
    failing = {"small": out.small_failing, "large": out.large_failing}
    role = min(down) if len(down) == 1 else max(failing, key=failing.__getitem__)
    if not down and (role in _overloaded(status) or role in facts.recovered):
        # The cause of calls that time out, or of those that failed before: to restore a server that answers helps
        # nobody.
        return None
    # The fit itself hears no router: it cannot tell whether the server answers other calls.
    is_there = role not in down and any(name == role for name, _ in status.servers)
    since = facts.outage_since
    cause, act = f"The {role} model fails on {failing[role]:.0%} of calls", facts.server(role)
    if role in down:
        cause = f"The {role} model {'is' if since is None else 'has been'} down"
    if len(down) > 1:
        cause, effect = f"Both models {'are' if since is None else 'have been'} down", "queries wait until one answers"
        act = f"{act} and {facts.server('large')}"
    elif role == "large":
        waits = any(one.settings.get("router.large_outage") == '"wait"' for one in facts.routers)
        quality = "" if status.micro_f1 is None or waits else f", for micro-F1 {status.micro_f1.estimate:.3f}"
        which = "queries whose call fails" if is_there else "queries that would escalate"
        effect = f"{which} {'wait' if waits else 'are served the small answer'}{quality}"
    else:
        alone = "" if status.cost is None else f", for {_paid(status.cost.large_only, facts)} each"
        effect = f"the large model answers {'those queries' if is_there else 'every query'}{alone}"
    act = f"Restore {act}: routers notice by themselves, and no refit is needed"
    if words := _refusals(status, down):
        cause = f"{cause} ({words})"
        act = "Correct the workload's settings or the server: routers notice by themselves, and no refit is needed"
    return _say(status, "models_down" if len(down) > 1 else "outage", cause, effect, act, since=since)


def _refusals(status: WorkloadStatus, down: set[str]) -> str:
    """Return the words of the servers that refuse everybody as configured; empty where none does."""
    reasons = {role: server.reason for role, server in status.servers if server.misconfigured and server.reason}
    roles = sorted(down & reasons.keys())
    return "; ".join(f"{role}: {reasons[role]}" if len(down) > 1 else reasons[role] for role in roles)


def _not_ready(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of routers that report, but answer nothing: none of them has what it needs, nor has just begun."""
    live = [one for one in that_answer(status.routers) if not one.silent]
    beginning = {one.instance_id for one in facts.routers if facts.now - one.started_at < BEGINS_WITHIN}
    if not live or any(one.ready or one.instance_id in beginning for one in live):
        return None
    cause = f"No router is ready ({_listed([one.instance_id for one in live])})"
    effect = f"they report, but answer no query{_queue(status)}"
    return _say(status, "routers_not_ready", cause, effect, "Ask a router's /readyz what is missing")


def _overloaded(status: WorkloadStatus) -> set[str]:
    return {role for role, server in status.servers if server.overloaded}


def _overload(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if not (crowded := _overloaded(status)):
        return None
    role = "large" if "large" in crowded else "small"
    seen = [server for name, server in status.servers if name == role]
    queued, slowest = sum(one.queued for one in seen), max(one.latency_s.get("p99", 0.0) for one in seen)
    slow = f", and one call in a hundred takes {slowest:.1f} s or longer" if slowest else ""
    cause = f"The {role} model is overloaded, and {queued} calls queue for it{slow}"
    effect = "some escalated queries are served the small answer" if role == "large" else "every query waits for it"
    return _say(status, "overload", cause, effect, f"Give {facts.server(role)} more capacity, or send fewer queries")


def _stuck(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of queries that wait while none is answered; where none waits, traffic has merely stopped."""
    quiet = _quiet_since(status, facts)
    if quiet is None or not (waiting := _waiting(status)):
        return None
    act = "Look whether the routers are ready and what their logs say"
    return _say(status, "stuck", f"{waiting} queries wait and none has been answered", "", act, since=quiet)


def _models(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Name the model whose answers got worse, where an alarm lasts or its symptoms do."""
    moved, drifted = change(status), _alarms(status, "drifted")
    outcomes = [one for one in drifted if one.name not in _OF_MIX]
    is_felt = any((_dear(status, facts), _infeasible(status, facts), _below_target(status, facts)))
    small, large = moved.small, moved.large
    is_small, is_large = small is not None and small.is_worse, large is not None and large.is_worse
    by_labels_alone = bool(outcomes) and not any(one.name == "agreement" for one in outcomes)
    if status.state == "bad_labels_suspected" and (by_labels_alone or not outcomes or (is_small and is_large)):
        # Labels that are themselves in doubt accuse no model.
        return None
    if outcomes or is_felt:
        if is_small and is_large:
            cause = "Labels call the answers of both models wrong more often"
            act = "Ask whether labels or queries have another meaning now, and look at both model servers"
            return _worse(status, facts, "both_worse", cause, act, moved)
        # As long as nothing is known of the large model, labels may be what has changed.
        if is_small and (large is not None or not by_labels_alone):
            act = _DEPLOYED.format(facts.server("small"))
            return _worse(status, facts, "small_worse", "The small model answers worse", act, moved)
    cause, act = "The large model answers worse", _DEPLOYED.format(facts.server("large"))
    if is_large and (outcomes or is_felt) and not by_labels_alone:
        return _worse(status, facts, "large_worse", cause, act, moved)
    # By labels alone, of late, where those of the small one's answers show that they are right.
    told = change(status, "large_changed")
    is_new = told.since is not None and facts.now - told.since < _HOUR
    small, large = told.small, told.large
    if small is None or large is None or not (is_new or is_felt):
        return None
    return _worse(status, facts, "large_worse", cause, act, told) if large.is_worse and small.is_spared(large) else None


def _worse(status: WorkloadStatus, facts: Facts, kind: str, cause: str, act: str, moved: Change) -> Headline:
    names = ("large", "small") if kind == "large_worse" else ("small", "large")
    parts = [_wrong(getattr(moved, name), name) for name in names]
    # The cause has named the model already.
    effect = "; ".join(parts).removeprefix(f"the {kind.removesuffix('_worse')} one ") + _price(status, facts)
    return _say(status, kind, cause, effect, act, since=moved.since, link=_what_moved(status, moved.since))


def _wrong(moved: Moved | None, name: str) -> str:
    if moved is None:
        return f"too few labels yet tell of the {name} one"
    if not moved.is_worse:
        return f"the {name} one {'better than before' if moved.is_better else 'as ever'}"
    return f"the {name} one wrong on {moved.since:.0%} of labelled queries, {moved.before:.0%} before"


def _bad_labels(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "bad_labels_suspected":
        return None
    audit = status.detail("label_audit")
    since, held = moment(audit.get("since")) or facts.state_since, audit.get("quarantined")
    what = "contradict what was known of the models"
    if audit.get("suspected") == "errors_where_answers_agree":
        what = "call answers wrong on which both models agree more often than before"
    elif audit.get("suspected") == "few_errors_where_answers_differ":
        what = "call the small model right where the large one differs more often than before"
    some = isinstance(held, int) and held
    effect = f"some {held} of them are taken for slips" if some else "they are believed until refuted"
    trusted = () if facts.workload is None else facts.workload.trusted_labelers
    who = _listed(trusted) if trusted else "Somebody who gave none of these labels (no trusted_labelers are named)"
    act = f"{who} should answer the audits: that decides whether labels or models have gone wrong"
    link = _labelling(status, "Answer the audits", reason="audit")
    effect += _price(status, facts)
    return _say(status, "bad_labels", f"Labels {what}", effect, act, since=since, link=link)


def _one_sided(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "labels_one_sided":
        return None
    silent = "kept" if status.details.get("silent_side") == "kept" else "escalated"
    cause = f"Labels come from {'escalated' if silent == 'kept' else 'kept'} queries only"
    effect = f"nothing shows how good {silent} answers are, and a wider margin is kept{_price(status, facts)}"
    act, link = "Ask people for labels of all queries asked for", _labelling(status)
    return _say(status, "labels_one_sided", cause, effect, act, since=facts.state_since, link=link)


def _label_free(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "label_free":
        return None
    effect = "u and how often both models agree show that traffic changes, not how good answers are"
    effect += _price(status, facts)
    act = "Set labels.per_day of the workload to have some answers judged"
    return _say(status, "label_free", "No labels are asked for", effect, act, since=facts.state_since)


def _drifted(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.drift.state not in ALARMED:
        return None
    alarms, since = _alarms(status, status.drift.state), alarm_since(status)
    # What is only suspected has no cause yet.
    names, link = {one.name for one in alarms if one.state == "drifted"}, _what_moved(status, since)
    if names and names <= _OF_MIX | {"agreement"} and names & _OF_MIX:
        cause, act = "Other queries come in", "Look at what sends them; the fit follows by itself"
        effect = f"u is distributed otherwise, and no label says that a model answers worse{_price(status, facts)}"
        return _say(status, "traffic_moved", cause, effect, act, since=since, link=link)
    if names == {"agreement"}:
        cause = "The models agree less often, or more, than they did at the same u"
        act = f"Was {facts.server('small')} or {facts.server('large')} deployed anew? Labels will tell which"
        return _say(status, "agreement_moved", cause, _price(status, facts)[2:], act, since=since, link=link)
    what = f" in {_listed([one.watches for one in alarms])}" if alarms else ""
    act, link = "Label what is requested", _labelling(status)
    if status.drift.state == "suspected" or _is_open(status, facts):
        cause, effect = f"A change is suspected{what}", _price(status, facts)[2:]
        return _say(status, "suspected", cause, effect, f"{act}: that settles it", since=since, link=link)
    effect = f"new labels count more until it is over{_price(status, facts)}"
    cause, act = f"Queries or models have changed{what}", f"{act}: the fit follows by labels"
    return _say(status, "drift", cause, effect, act, since=since, link=link)


def _dear(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a version that costs more than the large model alone, or far more than recent traffic did."""
    rate, cost = in_force(status, facts)
    if status.calibration_version is None or rate is None or _is_alone(status, facts):
        return None
    seen, span = status.escalation_rate, traffic_span(status)
    past = "" if seen is None else f" ({seen:.1%} over {'recent queries' if span is None else span.words})"
    since = None if status.version is None else status.version.created_at
    large_only = _large_only(status, facts)
    version = f"Version {status.calibration_version}"
    if cost is not None and large_only is not None and cost >= large_only:
        effect = f"by it a query costs {_paid(cost, facts)}, against {_amount(large_only, facts)}"
        effect += f", because it escalates {rate:.1%}{past}"
        cause = f"{version} costs more than the large model alone"
        act, link = "Let the large model answer alone until the cascade costs less again", _button(status, "large_only")
        return _say(status, "dear", cause, effect, act, since=since, link=link)
    if seen is not None and rate - seen > ESCALATION_JUMP:
        act, link = _cheaper(status, facts, rate)
        priced = "" if cost is None else f", for {_paid(cost, facts)} each"
        effect = f"{rate:.1%} of queries{priced}, far more than before{past}"
        return _say(status, "escalation_jump", f"{version} escalates much", effect, act, since=since, link=link)
    return None


def _cheaper(status: WorkloadStatus, facts: Facts, rate: float) -> tuple[str, Link]:
    """Return what to do about a version that escalates too much: its parent where that is sound and escalated less."""
    version = status.version
    if in_doubt(status):
        return f"{_WAIT}: label what is requested", _labelling(status)
    if status.state == "infeasible":
        return _out_of_reach(status, facts)
    if version is not None and version.parent_version is not None and facts.may_return:
        before = version.changed.get("escalation_rate", (None, None))[0]
        if isinstance(before, float) and before < rate:
            back = f"back to version {version.parent_version}"
            link = _button(status, "activate", f"Roll {back}", version=version.parent_version)
            return f"If queries have not changed, roll {back}, which escalated {before:.1%}", link
    act = "See what cheaper thresholds would give, or compare with an earlier version"
    return act, _section(status, "versions", "Versions")


def _is_alone(status: WorkloadStatus, facts: Facts) -> bool:
    return status.large_only is not None and status.large_only.lasts(facts.now)


def _large_alone(status: WorkloadStatus, facts: Facts) -> Headline | None:
    alone = status.large_only
    if alone is None or not _is_alone(status, facts):
        return None
    until = "the cascade costs less again" if alone.until is None else _at(alone.until)
    by = f"by order of {alone.issued_by}, " if alone.issued_by else ""
    effect = f"{by}until {until}; the small model is asked of {alone.small_probability:.0%} of queries"
    link = _button(status, "end_large_only", "Back to the cascade")
    cause, act = "The large model has answered alone", "This ends by itself"
    return _say(status, "large_only", cause, f"{effect}{_price(status, facts)}", act, since=alone.since, link=link)


def _out_of_reach(status: WorkloadStatus, facts: Facts) -> tuple[str, Link]:
    """Return what to do about a target that cannot be reached; where it just was, something else has changed."""
    target, key, since = status.target, f"workloads.{status.workload}.target", _unreached_since(status)
    which = "" if target.fields else ".micro_f1"
    if in_doubt(status):
        return f"{_WAIT}: label what is requested", _labelling(status)
    link = _section(status, "plots", "Quality for cost")
    if since is None or facts.now - since < _HOUR:
        act = "Change no target before it has been out of reach for an hour: look at what has changed"
        return act, _what_moved(status, since) or link
    if target.cost is not None:
        return f"Raise {key}.cost, or lower sampling.exploration_probability, which is paid first", link
    return f"Lower {key}{which} to what can be reached, or use a better large model", link


def _infeasible(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "infeasible":
        return None
    is_plain = status.target.cost is None and not status.target.fields
    curve = status.frontier.micro_f1 if status.frontier is not None and is_plain else ()
    reached = f"the best reaches {max(curve):.3f}" if curve else ""
    effect = f"{reached}{_price(status, facts)}".removeprefix("; ")
    act, link = _out_of_reach(status, facts)
    cause = f"No threshold has {'kept to' if status.target.cost is not None else 'reached'} {status.target}"
    return _say(status, "infeasible", cause, effect, act, since=_unreached_since(status), link=link)


def _unreached_since(status: WorkloadStatus) -> datetime | None:
    return moment(status.details.get("unreached_since"))


def _capped(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of a cap on escalation that binds: it was asked for, and what it costs in quality should be known."""
    remark = of_cap(status.target, status.micro_f1, status.standing)
    if not remark or status.state not in _DECIDING:
        return None
    act = f"Give the large model more room and raise workloads.{status.workload}.target.max_escalation"
    cause, link = f"Version {status.calibration_version} is held back", _section(status, "plots", "Quality for cost")
    return _say(status, "capped", cause, f"{remark}{_price(status, facts)}", act, link=link)


def _below_target(status: WorkloadStatus, facts: Facts) -> Headline | None:
    quality, target = status.micro_f1, status.target
    is_decided = status.state in _DECIDING and not _is_alone(status, facts)
    if not is_decided or quality is None or is_held(target, quality, status.standing):
        return None
    goal = "" if target.micro_f1 is None else f" for a target of {target.micro_f1:g}"
    fields = of_fields(target, status.standing)
    effect = f"micro-F1 {estimated(quality)}{goal}{'; ' if fields else ''}{fields}{_price(status, facts)}"
    cause = f"Version {status.calibration_version} is below its target"
    act = "The next fit moves the threshold; a refit does so at once"
    return _say(status, "below_target", cause, effect, act, link=_button(status, "refit"))


def _alarms(status: WorkloadStatus, *states: str) -> list[DetectorStatus]:
    return [one for one in status.drift.detectors if one.state in states]


def _starved(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state not in ("label_starved", "stale"):
        return None
    since = facts.state_since
    cause = f"{status.labels.effective:.0f} effective labels are too few to move the threshold"
    if status.state == "stale":
        since = moment(status.details.get("last_label_at")) or since
        cause = "No requested label has come in, so that the threshold stands still"
    effect = f"{status.labels.pending} requests wait{_needed(status)}{_price(status, facts)}"
    act, link = "Label what is requested", _labelling(status)
    return _say(status, "label_starvation", cause, effect, act, since=since, link=link)


def _labeler(status: WorkloadStatus, facts: Facts) -> Headline | None:
    """Speak of labelers who are set aside, as long as they go on: what they say is lost."""
    gone = [it.labeler for it in status.labels.by_labeler if it.last_at is not None and facts.now - it.last_at > _HOUR]
    aside = {k: v for k, v in status.detail("labelers_set_aside").items() if k not in gone and isinstance(v, dict)}
    if not aside:
        return None
    who = _listed(sorted(aside))
    since = min((one for v in aside.values() if (one := moment(v.get("since")))), default=None)
    lost = sum(count for v in aside.values() if isinstance(count := v.get("labels"), int))
    cause, effect = f"Labels of {who} differ from everybody else's", f"{lost} are set aside{_price(status, facts)}"
    act = f"Ask {who} how they label; if their labels are right, believe them"
    believe = _button(status, "believe", labeler=who)
    link = believe if len(aside) == 1 else _section(status, "labels", "Labels")
    return _say(status, "labeler_set_aside", cause, effect, act, since=since, link=link)


def _without_result(status: WorkloadStatus, _facts: Facts) -> Headline | None:
    """Speak of labels that find no result, where so many came lately that their sender must be wrong."""
    waiting = status.labels.without_result
    share = None if waiting is None else unusual_share(waiting)
    if waiting is None or share is None:
        return None
    cause = f"{waiting.last_hour} labels of the last hour ({share:.0%}) name a query without a result"
    effect = "none of them counts before its result comes"
    act = f"Check the query ids that the labelers' tool sends; look one up: {look_up(waiting)}"
    return _say(status, "labels_without_result", cause, effect, act, link=_section(status, "labels", "Labels"))


def _letters(status: WorkloadStatus, facts: Facts) -> Headline | None:
    letters, recent = status.dead_letters, facts.letters_last_hour
    if letters is None or recent < FEW_LETTERS:
        return None
    first = letters.by_reason[0] if letters.by_reason else None
    why = "of unknown reason" if first is None else f"{first.reason.replace('_', ' ')} ({first.stage})"
    cause = f"{recent} records were set aside as dead letters in the last hour"
    act = "Fix what sends them, then replay them: ucci-stream dead-letters replay"
    link = _section(status, "dead-letters", "Dead letters")
    return _say(status, "dead_letters", cause, f"mostly {why}", act, link=link)


def _cold_start(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state != "cold_start":
        return None
    if not status.queries:
        waits, begin = "No query has come in yet", "Send queries"
        if facts.recalibrators is not None and not facts.routers:
            waits, begin = "No router has reported yet, and no query has come in yet", "Start a router and send"
        effect = f"until a first version is fitted, both models will answer every query{_needed(status)}"
        return _say(status, "cold_start", waits, effect, f"{begin}, or fit one offline: ucci-stream calibrate")
    cause, link = "Both models have answered every query", _labelling(status)
    if facts.workload is not None and not any(facts.workload.label_shares):
        effect = f"there is no version yet, and no label is asked for that would lead to one{_price(status, facts)}"
        return _say(status, "cold_start", cause, effect, "Fit a first version offline: ucci-stream calibrate")
    labels = f"{status.labels.received} labels are in and {status.labels.pending} requests wait{_needed(status)}"
    effect, since = f"there is no version yet; {labels}{_price(status, facts)}", status.labels.since
    return _say(status, "cold_start", cause, effect, "Label what is requested", since=since, link=link)


def _held(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if status.state not in ("pinned", "paused"):
        return None
    acts, release, what = ["pause"], "resume", "New versions are held back"
    if status.state == "pinned":
        acts, release, what = ["pin", "activate"], "unpin", f"Version {status.calibration_version} is held"
    held_by = next((one for one in reversed(status.commands) if one.action in acts and not one.is_refused), None)
    since = facts.state_since if held_by is None else held_by.issued_at
    cause = what if held_by is None else f"{what} by {held_by.issued_by}"
    effect, link = f"later labels change nothing{_price(status, facts)}", _button(status, release)
    return _say(status, "held", cause, effect, f"Once the reason is gone, {release}", since=since, link=link)


def _quiet(status: WorkloadStatus, facts: Facts) -> Headline | None:
    if (quiet := _quiet_since(status, facts)) is None:
        return None
    ready = sum(one.ready and not one.silent for one in that_answer(status.routers))
    effect = f"the service is up, {ready} {_routers(ready, 'waits', 'wait')} for queries, and {_deciding(status)}"
    act = "If that is not intended, look at what sends the queries"
    return _say(status, "no_traffic", "No query has come in", effect, act, since=quiet)


def _well(status: WorkloadStatus, facts: Facts) -> Headline | None:
    return _say(status, "well", "All is well", f"{_keeping(status)}{_price(status, facts)}")


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
    *(_kafka, _silent, _no_room, _routers_silent, _outage, _not_ready, _overload, _stuck),
    *(_models, _bad_labels, _one_sided, _drifted),
    *(_dear, _infeasible, _capped, _below_target, _without_result, _letters, _cold_start),
    *(_starved, _labeler, _large_alone, _held, _label_free, _quiet, _well),
)
#: Every kind of headline, the gravest first.
_SEVERITIES: dict[str, Severity] = {
    **dict.fromkeys(("kafka", "fit_silent", "join_silent", "disk_full", "routers_silent", "models_down"), "bad"),
    **dict.fromkeys(("outage", "routers_not_ready", "overload", "stuck"), "bad"),
    "router_silent": "warn",
    **dict.fromkeys(("small_worse", "large_worse", "bad_labels", "both_worse"), "bad"),
    **dict.fromkeys(("labels_one_sided", "drift", "agreement_moved", "disk_low", "traffic_moved"), "warn"),
    **dict.fromkeys(("dear", "infeasible"), "bad"),
    **dict.fromkeys(("escalation_jump", "capped", "below_target", "labels_without_result", "dead_letters"), "warn"),
    **dict.fromkeys(("label_starvation", "labeler_set_aside", "suspected"), "warn"),
    **dict.fromkeys(("cold_start", "large_only", "held", "label_free", "no_traffic"), "calm"),
    "well": "good",
}
KINDS = tuple(_SEVERITIES)

#: What services have seen themselves; the rest is concluded from labels and traffic.
OBSERVED = frozenset({*KINDS[: KINDS.index("small_worse")], "disk_low", "labels_without_result"})

#: What versions do while something moves; the cause mostly shows within a minute.
_SYMPTOMS = frozenset({"dear", "infeasible", "escalation_jump", "below_target"})
_OF_A_JUMP = frozenset({"dear", "escalation_jump"})
_SETTLES = timedelta(seconds=60)


def _price(status: WorkloadStatus, facts: Facts) -> str:
    """Return what recent queries have cost, as a clause; before there were any, what the version in force costs."""
    large_only = _large_only(status, facts)
    cost = in_force(status, facts).cost if status.cost is None else status.cost.sequential
    if cost is None or not large_only:
        return ""
    share = 1.0 - cost / large_only
    compared = f"{share:.0%} less" if share >= 0.0 else f"{-share:.0%} more"
    return f"; a query has cost {_paid(cost, facts)} lately, {compared} than the large model alone"


def _paid(cost: float, facts: Facts) -> str:
    return f"{_amount(cost, facts)} {'at token prices' if facts.prices_tokens else 'small calls'}"


def _amount(cost: float, facts: Facts) -> str:
    # The price of a token may be any number; a call of the small model is the unit.
    return f"{cost:.3g}" if facts.prices_tokens else f"{cost:.2f}"


def _large_only(status: WorkloadStatus, facts: Facts) -> float | None:
    known = status.cost or facts.expected_cost
    return None if known is None else known.large_only


def _quiet_since(status: WorkloadStatus, facts: Facts) -> datetime | None:
    """Return when the last query was routed, where that is long ago."""
    # A status also comes with a label, long after the last query.
    last = facts.last_query_at or status.updated_at
    return last if last is not None and status.queries and facts.now - last > QUIET_AFTER else None


def _waiting(status: WorkloadStatus) -> int:
    records = (status.lag or {}).get("records")
    count = records.get(QUERIES.suffix) if isinstance(records, dict) else None
    return count if isinstance(count, int) else 0


def _queue(status: WorkloadStatus) -> str:
    return f", and {count} queries wait" if (count := _waiting(status)) else ""


def _needed(status: WorkloadStatus) -> str:
    needed = status.details.get("labels_needed")
    return f", and about {needed} labels more are needed" if isinstance(needed, int) and needed else ""


def _deciding(status: WorkloadStatus) -> str:
    number = status.calibration_version
    return "both models answer" if number is None else f"version {number} stays in force"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _routers(count: int, one: str, many: str) -> str:
    return f"router {one}" if count == 1 else f"routers {many}"


def _at(moment: datetime) -> str:
    return f"{moment:%d %b %H:%M} UTC"


def _button(status: WorkloadStatus, action: str, label: str = "", **more: object) -> Link:
    """Return the link to an act; ``more`` is what it acts on."""
    query = urlencode({"workload": status.workload, "action": action} | more, quote_via=quote, safe="")
    return Link(label=label or action.replace("_", " ").capitalize(), href=f"/confirm?{query}")


def _what_moved(status: WorkloadStatus, since: datetime | None) -> Link | None:
    place = f"/workloads/{quote(status.workload, safe='')}/what-moved?since="
    return None if since is None else Link(label="What moved?", href=place + quote(rfc3339(since)))


def _section(status: WorkloadStatus, name: str, label: str) -> Link:
    return Link(label=label, href=f"/workloads/{quote(status.workload, safe='')}#{name}")


def _labelling(status: WorkloadStatus, label: str = "Label now", reason: str = "") -> Link:
    where = f"/workloads/{quote(status.workload, safe='')}/label"
    return Link(label=label, href=f"{where}?reason={reason}" if reason else where)
