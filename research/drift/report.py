"""The report on disk: rows and how they were made flow in; JSON, Markdown and plots flow out."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from research.drift import plots
from research.drift.paired import paired
from research.drift.summary import Row, is_messy
from research.drift.tables import markdown

_CORE = Path(__file__).parents[2] / "recalibrator" / "fit"
TUNING = (
    "ours: half-lives, bandwidths, shrinkage and the margin's terms were chosen on seeds 99 and 100 of these families "
    "and on recorded streams, exploration at rest and what missing labels mean on 99, 100 and 200 to 205, the label "
    "gate on 60 to 79, 91 to 94, 99, 100 and 200 to 224, memory, centring, the agreement detector's bound and what a "
    "new mix of queries means on 301 to 305. Seeds up to 900 are for such choices, 901 to 1000 for reports "
    "(research/seeds.py; tables of earlier commits have others); seed 1 served to set the strength of the drifts. The "
    "messy families' strengths were set before any policy had walked them. The clairvoyant's margin is that of ours: "
    "on 9 families of seed 99, pol - 1.1 regret is .778, .790 and .795 at .35, .5 and .75 standard errors"
)


def write(rows: list[Row], facts: dict[str, Any], folder: Path) -> str:
    """Write ``rows.json``, ``README.md`` and, of clean families, ``families.svg``.

    Returns the Markdown.

    ``rows``: from :func:`research.drift.run.work`. ``facts``: command, seeds and wall time of the run. ``folder``: made
    when missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {**facts, "tuning": TUNING}
    lines = ",\n".join(json.dumps(_rounded(row)) for row in rows)
    clean, messy = [row for row in rows if not is_messy(row)], [row for row in rows if is_messy(row)]
    against = {
        name: [_rounded(one.as_row()) for one in paired(some)] for name, some in (("clean", clean), ("messy", messy))
    }
    head = f'"made": {json.dumps(made, indent=1)},\n"paired": {json.dumps(against, indent=1)}'
    document = f'{{{head},\n"rows": [\n{lines}\n]}}\n'
    (folder / "rows.json").write_text(document, encoding="utf-8")
    text = markdown(rows, made)
    if clean:
        plots.heat(clean, folder / "families.svg")
        text += "\n![Compliance by family and policy](families.svg)\n"
    (folder / "README.md").write_text(text, encoding="utf-8")
    return text


def _rounded(row: Row) -> Row:
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in row.items()}


def provenance() -> dict[str, str]:
    """Return what a reader needs to make the same figures; asked before a run, as the core may be edited meanwhile."""
    core = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_CORE.rglob("*.py")))).hexdigest()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip() or "unknown",
        "recalibrator/core": f"sha256 {core[:12]}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "day": datetime.now(UTC).date().isoformat(),
    }
