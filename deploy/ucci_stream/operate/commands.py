"""The operator's subcommands: acts on versions over the API, explanations, dead letters, schemas, checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType
from rich.table import Table

from recalibrator.headlines.without_result import look_up, waiting_line
from schemas.command import Action
from schemas.errors import ConfigError, UcciError
from schemas.event import rfc3339
from schemas.settings import Settings
from schemas.status import LabelsWithoutResult
from ucci_runtime.cli import require_extra
from ucci_stream.options import (
    CHOICE,
    KEY_VARIABLE,
    SOURCES,
    URL_VARIABLE,
    Chosen,
    JsonFlag,
    Outcome,
    command,
    end_by_sigterm,
    has_settings,
    key_of,
    moment_of,
    settings_of,
    show,
    workload_of,
)

if TYPE_CHECKING:
    from ucci_stream.operate.http_api import RecalibratorApi

acts_app = typer.Typer()
notify_app = typer.Typer(help="Notifications. Example: ucci-stream notify test", no_args_is_help=True)
letters_app = typer.Typer(
    help="Records that were set aside. Example: ucci-stream dead-letters list", no_args_is_help=True
)


# Over the API


class Api(NamedTuple):
    """How the API of a running recalibrator is called about one workload."""

    config: Path | None
    workload: str | None
    url: str | None
    key: str | None

    def call(self, use: Callable[[RecalibratorApi, str], Awaitable[Any]]) -> Any:
        """Call the API about a workload: as given, or the only one configured, or the only one that the API has."""
        # An HTTP client takes a third of what a command needs to start, and most commands speak to no API.
        from ucci_stream.operate.http_api import api_of

        settings = None if self.url is not None and not has_settings(self.config) else settings_of(self.config)
        api = api_of(settings, self.url, self.key)

        async def run() -> Any:
            meant = self.workload if settings is None else workload_of(settings, self.workload)
            known = await api.workloads() if meant is None else [meant]
            if len(known) != 1:
                raise ConfigError([f"--workload: several are configured; give one of {', '.join(known)}"])
            return await use(api, known[0])

        return asyncio.run(run())


class Acting(NamedTuple):
    """How the fit is commanded: over the API, why, and how long its outcome is waited for."""

    api: Api
    reason: str
    wait_s: float

    def do(
        self, action: Action, version: int | None = None, *, hold: bool | None = None, **more: float | str | None
    ) -> Outcome:
        """Command the fit; the outcome is in one line. ``hold``: a roll-back until unpinned, or until the next fit."""
        from ucci_stream.operate.http_api import outcome_line

        body = {"reason": self.reason} | ({} if hold is None else {"hold": hold})
        answer = self.api.call(lambda api, one: api.act(one, action, version, body, wait_s=self.wait_s, **more))
        return Outcome(answer, [outcome_line(answer)])


_URL = typer.Option("--url", envvar=URL_VARIABLE, help="Address of the recalibrator's API; by default as configured.")
_KEY = typer.Option(
    "--key",
    envvar=KEY_VARIABLE,
    callback=key_of(f"--key or {KEY_VARIABLE}"),
    help="Key of the scope admin; better given by the variable than on the line.",
)
_WAIT = typer.Option("--wait", min=0.0, max=30.0, help="Seconds to wait until the fit has applied it.")
_API: Mapping[str, tuple[Any, Any]] = {
    **CHOICE,
    "url": (Annotated[str | None, _URL], None),
    "key": (Annotated[str | None, _KEY], None),
}
_ACT: Mapping[str, tuple[Any, Any]] = {
    "reason": (Annotated[str, typer.Option(help="One line, kept with the command.")], ""),
    "wait": (Annotated[float, _WAIT], 10.0),
    **_API,
}
SOURCES[Api] = (_API, Api)
SOURCES[Acting] = (_ACT, lambda reason, wait, **place: Acting(Api(**place), reason, wait))
_WATCH_S = 2.0
VersionToTry = Annotated[int, typer.Argument(min=1, help="The version to try.")]
Labeler = Annotated[str, typer.Argument(help="The name, as feedback gives it.")]


@command(acts_app, "status")
def status(
    api: Api,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Say so whenever it changes, until Ctrl-C.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say how a workload stands, and what to do; exit code 0 while all is well, 3 for a warning, 4 where it is bad.

    Example: ucci-stream status --watch
    """

    async def read(client: RecalibratorApi, chosen: str) -> Outcome:
        return stands(await client.status(chosen), client.url)

    done, said = api.call(read), None
    end_by_sigterm()
    with suppress(KeyboardInterrupt):
        while watch:
            if (now := done.document["headline"]["sentence"]) != said:
                show(done._replace(code=0), as_json=as_json)
                said = now
            time.sleep(_WATCH_S)
            done = api.call(read)
    show(done if said is None else done._replace(lines=()), as_json=as_json and said is None)


