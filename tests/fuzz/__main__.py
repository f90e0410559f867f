"""``make fuzz``: gives any number of hostile inputs to every part that reads bytes from outside, and reports."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz.all_targets import all_targets
from tests.fuzz.campaign import Finding, Report, repeated, run
from tests.fuzz.mutations import GIANT_SHARE

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_EPILOG = "Example: python -m tests.fuzz --cases 1000000 --seed 7 --json fuzz.json"


@app.command(epilog=_EPILOG)
def fuzz(
    cases: Annotated[int, typer.Option(min=1, help="Inputs in all.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of all draws: equal seeds give equal inputs.")] = 7,
    only: Annotated[str, typer.Option(help="Targets whose name holds this text alone.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
    giants: Annotated[float, typer.Option(min=0, max=1, help="Share of inputs of 1 MB.")] = GIANT_SHARE,
    repeat: Annotated[Path | None, typer.Option(help="Only repeat the findings of this report.")] = None,
) -> None:
    """Fuzz every reader of foreign bytes; exit code 1 when one broke a promise."""
    console = Console(stderr=True)
    # What is logged of a refused snapshot, a hundred thousand times, is not looked at.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    targets = [target for target in all_targets() if only in target.name]
    if not targets:
        names = ", ".join(target.name for target in all_targets())
        console.print(f"--only: no target is called {only!r}; there are {names}", highlight=False, soft_wrap=True)
        raise typer.Exit(2)
    if repeat is not None:
        raise typer.Exit(_repeat(repeat, console))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("fuzzing", total=cases)
        report = run(targets, seed, cases, lambda done: progress.advance(task, done), giant_share=giants)
    if json_file is not None:
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        document = machine | {"command": " ".join(sys.argv[1:])} | asdict(report)
        json_file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _show(report)
    raise typer.Exit(1 if report.findings else 0)


def _repeat(path: Path, console: Console) -> int:
    findings = [Finding(**finding) for finding in json.loads(path.read_text(encoding="utf-8"))["findings"]]
    left = [(finding, now) for finding, now in repeated(findings, all_targets()) if now is not None]
    for finding, now in left:
        console.print(f"{finding.target}: {finding.where}: {now}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{len(left)} of {len(findings)} findings are left", highlight=False)
    return 1 if left else 0


def _show(report: Report) -> None:
    """Print the report as a Markdown table, as docs/results/fuzz.md holds it."""
    lines = [
        "| target | cases | ways to end | lines reached | CPU, s | slowest, ms (bytes) | over 100 ms |",
        "|---|" + "---:|" * 6,
    ]
    for name, one in report.targets.items():
        slowest = f"{one.slowest_ms:g} ({one.slowest_bytes:,})"
        lines.append(
            f"| {name} | {one.cases:,} | {one.outcomes:,} | {one.lines:,} | {one.seconds:g} | {slowest} | {one.slow} |"
        )
    before, peak = report.peak_memory_mb_before, report.peak_memory_mb
    lines.append(
        f"\n{report.cases:,} cases, seed {report.seed}, {report.seconds:,.0f} s; peak memory {peak:g} MB "
        f"({before:g} MB before the first case); findings: {len(report.findings)}"
    )
    lines += [
        f"- {found.target}: {found.kind} at {found.where}: {found.message!r} ({found.input_bytes} bytes)"
        for found in report.findings
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    app()
