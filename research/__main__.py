"""``make bench``: every speed benchmark in turn; results as JSON with commit, machine and command.

Example: python -m research --quick --out bench-results
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SPEED = ("core", "router", "scale", "model_calls", "overload", "status", "feedback", "gateway", "malformed")


def main() -> int:
    """Run the benchmarks named, all by default; exit code 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m research", description=__doc__)
    parser.add_argument("names", nargs="*", default=SPEED, help=f"which: {', '.join(SPEED)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for a first look")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder of the JSON results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.names if not _run(name, options.out / f"{name}.json", quick=options.quick)]
    for name in failed:
        sys.stderr.write(f"benchmark {name} failed\n")
    return 1 if failed else 0


def _run(name: str, path: Path, *, quick: bool) -> bool:
    argv = [sys.executable, "-m", f"research.{name}", "--json", str(path), *(["--quick"] if quick else [])]
    print(f"== {name}", flush=True)
    if subprocess.run(argv, check=False).returncode:
        return False
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({"made": provenance(argv[1:]), "results": document}, indent=2) + "\n", encoding="utf-8")
    return True


def provenance(command: list[str]) -> dict[str, Any]:
    """Return what a reader needs to make the same figures: commit, machine, versions, command and day."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "command": " ".join(["python", *command]),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "day": datetime.now(UTC).date().isoformat(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
