"""stub."""

from pathlib import Path
from typing import Any
from benchmarks.results_json import write_results


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write."""
    write_results(folder, {"made": made, "results": results})
