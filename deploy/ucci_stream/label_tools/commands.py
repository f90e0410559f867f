"""``ucci-stream label-studio`` and ``trace-scores``: each command is one call and what it printed."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

import typer

from ucci_stream.options import Chosen, JsonFlag, Outcome, command, key_of

studio_app = typer.Typer(
    help="Label with Label Studio. Example: ucci-stream label-studio setup --url http://127.0.0.1:8090",
    no_args_is_help=True,
)
scores_app = typer.Typer(
    help="Label by scores of traces. Example: ucci-stream trace-scores sync phoenix --url http://127.0.0.1:6006",
    no_args_is_help=True,
)
UrlOption = Annotated[str, typer.Option("--url", envvar="LABEL_STUDIO_URL", help="Address of Label Studio.")]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="LABEL_STUDIO_API_KEY",
        callback=key_of("--token or LABEL_STUDIO_API_KEY"),
        help="Personal access token, or a legacy token where the organisation allows them.",
        show_envvar=True,
    ),
]
ProjectOption = Annotated[
    int | None, typer.Option(min=1, help="Number of an existing project; by default the one that setup makes.")
]
EveryOption = Annotated[
    float | None, typer.Option(min=1.0, max=86_400.0, help="Seconds between rounds, until SIGTERM; else one round.")
]
MostOption = Annotated[int, typer.Option(min=1, max=1_000_000, help="Tasks that may wait for an annotator.")]


@command(studio_app, "setup")
def setup(
    chosen: Chosen,
    url: UrlOption,
    token: TokenOption,
    project: ProjectOption = None,
    hook_url: Annotated[
        str | None, typer.Option(help="Where Label Studio reaches the recalibrator; none: sync brings all labels.")
    ] = None,
    hook_key: Annotated[
        str | None,
        typer.Option(
            envvar="LABEL_STUDIO_HOOK_KEY",
            callback=key_of("--hook-key or LABEL_STUDIO_HOOK_KEY"),
            help="Key of the scope relay that the webhook sends.",
        ),
    ] = None,
    replace_config: Annotated[
        bool, typer.Option("--replace-config", help="Replace a labeling configuration that was changed.")
    ] = False,
) -> Outcome:
    """Make a workload's project, its labeling configuration and the webhook; safe to repeat.

    Example: ucci-stream label-studio setup --url http://127.0.0.1:8090 --hook-url http://127.0.0.1:8080
    """
    from ucci_stream.label_tools.label_studio_client import LabelStudio
    from ucci_stream.label_tools.label_studio_project import hook_address, hook_headers, set_up

    hook = None if hook_url is None else (hook_address(hook_url), hook_headers(chosen.settings, hook_key))
    studio = LabelStudio(url, token)
    done = asyncio.run(set_up(studio, chosen.workload, project=project, hook=hook, replace_config=replace_config))
    kept = "; it differs from the generated one, --replace-config replaces it" if done.config == "kept" else ""
    return Outcome(
        asdict(done),
        [
            f"project {done.project} {done.title!r}: {'created' if done.created else 'exists'}",
            f"labeling configuration: {done.config}{kept}",
            f"webhook: {done.webhook}{'' if hook is None else f' ({hook[0]})'}",
        ],
    )


@command(studio_app, "sync")
def sync(
    chosen: Chosen,
    url: UrlOption,
    token: TokenOption,
    project: ProjectOption = None,
    every: EveryOption = None,
    most: MostOption = 1_000,
    grace: Annotated[
        float, typer.Option(min=0.0, help="Seconds that a task stays whose request is over; somebody may have it open.")
    ] = 600.0,
    prefill: Annotated[
        bool, typer.Option("--prefill/--no-prefill", help="Whether the served answer stands in the fields.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Push what to label as tasks, and bring back every label that the webhook did not.

    Example: ucci-stream label-studio sync --url http://127.0.0.1:8090 --every 30
    """
    from ucci_stream.label_tools.label_studio_project import open_project
    from ucci_stream.label_tools.sync import Rounds, SyncOptions

    options = SyncOptions(most=most, grace_s=grace, every_s=every, as_json=as_json)
    open_tool = partial(open_project, (url, token), chosen.workload, project, prefill)
    asyncio.run(Rounds(chosen.settings, chosen.workload.name, options).run(open_tool))


@command(scores_app, "sync")
def sync_scores(
    chosen: Chosen,
    service: Annotated[Literal["phoenix", "langfuse"], typer.Argument(help="Which one.")],
    url: Annotated[str, typer.Option("--url", help="Its address.")],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            envvar="UCCI_TRACES_KEY",
            callback=key_of("--key or UCCI_TRACES_KEY"),
            help="Phoenix's, where it has some; Langfuse's PUBLIC:SECRET.",
        ),
    ] = "",
    project: Annotated[str, typer.Option(help="Of Phoenix; Langfuse's keys name theirs.")] = "default",
    score: Annotated[str, typer.Option(help="Name of the scores that say right or wrong.")] = "correctness",
    results: Annotated[int, typer.Option(min=1, help="Latest results whose traces are known.")] = 100_000,
    every: EveryOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take scores of people as verdicts and corrections, and write labels back to their traces.

    Example: ucci-stream trace-scores sync phoenix --url http://127.0.0.1:6006 --every 60
    """
    from ucci_stream.label_tools.sync import SyncOptions
    from ucci_stream.label_tools.trace_sync import Langfuse, Phoenix, TraceRounds

    settings, memory = chosen.settings, timedelta(seconds=chosen.settings.recalibrator.join_retention_s)

    async def open_traces(_closing: asyncio.Event) -> Phoenix | Langfuse:
        if service == "phoenix":
            return Phoenix(url, project, score, memory, f"Bearer {key}" if key else None)
        return Langfuse(url, key, score, memory)

    options = SyncOptions(most=results, every_s=every, as_json=as_json)
    asyncio.run(TraceRounds(settings, chosen.workload.name, options).run(open_traces))
