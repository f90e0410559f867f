"""``ucci-stream``: the operator's command. A subcommand reads its arguments, makes one call and prints the outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from schemas.calibration import CalibrationVersion
from schemas.errors import ConfigError, UcciError
from schemas.label_requested import RequestReason
from schemas.settings_text import render_settings, settings_warnings
from ucci_runtime.cli import version_option
from ucci_runtime.extras import require_extra
from ucci_stream.label_tools.commands import files_app, studio_app
from ucci_stream.operate.commands import add_commands
from ucci_stream.operate.letter_commands import letters_app
from ucci_stream.options import STACK_DIRECTORY, ConfigOption, JsonFlag, settings_of, workload_of

app = typer.Typer(
    help="Stream queries through an LLM cascade that recalibrates itself. Start with: ucci-stream demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="Create or check the topics. Example: ucci-stream topics create", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
app.add_typer(studio_app, name="label-studio")
app.add_typer(files_app, name="label-files")
app.add_typer(letters_app, name="dead-letters")

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw it to this file as well, PNG or SVG by its ending.")
]
_PICTURES = (".png", ".svg")
BrokerOption = Annotated[
    str, typer.Option("--broker", help="auto, kafka (start one from jars) or HOST:PORT of a running one.")
]
ModelsOption = Annotated[str, typer.Option("--models", help="recorded (the two tiny demo models) or vllm.")]

VersionOption = Annotated[bool, version_option("ucci-stream")]

out = Console()
err = Console(stderr=True)


@app.callback()
def options(version: VersionOption = False) -> None:
    """Take the options that stand before a subcommand."""


@app.command()
def demo(
    seconds: Annotated[int, typer.Option(min=20, help="How long queries stream.")] = 100,
    queries: Annotated[int | None, typer.Option(min=1_000, help="How many queries; by default as many as fit.")] = None,
    broker: BrokerOption = "auto",
    models: ModelsOption = "recorded",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running until Ctrl-C.")] = False,
    summary: Annotated[Path | None, typer.Option("--json", help="Write the summary to this file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the traffic, the labels and the kill.")] = 1,
    directory: Annotated[Path, typer.Option(help="Where configuration, logs and results go.")] = STACK_DIRECTORY,
) -> None:
    """Run the whole system on this machine, with drift, late labels and a killed router.

    Exit code 0 when nothing was lost or doubled and the target was held again after the drift.

    Example: ucci-stream demo --seconds 60 --json summary.json
    """
    require_extra("demo", "ucci-stream demo")
    from ucci_stream.demo.run import DemoOptions, run_demo

    options = DemoOptions(
        seconds=seconds,
        queries=queries,
        broker=broker,
        models=models,
        keep=keep,
        summary_path=summary,
        seed=seed,
        directory=directory,
    )
    raise typer.Exit(run_demo(options, out))


@app.command()
def up(
    broker: BrokerOption = "auto",
    models: ModelsOption = "recorded",
    directory: Annotated[Path, typer.Option(help="Where configuration, logs and state go.")] = STACK_DIRECTORY,
) -> None:
    """Start the same stack without traffic, until Ctrl-C.

    Example: ucci-stream up, and in another terminal: ucci-stream ask "canon 5d f2.8 at night"
    """
    require_extra("demo", "ucci-stream up")
    from ucci_stream.local.stack import StackOptions, run_until_interrupted

    run_until_interrupted(StackOptions(directory=directory, broker=broker, models=models), out)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="The query.")],
    config: ConfigOption = None,
    workload: Annotated[str | None, typer.Option(help="Needed where several are configured.")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the result.")] = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """Send one query through the running service and show the decision and both models' answers.

    Example: ucci-stream ask "canon 5d f2.8 at night" --json
    """
    from ucci_stream.topics.ask import ask as ask_service
    from ucci_stream.topics.ask import show_answer

    settings = settings_of(config)
    asked = ask_service(settings, text, workload_of(settings, workload), timeout_s)
    show_answer(settings, asked, out, as_json=as_json)


@topics_app.command("create")
def topics_create(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Create the missing topics and check the others; safe to repeat.

    Example: ucci-stream topics create --config ucci.toml
    """
    from ucci_stream.topics.admin import create_topics

    done = create_topics(settings_of(config))
    if as_json:
        out.print_json(data={"created": done.created, "existing": done.existing})
        return
    for name in done.created:
        out.print(f"created  {name}", highlight=False)
    for name in done.existing:
        out.print(f"exists   {name}", highlight=False)