@command(acts_app, "versions")
def versions(api: Api, limit: Annotated[int, typer.Option(min=1, help="Versions to show.")] = 20) -> Outcome:
    """List a workload's versions, newest first, the one in force marked.

    Example: ucci-stream versions --json | jq '.versions[0]'
    """
    from ucci_stream.operate.http_api import listed_versions

    async def read(client: RecalibratorApi, chosen: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return await client.status(chosen), await client.versions(chosen)

    status, found = api.call(read)
    return listed_versions(status, found[:limit])


@command(acts_app, "rollback")
def rollback(
    act: Acting,
    version: Annotated[int | None, typer.Argument(min=1, help="By default the one before that in force.")] = None,
    until_refit: Annotated[
        bool, typer.Option("--until-refit", help="Let the next fit replace it; by default it holds until unpinned.")
    ] = False,
) -> Outcome:
    """Put an earlier version in force again, under a new number; it holds until unpinned.

    Example: ucci-stream rollback 7 --reason "F1 fell after 14:00"
    """
    return act.do("activate", version, hold=not until_refit)


@command(acts_app, "pin")
def pin(
    act: Acting, version: Annotated[int | None, typer.Argument(min=1, help="By default the one in force.")] = None
) -> Outcome:
    """Keep a version in force through all refits, until unpinned.

    Example: ucci-stream pin --reason "before the launch"
    """
    return act.do("pin", version)


@command(acts_app, "shadow")
def shadow(act: Acting, version: VersionToTry) -> Outcome:
    """Have routers report what a version would decide, and act on none of it.

    Example: ucci-stream shadow 9
    """
    return act.do("shadow", version)


@command(acts_app, "canary")
def canary(
    act: Acting,
    version: VersionToTry,
    share: Annotated[float, typer.Option(help="Share of queries that it decides, above 0 and up to 1.")],
) -> Outcome:
    """Have a version decide a share of queries.

    Example: ucci-stream canary 9 --share 0.1
    """
    if not 0.0 < share <= 1.0:
        raise ConfigError([f"--share: must be above 0 and up to 1 (got {share:g})"])
    return act.do("canary", version, share=share)


@command(acts_app, "large-only")
def large_only(
    act: Acting,
    until: Annotated[
        str | None, typer.Option(help="RFC 3339 time; by default until the cascade costs less again.")
    ] = None,
) -> Outcome:
    """Have the large model answer alone; the small one is asked of a drawn share, to see when the cascade pays.

    Example: ucci-stream large-only --until 2026-01-31T18:00:00Z
    """
    moment = moment_of(until, "--until")
    return act.do("large_only", until=None if moment is None else rfc3339(moment))


@command(acts_app, "believe")
def believe(act: Acting, labeler: Labeler) -> Outcome:
    """Count the labels of somebody who differs from all others and is right; undone by compare-again.

    Example: ucci-stream believe cleo --reason "labels by the new guide"
    """
    return act.do("believe", labeler=labeler)


@command(acts_app, "compare-again")
def compare_again(act: Acting, labeler: Labeler) -> Outcome:
    """Compare somebody's labels with all others' again, after believe.

    Example: ucci-stream compare-again cleo --reason "the others follow the guide now"
    """
    return act.do("compare_again", labeler=labeler)


def _plain(action: Action, text: str) -> None:

    def act_alone(act: Acting) -> Outcome:
        return act.do(action)

    name = action.replace("_", "-")
    act_alone.__doc__ = f'{text}\n\n    Example: ucci-stream {name} --reason "why"\n    '
    command(acts_app, name)(act_alone)


_plain("unpin", "Let new fits decide again, after a pin or a roll-back.")
_plain("pause", "Publish no new version until resumed; the one in force stays.")
_plain("resume", "Publish new fits again.")
_plain("refit", "Fit a version on the labels so far and publish it at once.")
_plain("end_large_only", "Have the small model answer first again.")
_plain("promote", "Put the version on trial in force, under a new number.")
_plain("stop_trial", "End the trial; the version in force decides every query.")


# Of the topics


@command(acts_app, "explain")
def explain(
    settings: Settings,
    query_id: Annotated[str, typer.Argument(help="The query's id.")],
    since: Annotated[
        str | None, typer.Option(help="RFC 3339 time from which its result is looked for; by default a day ago.")
    ] = None,
) -> Outcome:
    """Show why a query was answered as it was, and what became of its label; reads the topics.

    Example: ucci-stream explain q-17 --since 2026-01-31T12:00:00Z
    """
    from ucci_stream.operate.explanation import lines
    from ucci_stream.operate.kafka_traces import explain as explain_query

    found = explain_query(settings, query_id, moment_of(since) or datetime.now(UTC) - timedelta(days=1))
    return Outcome(found, [f"{name:>12}  {text}" for name, text in lines(found)])


@command(acts_app, "what-moved")
def what_moved(
    chosen: Chosen,
    since: Annotated[str, typer.Option(help="RFC 3339 time; results from then on are compared with those before.")],
    until: Annotated[
        str | None, typer.Option(help="RFC 3339 time; by default now. As long a span before --since is compared.")
    ] = None,
    most: Annotated[int, typer.Option(min=100, max=20_000, help="Results to compare on either side.")] = 2_000,
) -> Outcome:
    """Say what differs between the results before and after a time, the likely cause first; reads the topic.

    Example: ucci-stream what-moved --workload photo-search --since 2026-01-31T02:10:00Z
    """
    require_extra("what-moved", "ucci-stream what-moved")
    from recalibrator.movement import lines
    from ucci_stream.operate.kafka_traces import what_moved as read_what_moved

    start, end = moment_of(since), moment_of(until) or datetime.now(UTC)
    if start is None or start >= end:
        raise ConfigError([f"--since: must lie before {rfc3339(end)}, until when results are compared (got {since})"])
    found = read_what_moved(chosen.settings, chosen.workload.name, start, end, most)
    return Outcome(found, lines(found))


@command(acts_app, "acls")
def acls(
    settings: Settings,
    principal_router: Annotated[str | None, typer.Option(help="Of the routers, such as User:router.")] = None,
    principal_gateway: Annotated[str | None, typer.Option(help="Of who runs `stream-router serve`.")] = None,
    principal_recalibrator: Annotated[str | None, typer.Option(help="Of the recalibrators.")] = None,
    principal_producer: Annotated[str | None, typer.Option(help="Of who calls `send` and `ask`.")] = None,
    principal_labeler: Annotated[str | None, typer.Option(help="Of who calls `label` and `label-queue`.")] = None,
    principal_label_tool: Annotated[str | None, typer.Option(help="Of who runs `label-studio sync`.")] = None,
    principal_operator: Annotated[str | None, typer.Option(help="Of who calls `doctor`, `topics check`.")] = None,
    form: Annotated[str, typer.Option("--format", help="kafka-acls or strimzi.")] = "kafka-acls",
    strimzi_cluster: Annotated[str, typer.Option(help="Name of the Kafka resource, for strimzi.")] = "my-cluster",
) -> Outcome:
    """Print the least access that each component needs on a broker with an authorizer; changes nothing.

    Example: ucci-stream acls --principal-router User:router --principal-recalibrator User:recalibrator
    """
    from ucci_stream.topics import access

    callers = (principal_producer, principal_labeler, principal_label_tool, principal_operator)
    given = (principal_router, principal_gateway, principal_recalibrator, *callers)
    principals = access.checked_principals(dict(zip(access.COMPONENTS, given, strict=True)))
    prefix = settings.topics.prefix
    if form == "strimzi":
        users = (access.strimzi_user(*one, prefix, strimzi_cluster) for one in principals.items())
        lines = access.yaml_documents(users).splitlines()
    elif form == "kafka-acls":
        lines = access.kafka_acls(principals, prefix)
    else:
        raise ConfigError([f"--format: is {form!r}; give kafka-acls or strimzi"])
    return Outcome(access.as_rows(principals, prefix), lines)


@command(acts_app, "doctor")
def doctor(settings: Settings) -> Outcome:
    """Look at the broker, groups, models, versions, labels and disk, and name the remedy of whatever is wrong.

    Exit code 1 where something does not work, 0 where there are only warnings. Reads topics; writes nothing.

    Example: ucci-stream doctor --config ucci.toml
    """
    from ucci_stream.operate.findings import summary
    from ucci_stream.operate.kafka_diagnosis import diagnose, finding_lines

    found = diagnose(settings)
    counts = summary(found)
    document = {"summary": counts, "findings": [finding._asdict() for finding in found]}
    return Outcome(document, finding_lines(found), int(counts["fault"] > 0))


# Notifications


@notify_app.callback()
def _notify() -> None:
    """Keep ``test`` a command of its own."""


@command(notify_app, "test")
def notify_test(
    settings: Settings, webhook: Annotated[str | None, typer.Option(help="Only this one of [notify.webhooks].")] = None
) -> Outcome:
    """Send a test message to each configured webhook; exit code 1 where one does not take it.

    Example: ucci-stream notify test --webhook ops
    """
    from recalibrator.notify.http_webhook import post_tests

    known = settings.notify.webhooks
    if not known:
        raise ConfigError(["notify.webhooks: none is configured; add a table [notify.webhooks.NAME] with a url"])
    if webhook is not None and webhook not in known:
        raise ConfigError([f"--webhook: {webhook} is not configured; give one of {', '.join(known)}"])
    names, workload = list(known) if webhook is None else [webhook], next(iter(settings.workloads), "test")
    tests = post_tests(settings.notify, names, workload, datetime.now(UTC))
    attempts = dict(zip(names, asyncio.run(tests), strict=True))
    document = {name: attempt._asdict() for name, attempt in attempts.items()}
    taken = {name: attempt.outcome == "delivered" for name, attempt in attempts.items()}
    lines = [f"{name}: {'' if taken[name] else 'not '}delivered ({one.detail})" for name, one in attempts.items()]
    return Outcome(document, lines, int(not all(taken.values())))


# Dead letters

StageOption = Annotated[str | None, typer.Option(help="Only those set aside by route, join or fit.")]
ReasonOption = Annotated[str | None, typer.Option(help="Only those of this reason, such as models_failed.")]
TopicOption = Annotated[str | None, typer.Option(help="Only those of this topic, such as queries.")]
SinceOption = Annotated[str | None, typer.Option(help="Only those since this RFC 3339 time.")]
_ERROR_CHARS = 80
_WHY = {
    "not_replayable": "written by the services alone",
    "truncated": "the record was cut when it was set aside",
    "replayed_before": "replayed before",
    "too_old": "older than what their topic keeps, so that nobody can tell whether they were replayed",
    "answered": "the query has a result",
}


class NoSuchLetter(UcciError):
    """No dead letter stands at that place."""


@command(letters_app, "list")
def list_letters(
    settings: Settings,
    stage: StageOption = None,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
) -> Outcome:
    """Count dead letters by reason, with the first and the last of each.

    Example: ucci-stream dead-letters list --since 2026-01-31T12:00:00Z
    """
    from ucci_stream.operate.kafka_letters import Selection, grouped, read_letters

    groups = grouped(read_letters(settings, Selection(stage, reason, topic, moment_of(since))))
    table = Table("stage", "reason", "topic", "count", "first", "last", "last place", "last error")
    for group in groups:
        error = group["last_error"]
        error = error if len(error) <= _ERROR_CHARS else error[: _ERROR_CHARS - 1] + "…"
        times = (group[name][5:19].replace("T", " ") for name in ("first_at", "last_at"))
        named = (str(group[name]) for name in ("stage", "reason", "topic", "count"))
        table.add_row(*(cell.replace("[", "\\[") for cell in (*named, *times, group["last_place"], error)))
    return Outcome({"groups": groups}, [table if groups else "no dead letters"])


@command(letters_app, "show")
def show_letter(
    settings: Settings,
    place: Annotated[str, typer.Argument(help="PARTITION/OFFSET on the topic of dead letters, as `list` shows it.")],
) -> Outcome:
    """Show one dead letter: why it was set aside, and the record itself.

    Example: ucci-stream dead-letters show 0/17
    """
    from ucci_stream.operate.kafka_letters import Selection, read_letters

    for letter in read_letters(settings, Selection(places=frozenset({place}))):
        document = letter.document(whole=True)
        return Outcome(document, [f"{name:>10}  {value}" for name, value in document.items()])
    raise NoSuchLetter(f"{place}: no dead letter stands there (any more); see `ucci-stream dead-letters list`")


@command(letters_app, "replay")
def replay_letters(
    settings: Settings,
    places: Annotated[
        list[str] | None, typer.Argument(help="PARTITION/OFFSET of letters; none: as the options say.")
    ] = None,
    stage: StageOption = None,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All that can be replayed.")] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Records a second.")] = 100.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> Outcome:
    """Send the records of dead letters through again: queries and feedback, each letter once, however often this runs.

    Left out are letters replayed before, queries that have a result, cut records, and what the services write.

    Example: ucci-stream dead-letters replay --reason models_failed --rate 50 --dry-run
    """
    from ucci_stream.operate.kafka_letters import Selection
    from ucci_stream.operate.kafka_letters import replay_letters as replay

    selection = Selection(stage, reason, topic, moment_of(since), frozenset(places or ()))
    if selection == Selection() and not everything:
        raise ConfigError(["dead-letters replay: name letters, or --reason, --stage, --topic, --since, or --all"])
    done = replay(settings, selection, rate=rate, dry_run=dry_run)
    verb = "would be replayed" if dry_run else "replayed"
    where = ", ".join(f"{count} to {name}" for name, count in sorted(done.by_topic.items()))
    lines = [f"{done.by_topic.total()} {verb}{f': {where}' if where else ''}"]
    lines += [f"{count} left out: {_WHY[why]}" for why, count in sorted(done.skipped.items())]
    document = {"dry_run": dry_run, "replayed": done.by_topic.total(), **done._asdict()}
    return Outcome(document, lines)


