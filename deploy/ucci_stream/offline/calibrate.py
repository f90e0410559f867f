"""``ucci-stream calibrate``: from gold lines to a workload's first version, with both models asked on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts, TokenUse, query_cost
from schemas.errors import ConfigError
from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from schemas.routed import Decision, DecisionReason, LabelRequest, ModelRole, ModelRun, RoutedEvent
from schemas.settings import WorkloadSettings
from stream_router.model_client.http_probe import ROLES, probe_workload
from ucci_stream.offline.bootstrap import first_version
from ucci_stream.offline.gold_lines import GoldQuery, read_gold, spelt_nulls, unknown_fields, with_null_texts
from ucci_stream.offline.model_answers import (
    Answer,
    AnswerFile,
    ask_missing,
    call_of,
    doubts_of,
    endpoint_of,
    open_answers,
)
from ucci_stream.options import err, progress, warn
from ucci_stream.topics.feed import FeedStopped

SOURCE = "ucci-stream calibrate"


@dataclass(frozen=True, slots=True)
class CalibrateFiles:
    """What is read and written."""

    gold: Path
    #: The models' answers, kept between runs.
    answers: Path
    #: The labelled examples, for ``bootstrap`` and ``replay``.
    examples: Path

    @classmethod
    def beside(cls, gold: Path, workload: str, examples: Path | None) -> CalibrateFiles:
        """Return the files beside gold lines. Raises ConfigError for standard input: no later run can read it again."""
        if str(gold) == "-":
            raise ConfigError(["FILE: must be a file and not standard input, so that a killed run can go on"])
        stem = f"{gold.stem}.{quote(workload, safe='')}"
        made = examples or gold.with_name(f"{stem}.labelled.jsonl")
        return cls(gold, gold.with_name(f"{stem}.answers.jsonl"), made)


class Calibrated(NamedTuple):
    """What a file of gold lines says about a workload."""

    #: As the fit would publish it; its number is 1.
    version: CalibrationVersion

    examples: tuple[LabelledExample, ...]
    #: With measured costs where none are configured.
    settings: WorkloadSettings
    #: Whether the costs are the ratio of both models' mean latencies in this run.
    measured_cost: bool
    #: Lines on which the model gave no usable answer.
    small_failures: int
    large_failures: int
    #: Lines on which neither did: the stream would set them aside.
    left_out: int


def calibrate(workload: WorkloadSettings, files: CalibrateFiles, concurrency: int, now: datetime) -> Calibrated:
    """Ask both models about every gold line that is not answered yet, write the examples, and fit a first version.

    ``concurrency``: calls of each model in flight, at most. ``now``: stands in the examples as the time of routing and
    labelling. Raises ConfigError, naming each bad line, or what is wrong with a model server; raises AskingStopped when
    a model server goes away; what it answered is kept. Raises FeedStopped when there are too few usable lines.
    """
    if workload.offered_handoff is not None:
        line = (
            f"workloads.{workload.name}.handoff: calibrate runs the large model on whole queries, which says nothing "
            "of answers that it only goes on with; leave handoff out here and let the stream learn it"
        )
        raise ConfigError([line])
    lines = with_null_texts(read_gold(files.gold), workload)
    queries = tuple({query.query_id: query for query in reversed(lines)}.values())[::-1]
    warnings = [*unknown_fields(lines, workload.fields), *spelt_nulls(lines, workload)]
    if repeated := len(lines) - len(queries):
        warnings.append(f"{repeated} of {len(lines)} lines repeat the text of another, of which the first alone counts")
    warn(*(f"warning: {warning}" for warning in warnings))
    if not any(query.line.entities.get(field) for query in queries for field in workload.fields):
        names = ", ".join(workload.fields)
        raise ConfigError([f"{files.gold}: no line has a value for one of the fields {names}: is the file right?"])
    with open_answers(files.answers) as answers:
        _ask(workload, queries, answers, concurrency)
        small, large = ([_run(workload, role, query, answers) for query in queries] for role in ROLES)
    pairs = list(zip(queries, small, large, strict=True))
    settings, is_measured = _with_costs(workload, pairs)
    examples = tuple(one for pair in pairs if (one := _example(settings, *pair, now)) is not None)
    _write(files.examples, examples)
    return Calibrated(
        version=first_version(settings, examples, now, str(files.gold)),
        examples=examples,
        settings=settings,
        measured_cost=is_measured,
        small_failures=sum(not run.valid for run in small),
        large_failures=sum(not run.valid for run in large),
        left_out=len(pairs) - len(examples),
    )


def _ask(workload: WorkloadSettings, queries: Sequence[GoldQuery], answers: AnswerFile, concurrency: int) -> None:
    calls = {role: [call_of(workload, role, query.line.text) for query in queries] for role in ROLES}
    pairs = {role: zip(calls[role], queries, strict=True) for role in ROLES}
    left = {role: [query for call, query in pairs[role] if answers.get(call.key) is None] for role in ROLES}
    first = {role: some[0].line.text for role, some in left.items() if some}
    if not first:
        err.print(f"asking no model: all{_known(answers)}", highlight=False, soft_wrap=True)
        return
    # One query of each model is looked at closely before thousands follow.
    probed = asyncio.run(probe_workload(workload, first))
    warn(*(f"warning: {doubt}" for doubt in doubts_of(probed)))
    for one in probed:
        if one.reply is not None and one.reply.uncertainty is not None:
            answers.add(call_of(workload, one.role, first[one.role]).key, Answer(one.reply, None, one.latency_s))
    missing = {role: sum(answers.get(call.key) is None for call in calls[role]) for role in ROLES}
    with _progress(missing, len(queries), _known(answers)) as advance:
        asyncio.run(ask_missing(workload, calls, answers, concurrency, advance))


def _known(answers: AnswerFile) -> str:
    dated = "" if answers.dated is None else f" by {answers.dated:%Y-%m-%d %H:%M} UTC, in {answers.path}"
    return f" answers are known{dated}"


def _run(workload: WorkloadSettings, role: ModelRole, query: GoldQuery, answers: AnswerFile) -> ModelRun:
    answer = answers.get(call_of(workload, role, query.line.text).key)
    assert answer is not None, "ask_missing() returns when all is answered"
    return answer.run(endpoint_of(workload, role).model, workload.fields, workload.nulls)


def _with_costs(
    workload: WorkloadSettings, pairs: Sequence[tuple[GoldQuery, ModelRun, ModelRun]]
) -> tuple[WorkloadSettings, bool]:
    """Return the settings with costs: as configured, else the ratio of mean latencies."""
    small = sum(run.latency_s for _, run, _ in pairs)
    large = sum(run.latency_s for _, _, run in pairs)
    if workload.cost is not None or small <= 0.0 or large <= 0.0:
        return workload, False
    return workload.model_copy(update={"cost": ModelCosts(small=1.0, large=round(large / small, 2))}), True


def _example(
    workload: WorkloadSettings, query: GoldQuery, small: ModelRun, large: ModelRun, now: datetime
) -> LabelledExample | None:
    """Return what the stream would have made of this query in a cold start; None where it makes a dead letter."""
    if not small.valid and not large.valid:
        return None
    if not small.valid:
        reason: DecisionReason = "small_failed"
    else:
        reason = "cold_start" if large.valid else "degraded"
    served, costs = large if large.valid else small, workload.cost or ModelCosts(large=1.0)
    uncertainty = small.uncertainty if small.valid else None
    small_use, large_use = (TokenUse(run.prompt_tokens, run.completion_tokens) for run in (small, large))
    routed = RoutedEvent(
        query_id=query.query_id,
        workload=workload.name,
        text=query.line.text,
        entities=served.entities or {},
        answered_by="large" if large.valid else "small",
        decision=Decision(escalated=True, reason=reason, uncertainty=uncertainty, large_probability=1.0),
        small=small,
        large=large,
        cost=query_cost(costs, escalated=True, small=small_use, large=[large_use]),
        label=LabelRequest(requested=True, probability=1.0, reason="random"),
        routed_at=now,
        routed_by=SOURCE,
        signal=workload.uncertainty,
        basis=workload.basis_mark,
    )
    label = FeedbackEvent(query_id=query.query_id, entities=query.line.entities, labelled_at=now, source=SOURCE)
    example = LabelledExample.from_events(routed, label, fields=workload.fields)
    return example.with_small_counts(routed, label, workload.target.fields)


def _write(path: Path, examples: Sequence[LabelledExample]) -> None:
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(b"".join(example.to_json() + b"\n" for example in examples))
        beside.replace(path)
    except OSError as error:
        raise FeedStopped(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def _progress(missing: Mapping[ModelRole, int], queries: int, known: str) -> Iterator[Callable[[ModelRole], None]]:
    """Show how many calls are answered and how long the rest will take; one line alone where nobody watches."""
    asked = sum(missing.values())
    kept = len(missing) * queries - asked
    told = f", {kept}{known}" if kept else ""
    err.print(f"asking both models: {asked} calls{told}", highlight=False, soft_wrap=True)
    with progress(MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bars:
        tasks = {role: bars.add_task(role, completed=queries - count, total=queries) for role, count in missing.items()}
        yield lambda role: bars.advance(tasks[role])