@topics_app.command("check")
def topics_check(config: ConfigOption = None) -> None:
    """Compare the broker's topics with what the services need; exit code 1 when a policy is wrong.

    Example: ucci-stream topics check
    """
    from ucci_stream.topics.admin import check_topics

    for warning in check_topics(settings_of(config)):
        err.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)
    out.print("all topics are as they must be")


@app.command()
def send(
    file: Annotated[Path, typer.Argument(help="JSONL, one QueryEvent a line; - for standard input.")],
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send queries from a JSONL file.

    Example: ucci-stream send queries.jsonl
    """
    from ucci_stream.topics.feed import send_queries

    fed = send_queries(settings_of(config), file, err)
    _say_fed(fed.topic, fed.records, as_json=as_json)


@app.command()
def label(
    file: Annotated[Path, typer.Argument(help="JSONL, one FeedbackEvent a line; - for standard input.")],
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send labelers' feedback from a JSONL file.

    Example: ucci-stream label gold.jsonl
    """
    from ucci_stream.topics.feed import send_feedback

    fed = send_feedback(settings_of(config), file, err)
    _say_fed(fed.topic, fed.records, as_json=as_json)


@app.command("label-queue")
def label_queue(
    config: ConfigOption = None,
    workload: Annotated[str | None, typer.Option(help="Needed where several are configured.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Requests to show.")] = 20,
    reason: Annotated[RequestReason | None, typer.Option(help="Only those requested for this reason.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what to label next, newest first, and what more labels would buy.

    Example: ucci-stream label-queue --limit 100 --json | jq -c '.requests[]'
    """
    from ucci_stream.label_tools.label_queue import read_queue, show_queue

    settings = settings_of(config)
    show_queue(read_queue(settings, workload_of(settings, workload), limit, reason), out, as_json=as_json)


def _say_fed(topic: str, records: int, *, as_json: bool) -> None:
    if as_json:
        out.print_json(data={"topic": topic, "acknowledged": records})
    else:
        out.print(f"{records} records acknowledged by {topic}", highlight=False)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="JSONL, one LabelledExample a line; - for standard input.")],
    config: ConfigOption = None,
    workload: Annotated[str | None, typer.Option(help="Needed where several are configured.")] = None,
    plot: PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Feed recorded examples through the recalibration core, offline, and print the versions it would publish.

    Example: ucci-stream replay recorded.jsonl --plot versions.png
    """
    from ucci_stream.offline.replay import replay as replay_file

    settings = settings_of(config)
    picture = _picture(plot)
    table = Table("line", "version", "state", "u threshold", "theta", "escalation", "micro-F1", "trigger")
    versions = []
    for line, version in replay_file(settings.workloads[workload_of(settings, workload)], file):
        versions.append((line, version))
        if as_json:
            sys.stdout.write(version.to_json().decode() + "\n")
        else:
            table.add_row(str(line), *_version_row(version))
    if not as_json:
        out.print(table)
    if picture is not None and versions:
        from ucci_stream.offline.version_plots import plot_versions

        err.print(f"drawn: {plot_versions(versions, picture)}", highlight=False)
    elif picture is not None:
        err.print("nothing to draw: no version would have been published", highlight=False)


def _picture(path: Path | None) -> Path | None:
    """Return where to draw, refused before the work when nothing could be written there."""
    if path is None:
        return None
    require_extra("api", "--plot")
    if path.suffix.lower() not in _PICTURES:
        raise ConfigError([f"--plot: {path.name} must end in {' or '.join(_PICTURES)}"])
    if not path.parent.is_dir():
        raise ConfigError([f"--plot: the folder {path.parent} does not exist"])
    return path


def _version_row(version: CalibrationVersion) -> tuple[str, ...]:
    evidence, f1 = version.evidence, version.evidence.micro_f1
    return (
        str(version.version),
        version.state,
        f"{version.uncertainty_threshold:.4f}",
        "–" if version.threshold is None else f"{version.threshold:.3f}",
        "–" if evidence.escalation_rate is None else f"{evidence.escalation_rate:.1%}",
        "–" if f1 is None else f"{f1.estimate:.3f} ({f1.lower:.3f} to {f1.upper:.3f})",
        evidence.trigger,
    )


@app.command()
def bootstrap(
    file: Annotated[Path, typer.Argument(help="JSONL of LabelledExample, or a router.json of ucci-router.")],
    workload: Annotated[str, typer.Option(help="The workload that it calibrates.")],
    config: ConfigOption = None,
    plot: PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make an offline calibration the first version of a workload.

    Example: ucci-stream bootstrap labelled.jsonl --workload photo-search --plot calibration.png
    """
    from ucci_stream.offline.bootstrap import bootstrap as bootstrap_workload

    settings, now = settings_of(config), datetime.now(UTC)
    picture, chosen = _picture(plot), settings.workloads[workload_of(settings, workload)]
    if picture is not None:
        from ucci_stream.offline.bootstrap import preview
        from ucci_stream.offline.version_plots import plot_calibration

        fitted, threshold, frontier = preview(chosen, file, now)
        target = chosen.target.micro_f1
        err.print(f"drawn: {plot_calibration(fitted, threshold, frontier, target, picture)}", highlight=False)
    done = bootstrap_workload(settings, file, chosen.name, now)
    if as_json:
        out.print_json(
            data={"topic": done.topic, "examples": done.examples, "command": json.loads(done.command.to_json())}
        )
    else:
        source = f"{done.examples} examples" if done.examples else done.command.reason
        out.print(f"{source} sent to {done.topic}; the fit stage publishes the version", highlight=False)


@app.command("check-config")
def check_config(config: ConfigOption = None) -> None:
    """Validate ucci.toml and print the effective settings, secrets redacted; warn of what is probably not meant.

    Example: ucci-stream check-config --config ucci.toml
    """
    from ucci_runtime.broker.kafka_settings import require_kafka

    settings = settings_of(config)
    require_kafka(settings)
    for warning in settings_warnings(settings):
        err.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    sys.stdout.write(render_settings(settings))


@app.command()
def acls(
    principal_router: Annotated[str | None, typer.Option(help="Of the routers, such as User:router.")] = None,
    principal_recalibrator: Annotated[str | None, typer.Option(help="Of the recalibrators.")] = None,
    principal_producer: Annotated[str | None, typer.Option(help="Of who calls `send` and `ask`.")] = None,
    principal_labeler: Annotated[str | None, typer.Option(help="Of who calls `label` and `label-queue`.")] = None,
    principal_operator: Annotated[str | None, typer.Option(help="Of who calls `doctor`, `topics check`.")] = None,
    form: Annotated[str, typer.Option("--format", help="kafka-acls or strimzi.")] = "kafka-acls",
    strimzi_cluster: Annotated[str, typer.Option(help="Name of the Kafka resource, for strimzi.")] = "my-cluster",
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the least access that each component needs on a broker with an authorizer; changes nothing.

    Example: ucci-stream acls --principal-router User:router --principal-recalibrator User:recalibrator
    """
    from ucci_stream.topics import access_lists

    given = {
        "router": principal_router,
        "recalibrator": principal_recalibrator,
        "producer": principal_producer,
        "labeler": principal_labeler,
        "operator": principal_operator,
    }
    principals, prefix = access_lists.checked_principals(given), settings_of(config).topics.prefix
    if as_json:
        out.print_json(data=access_lists.as_rows(principals, prefix))
    elif form == "strimzi":
        users = access_lists.strimzi_users(principals, prefix, strimzi_cluster)
        sys.stdout.write(access_lists.yaml_documents(users))
    elif form == "kafka-acls":
        sys.stdout.write("".join(f"{line}\n" for line in access_lists.kafka_acls(principals, prefix)))
    else:
        raise ConfigError([f"--format: is {form!r}; give kafka-acls or strimzi"])


@app.command()
def doctor(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Look at the broker, groups, models, versions, labels and disk, and name the remedy of whatever is wrong.

    Exit code 1 where something does not work, 0 where there are only warnings. Reads topics; writes nothing.

    Example: ucci-stream doctor --config ucci.toml
    """
    from ucci_stream.operate.doctor import diagnose, show
    from ucci_stream.operate.findings import exit_code, summary

    found = diagnose(settings_of(config))
    if as_json:
        out.print_json(data={"summary": summary(found), "findings": [finding._asdict() for finding in found]})
    else:
        show(found, out)
    raise typer.Exit(exit_code(found))


# Last, so that `--help` lists what one begins with first.
add_commands(app)


def main() -> None:
    """Run the command; every failure is one line (or one a fault) on standard error."""
    raise SystemExit(_guarded(app))


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except ConfigError as error:
        for fault in error.faults:
            err.print(fault, style="red", markup=False, highlight=False, soft_wrap=True)
        return ConfigError.exit_code
    except UcciError as error:
        err.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return int(getattr(error, "exit_code", 1))
    return 0


if __name__ == "__main__":
    main()