#: Exit codes by severity; 1 and 2 stay with what could not be asked.
CODES = {"good": 0, "calm": 0, "warn": 3, "bad": 4}


def stands(status: Mapping[str, Any], url: str) -> Outcome:
    """Return what an API says of a workload, with the address of the act."""
    one = status["headline"]
    act = " ".join(filter(None, (one["act"], one["link"] and f"{url}{one['link']['href']}")))
    numbers = _numbers(status)
    table = Table(*numbers, box=None, pad_edge=False)
    table.add_row(*numbers.values())
    lines: list[RenderableType] = [f"{status['workload']}: {one['sentence']}", *([act] if act else []), table]
    document = {"workload": status["workload"], "headline": one, "numbers": numbers}
    if (told := status["labels"].get("without_result")) is not None:
        waiting = LabelsWithoutResult.model_validate(told)
        document["labels_without_result"] = waiting.model_dump(mode="json")
        if line := waiting_line(waiting, datetime.now(UTC)):
            lines.append(f"{line}; look one up: {look_up(waiting)}")
    return Outcome(document, lines, CODES[one["severity"]])


def _numbers(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the five numbers that people ask for; a dash where nobody knows."""
    quality, cost, target = status["micro_f1"], status["cost"], status["target"]
    served = status["details"].get("served") or {}
    queries = sum(served.get(name, 0) for name in ("small", "large", "degraded"))
    goal = "" if target.get("micro_f1") is None else f" for {target['micro_f1']:g}"
    rate, saved = status["escalation_rate"], status["saving"]
    waiting = ((status["lag"] or {}).get("records") or {}).get("queries")
    less = "" if saved is None else _saved(saved["sequential"])
    return {
        "micro-F1": "–" if quality is None else f"{quality['estimate']:.3f}{goal}",
        "escalated": "–" if rate is None else f"{rate:.1%}",
        "cost": "–" if cost is None else f"{cost['sequential']:.2f}{less}",
        "degraded": f"{served.get('degraded', 0)} of {queries}" if queries else "–",
        "waiting": "–" if waiting is None else str(waiting),
    }


def _saved(share: float) -> str:
    return f", {share:.0%} saved" if share >= 0.0 else f", {-share:.0%} more than the large model alone"
