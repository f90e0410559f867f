"""``ucci-stream dead-letters``: each command is one call and what it printed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic_core import to_json
from rich.table import Table

from schemas.errors import ConfigError, UcciError
from ucci_stream.options import ConfigOption, Console, JsonFlag, moment_of, settings_of

letters_app = typer.Typer(
    help="Records that were set aside. Example: ucci-stream dead-letters list", no_args_is_help=True
)
PlacesArgument = Annotated[
    list[str] | None, typer.Argument(help="PARTITION/OFFSET of letters; none: as the options say.")
]
StageOption = Annotated[str | None, typer.Option(help="Only those set aside by route, join or fit.")]
ReasonOption = Annotated[str | None, typer.Option(help="Only those of this reason, such as models_failed.")]
TopicOption = Annotated[str | None, typer.Option(help="Only those of this topic, such as queries.")]
SinceOption = Annotated[str | None, typer.Option(help="Only those since this RFC 3339 time.")]
_ERROR_CHARS = 80
out = Console()


class NoSuchLetter(UcciError):
    """No dead letter stands at that place."""

    exit_code = 1


@letters_app.command("list")
def list_letters(
    config: ConfigOption = None,
    stage: StageOption = None,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Count dead letters by reason, with the first and the last of each.

    Example: ucci-stream dead-letters list --since 2026-01-31T12:00:00Z
    """
    from ucci_stream.operate.kafka_letters import read_letters
    from ucci_stream.operate.letters import Selection, grouped

    settings = settings_of(config)
    groups = grouped(read_letters(settings, Selection(stage, reason, topic, moment_of(since))))
    if as_json:
        _print_json({"groups": [group.document() for group in groups]})
        return
    table = Table("stage", "reason", "topic", "count", "first", "last", "last place", "last error")
    for group in groups:
        error = group.last.error
        error = error if len(error) <= _ERROR_CHARS else error[: _ERROR_CHARS - 1] + "…"
        times = (f"{moment:%m-%d %H:%M:%S}" for moment in (group.first.at, group.last.at))
        row = (group.stage, group.reason, group.topic, str(group.count), *times, group.last.place, error)
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    out.print(table if groups else "no dead letters")


@letters_app.command("show")
def show_letter(
    place: Annotated[str, typer.Argument(help="PARTITION/OFFSET on the topic of dead letters, as `list` shows it.")],
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one dead letter: why it was set aside, and the record itself.

    Example: ucci-stream dead-letters show 0/17
    """
    from ucci_stream.operate.kafka_letters import read_letters
    from ucci_stream.operate.letters import Selection

    for letter in read_letters(settings_of(config), Selection(places=frozenset({place}))):
        document = letter.document(whole=True)
        if as_json:
            _print_json(document)
        else:
            for name, value in document.items():
                out.print(f"{name:>10}  {value}", highlight=False, markup=False, soft_wrap=True)
        return
    raise NoSuchLetter(f"{place}: no dead letter stands there (any more); see `ucci-stream dead-letters list`")


@letters_app.command("replay")
def replay_letters(
    places: PlacesArgument = None,
    config: ConfigOption = None,
    stage: StageOption = None,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All that can be replayed.")] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Records a second.")] = 100.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Send the records of dead letters through again: queries and feedback, each letter once, however often this runs.

    Left out are letters replayed before, queries that have a result, cut records, and what the services write.

    Example: ucci-stream dead-letters replay --reason models_failed --rate 50 --dry-run
    """
    from ucci_stream.operate.kafka_letters import replay_letters as replay
    from ucci_stream.operate.letters import Selection

    selection = Selection(stage, reason, topic, moment_of(since), frozenset(places or ()))
    if selection == Selection() and not everything:
        raise ConfigError(["dead-letters replay: name letters, or --reason, --stage, --topic, --since, or --all"])
    done = replay(settings_of(config), selection, rate=rate, dry_run=dry_run)
    if as_json:
        _print_json(done.document())
        return
    verb = "would be replayed" if dry_run else "replayed"
    where = ", ".join(f"{count} to {name}" for name, count in sorted(done.by_topic.items()))
    out.print(f"{done.by_topic.total()} {verb}{f': {where}' if where else ''}", highlight=False, markup=False)
    for why, count in sorted(done.skipped.items()):
        out.print(f"{count} left out: {_WHY[why]}", highlight=False, markup=False)


_WHY = {
    "not_replayable": "written by the services alone",
    "truncated": "the record was cut when it was set aside",
    "replayed_before": "replayed before",
    "too_old": "older than what their topic keeps, so that nobody can tell whether they were replayed",
    "answered": "the query has a result",
}


def _print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    sys.stdout.write(to_json(document).decode() + "\n")
