"""``python -m tests.property_campaign``: runs every property test under any number of seeds, and reports."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pytest
import typer

if TYPE_CHECKING:
    from tests.property_campaign.campaign import Progress

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_EPILOG = "Example: python -m tests.property_campaign --seeds 500 --examples 20 --json campaign.json"
_ROOT = Path(__file__).parents[2]
# Hypothesis is imported by pytest, which watches over what is imported when; so is the plugin, which imports it.
_QUIET = ["-q", "-p", "no:xdist", "--timeout", "0", "-p", "no:cacheprovider", "--no-header", "--no-summary"]


@app.command(epilog=_EPILOG)
def campaign(
    paths: Annotated[list[str] | None, typer.Argument(help="Test files or folders; all by default.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds that each property test runs under.")] = 500,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    examples: Annotated[int, typer.Option(min=4, help="The most examples that a seed draws.")] = 20,
    seconds: Annotated[
        float, typer.Option(min=0, help="CPU time of a test: where it would take longer, a seed draws fewer examples.")
    ] = 60.0,
    only: Annotated[str, typer.Option(help="Tests that match this expression alone, as pytest's -k.")] = "",
    json_file: Annotated[
        Path, typer.Option("--json", help="Written as the campaign goes; one that exists is continued.")
    ] = Path("property-campaign.json"),
) -> None:
    """Run every property test under many seeds; exit code 1 when one failed.

    The seeds of a test are run one after the other in this process, by the profile `thorough`. A campaign that was cut
    short goes on where it was: give the same file again, or more seeds.
    """
    os.environ["HYPOTHESIS_PROFILE"] = "thorough"
    loader = _Loader(json_file.absolute(), (seeds, first_seed, examples, seconds))
    chosen = [*(paths or [str(_ROOT / "tests")]), *(["-k", only] if only else [])]
    status = pytest.main([*_QUIET, "--rootdir", str(_ROOT), "-c", str(_ROOT / "pyproject.toml"), *chosen], [loader])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.stderr.write(f"pytest ended with code {int(status)}\n")
        raise typer.Exit(int(status))
    raise typer.Exit(loader.summarise())


class _Loader:
    """Adds the campaign to pytest once pytest is ready to import it."""

    def __init__(self, path: Path, plan: tuple[int, int, int, float]) -> None:
        self._path, self._plan = path, plan

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        from tests.property_campaign.campaign import Campaign, Plan, Record

        plan = Plan(*self._plan)
        self._record = Record(self._path, plan)
        capture = config.pluginmanager.getplugin("capturemanager")

        def tell(line: str) -> None:
            with capture.global_and_fixture_disabled():
                sys.stderr.write(line + "\n")

        config.pluginmanager.register(Campaign(plan, self._record, tell))

    def summarise(self) -> int:
        """Print what was run as a Markdown table, and the findings; 1 where there are any."""
        tests = self._record.tests
        by_file: dict[str, list[Progress]] = {}
        for name, progress in sorted(tests.items()):
            by_file.setdefault(name.partition("::")[0], []).append(progress)
        lines = ["| file | tests | seeds a test | examples | CPU, s | findings |", "|---|" + "---:|" * 5]
        lines += [f"| `{file}` | {len(progresses)} | {_totals(progresses)} |" for file, progresses in by_file.items()]
        lines.append(f"| all | {len(tests)} | {_totals(list(tests.values()))} |\n" if tests else "")
        findings = [(name, one) for name, progress in tests.items() for one in progress.findings]
        for name, one in findings:
            seen = f"under {one.failing_seeds} seeds, first {one.seed} (of {one.max_examples} examples)"
            lines.append(f"{name}: {one.kind} at {one.where} {seen}\n{one.text}\n")
        sys.stdout.write("\n".join(lines) + "\n")
        return 1 if findings else 0


def _totals(progresses: list[Progress]) -> str:
    """Return the cells of a row: seeds, examples, CPU seconds and findings."""
    seeds = sorted({progress.seeds for progress in progresses})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    examples, seconds = (sum(getattr(one, name) for one in progresses) for name in ("examples", "seconds"))
    return f"{each} | {examples:,} | {seconds:,.0f} | {sum(len(one.findings) for one in progresses)}"


if __name__ == "__main__":
    app()
