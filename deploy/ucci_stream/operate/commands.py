"""``ucci-stream versions``, ``rollback``, ``pin`` and the other acts of the page, over the recalibrator's HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.command import Action
from schemas.errors import ConfigError
from schemas.event import rfc3339
from schemas.settings import Settings
from ucci_stream.options import (
    KEY_VARIABLE,
    URL_VARIABLE,
    ConfigOption,
    Console,
    JsonFlag,
    has_settings,
    moment_of,
    settings_of,
    workload_of,
)

if TYPE_CHECKING:
    from ucci_stream.operate.http_api import RecalibratorApi

UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar=URL_VARIABLE, help="Address of the recalibrator's API; by default as configured."),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", envvar=KEY_VARIABLE, help="Key of the scope admin; better given by the variable than on the line."
    ),
]
WorkloadOption = Annotated[str | None, typer.Option(help="Needed where several are configured.")]
ReasonOption = Annotated[str, typer.Option(help="One line, kept with the command.")]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0.0, max=30.0, help="Seconds to wait until the fit has applied it.")
]
DEFAULT_WAIT_S = 10.0
out = Console()


notify_app = typer.Typer(help="Notifications. Example: ucci-stream notify test", no_args_is_help=True)


@notify_app.callback()
def _notify() -> None:
    """Keep ``test`` a command of its own."""


@notify_app.command("test")
def notify_test(
    webhook: Annotated[str | None, typer.Option(help="Only this one of [notify.webhooks].")] = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send a test message to each configured webhook; exit code 1 where one does not take it.

    Example: ucci-stream notify test --webhook ops
    """
    from ucci_stream.operate.webhook_check import send_tests

    attempts = send_tests(settings_of(config), webhook)
    if as_json:
        out.print_json(data={name: attempt._asdict() for name, attempt in attempts.items()})
    else:
        for name, attempt in attempts.items():
            taken = "delivered" if attempt.outcome == "delivered" else "not delivered"
            out.print(f"{name}: {taken} ({attempt.detail})", highlight=False, markup=False, soft_wrap=True)
    if any(attempt.outcome != "delivered" for attempt in attempts.values()):
        raise typer.Exit(1)


acts_app = typer.Typer()


def add_commands(app: typer.Typer) -> None:
    """Add the acts, ``explain``, ``what-moved`` and ``notify`` to the operator's command."""
    app.add_typer(notify_app, name="notify")
    app.registered_commands += acts_app.registered_commands


