"""``make audit``: looks locked packages up in the database of known vulnerabilities, as far as it can be reached.

The look-up is that of pip-audit, which has an environment of its own beside the project's: it is fetched on first use.
Nothing is installed from the locks. Without a network nothing is known, and the command says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Annotated

import typer

PIP_AUDIT = "pip-audit==2.10.1"
ENVIRONMENT = Path(".venv-audit")
TIMEOUT_S = 300.0
_UNKNOWN = 3
_SHOWN = 20
_TAIL_LINES = 3

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: python -m tools.dependency_audit requirements.lock")
def audit(
    locks: Annotated[list[Path], typer.Argument(help="Files of packages by version and hash.", exists=True)],
) -> None:
    """Audit lock files; exit code 1 when a vulnerability is known, 3 when nothing could be learned."""
    worst = 0
    for lock in locks:
        code, said = looked_up(lock)
        sys.stdout.write(f"{lock}: {said}\n")
        worst = 1 if 1 in (code, worst) else max(code, worst)
    raise typer.Exit(worst)


def looked_up(lock: Path) -> tuple[int, str]:
    """Return the exit code and what is to be said of one lock."""
    asking = ["--requirement", str(lock), "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        return verdict(_run([str(_program()), *asking]))
    except subprocess.TimeoutExpired:
        return _UNKNOWN, f"not audited: no answer within {TIMEOUT_S:g} s"
    except subprocess.CalledProcessError as error:
        return _UNKNOWN, f"not audited: {PIP_AUDIT} cannot be installed here ({_tail(error.stderr)})"


def verdict(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """Return what a run of pip-audit amounts to.

    Its own exit code says nothing: it is 0 also where no package was found in the database, as behind a mirror.
    """
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return _UNKNOWN, f"not audited: the database of vulnerabilities is not reached ({_tail(done.stderr)})"
    known = [one for one in packages if "skip_reason" not in one]
    if not known:
        return _UNKNOWN, "not audited: none of its packages is found in the database of vulnerabilities from here"
    counted = f"{len(known)} of {len(packages)} packages looked up"
    found = [f"{one['name']} {one['version']}: {fault['id']}" for one in known for fault in one["vulns"]]
    if not found:
        return 0, f"no known vulnerability ({counted})"
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return 1, f"{len(found)} known vulnerabilities ({counted}): {', '.join(found[:_SHOWN])}{more}"


def _program() -> Path:
    program = ENVIRONMENT / "bin" / "pip-audit"
    if not program.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, PIP_AUDIT]).check_returncode()
    return program


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 our own words
        argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )


def _tail(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-_TAIL_LINES:])[:300] or "no message"


if __name__ == "__main__":
    app()
