"""Run the notebooks of docs/examples and keep their outputs beside the code, as a reader of the page sees them.

Example: python -m tools.docs.notebooks
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def executed(path: Path) -> Any:
    """Return a notebook, run from its first cell to its last in its own folder, without the times at which cells ran.

    Raises CellExecutionError, naming the cell that failed.
    """
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, resources=resources)
    return client.execute()


def printed(notebook: Any) -> list[str]:
    """Return what each code cell prints; pictures are left out, since they differ from one machine to the next."""
    return [
        "".join(output["text"] for output in cell["outputs"] if output["output_type"] == "stream")
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def main() -> None:
    """Run every notebook and write it anew."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        sys.stderr.write(f"running {path.name}\n")
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