@acts_app.command("versions")
def versions(
    config: ConfigOption = None,
    workload: WorkloadOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Versions to show.")] = 20,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List a workload's versions, newest first, the one in force marked.

    Example: ucci-stream versions --json | jq '.versions[0]'
    """
    from ucci_stream.operate.acts import show_versions

    async def read(api: RecalibratorApi, chosen: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return await api.status(chosen), await api.versions(chosen)

    status, found = _with_api(config, workload, url, key, read)
    show_versions(status, found[:limit], out, as_json=as_json)


@acts_app.command("rollback")
def rollback(
    version: Annotated[int | None, typer.Argument(min=1, help="By default the one before that in force.")] = None,
    until_refit: Annotated[
        bool, typer.Option("--until-refit", help="Let the next fit replace it; by default it holds until unpinned.")
    ] = False,
    reason: ReasonOption = "",
    config: ConfigOption = None,
    workload: WorkloadOption = None,
    wait: WaitOption = DEFAULT_WAIT_S,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Put an earlier version in force again, under a new number; it holds until unpinned.

    Example: ucci-stream rollback 7 --reason "F1 fell after 14:00"
    """
    from ucci_stream.operate.acts import Act

    act = Act("activate", reason, wait, version, hold=not until_refit)
    _act(config, workload, url, key, act, as_json=as_json)


@acts_app.command("pin")
def pin(
    version: Annotated[int | None, typer.Argument(min=1, help="By default the one in force.")] = None,
    reason: ReasonOption = "",
    config: ConfigOption = None,
    workload: WorkloadOption = None,
    wait: WaitOption = DEFAULT_WAIT_S,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep a version in force through all refits, until unpinned.

    Example: ucci-stream pin --reason "before the launch"
    """
    from ucci_stream.operate.acts import Act

    _act(config, workload, url, key, Act("pin", reason, wait, version), as_json=as_json)


@acts_app.command("shadow")
def shadow(
    version: Annotated[int, typer.Argument(min=1, help="The version to try.")],
    reason: ReasonOption = "",
    config: ConfigOption = None,
    workload: WorkloadOption = None,
    wait: WaitOption = DEFAULT_WAIT_S,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Have routers report what a version would decide, and act on none of it.

    Example: ucci-stream shadow 9
    """
    from ucci_stream.operate.acts import Act

    _act(config, workload, url, key, Act("shadow", reason, wait, version), as_json=as_json)


@acts_app.command("canary")
def canary(
    version: Annotated[int, typer.Argument(min=1, help="The version to try.")],
    share: Annotated[float, typer.Option(help="Share of queries that it decides, above 0 and up to 1.")],
    reason: ReasonOption = "",
    config: ConfigOption = None,
    workload: WorkloadOption = None,
    wait: WaitOption = DEFAULT_WAIT_S,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Have a version decide a share of queries.

    Example: ucci-stream canary 9 --share 0.1
    """
    from ucci_stream.operate.acts import Act

    if not 0.0 < share <= 1.0:
        raise ConfigError([f"--share: must be above 0 and up to 1 (got {share:g})"])
    _act(config, workload, url, key, Act("canary", reason, wait, version, share), as_json=as_json)


@acts_app.command("explain")
def explain(
    query_id: Annotated[str, typer.Argument(help="The query's id.")],
    since: Annotated[
        str | None, typer.Option(help="RFC 3339 time from which its result is looked for; by default a day ago.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page to this file.")] = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show why a query was answered as it was, and what became of its label; reads the topics.

    Example: ucci-stream explain q-17 --since 2026-01-31T12:00:00Z --html q-17.html
    """
    from ucci_stream.operate.explanation_page import explanation_page
    from ucci_stream.operate.kafka_traces import explain as explain_query
    from ucci_stream.operate.kafka_traces import show_explanation

    start = moment_of(since) or datetime.now(UTC) - timedelta(days=1)
    found = explain_query(settings_of(config), query_id, start)
    if html is not None:
        _write(html, explanation_page(found))
    show_explanation(found, out, as_json=as_json)


@acts_app.command("what-moved")
def what_moved(
    since: Annotated[str, typer.Option(help="RFC 3339 time; results from then on are compared with those before.")],
    until: Annotated[
        str | None, typer.Option(help="RFC 3339 time; by default now. As long a span before --since is compared.")
    ] = None,
    workload: WorkloadOption = None,
    most: Annotated[int, typer.Option(min=100, max=20_000, help="Results to compare on either side.")] = 2_000,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what differs between the results before and after a time, the likely cause first; reads the topic.

    Example: ucci-stream what-moved --workload photo-search --since 2026-01-31T02:10:00Z
    """
    from ucci_runtime.extras import require_extra

    require_extra("what-moved", "ucci-stream what-moved")
    from ucci_stream.operate.kafka_movement import show_movements
    from ucci_stream.operate.kafka_movement import what_moved as read_what_moved

    settings, start, end = settings_of(config), moment_of(since), moment_of(until) or datetime.now(UTC)
    if start is None or start >= end:
        raise ConfigError([f"--since: must lie before {rfc3339(end)}, until when results are compared (got {since})"])
    found = read_what_moved(settings, workload_of(settings, workload), start, end, most)
    show_movements(found, out, as_json=as_json)


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html {path}: {error.strerror}; name a file that can be written") from None


def _plain(action: Action, text: str) -> Callable[..., None]:
    """Return the command of an act that takes no version."""

    def command(
        reason: ReasonOption = "",
        config: ConfigOption = None,
        workload: WorkloadOption = None,
        wait: WaitOption = DEFAULT_WAIT_S,
        url: UrlOption = None,
        key: KeyOption = None,
        as_json: JsonFlag = False,
    ) -> None:
        from ucci_stream.operate.acts import Act

        _act(config, workload, url, key, Act(action, reason, wait), as_json=as_json)

    command.__doc__ = f'{text}\n\n    Example: ucci-stream {action.replace("_", "-")} --reason "why"\n    '
    return command


_PLAIN: tuple[tuple[Action, str], ...] = (
    ("unpin", "Let new fits decide again, after a pin or a roll-back."),
    ("pause", "Publish no new version until resumed; the one in force stays."),
    ("resume", "Publish new fits again."),
    ("refit", "Fit a version on the labels so far and publish it at once."),
    ("promote", "Put the version on trial in force, under a new number."),
    ("stop_trial", "End the trial; the version in force decides every query."),
)
for _action, _text in _PLAIN:
    acts_app.command(_action.replace("_", "-"))(_plain(_action, _text))


def _act(
    config: Path | None, workload: str | None, url: str | None, key: str | None, act: Any, *, as_json: bool
) -> None:
    from ucci_stream.operate.acts import perform, show_outcome

    answer = _with_api(config, workload, url, key, lambda api, chosen: perform(api, chosen, act))
    show_outcome(answer, out, as_json=as_json)


def _with_api(
    config: Path | None,
    workload: str | None,
    url: str | None,
    key: str | None,
    use: Callable[[RecalibratorApi, str], Awaitable[Any]],
) -> Any:
    """Call the API about one workload: as given, or the only one configured, or the only one that the API has."""
    # An HTTP client takes a third of what a command needs to start, and most commands speak to no API.
    from ucci_stream.operate.http_api import RecalibratorApi, place_of

    settings = None if url is not None and not has_settings(config) else settings_of(config)
    place = place_of(settings, url, key)

    async def run() -> Any:
        async with RecalibratorApi(place) as api:
            return await use(api, await _workload_meant(api, settings, workload))

    return asyncio.run(run())


async def _workload_meant(api: RecalibratorApi, settings: Settings | None, workload: str | None) -> str:
    if settings is not None:
        return workload_of(settings, workload)
    if workload is not None:
        return workload
    known = await api.workloads()
    if len(known) != 1:
        raise ConfigError([f"--workload: several are configured; give one of {', '.join(known)}"])
    return known[0]
