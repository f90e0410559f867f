"""What a benchmark leaves: documents of any depth flow in, text that people and scripts read flows out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DIGITS = 5


def write_results(folder: Path, document: dict[str, Any]) -> None:
    """Write a document as ``results.json``; floats are rounded to five digits.

    ``folder``: exists already. ``document``: of numbers, texts, and lists and dictionaries of these.
    """
    (folder / "results.json").write_text(json.dumps(rounded(document), indent=1) + "\n", encoding="utf-8")


def write_report(
    folder: Path, results: dict[str, Any], made: dict[str, Any], page: Callable[[dict[str, Any], dict[str, Any]], str]
) -> None:
    """Write ``results.json`` and ``README.md``.

    ``folder``: exists already. ``results``: as the experiment returns them. ``made``: how the results came about:
    command, machine, day and the like. ``page``: from both to the page's Markdown.
    """
    write_results(folder, {"made": made, "results": results})
    (folder / "README.md").write_text(page(results, made), encoding="utf-8")


def receipt(made: dict[str, Any]) -> str:
    """Return the line of a page that says how its results came about."""
    commit = made["commit"] + (f" (the service's own rows {made['service']})" if "service" in made else "")
    return f"`{made['command']}`, {made['machine']}, Python {made['python']}, commit {commit}, {made['day']}."


def tell(document: Any, path: Path | None) -> None:
    """Print a document as JSON, and write the same to a file where one is given."""
    text = json.dumps(document, indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Return a document with its floats rounded to five digits."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {str(key): rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value
