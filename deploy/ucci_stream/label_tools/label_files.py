"""A folder of JSON lines as a label tool: ``tasks.jsonl`` out, ``answers*.jsonl`` in, both in Prodigy's format.

Needs no server and no account. ``tasks.jsonl`` is written whole and put in place at once, so that a reader never sees
half of it; lines that were not made of label requests stay. Answer files are only read. An answer that disappears from
them withdraws nothing, since files are moved and archived: a line with ``"retracted": true`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from recalibrator.labelling.label_lines import LabelLinesReader, Line, documents_of, query_of_task, task_line
from recalibrator.labelling.label_tool import AnnotationKey, JsonDocument, LabelTool, LabelToolFailed, TaskId
from schemas.label_requested import LabelRequested

TASKS = "tasks.jsonl"
ANSWERS = "answers*.jsonl"
_ANSWERS_STEM = "answers"


class LabelFolder:
    """One workload's folder, which must exist; a :class:`~recalibrator.labelling.label_tool.LabelTool`.

    ``prefill``: whether the ``meta`` of each task shows the served answer.
    """

    def __init__(
        self, folder: Path, workload: str, *, prefill: bool, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._folder = folder
        self.reader = LabelLinesReader(workload)
        self._prefill = prefill
        self._now = now

    @property
    def project(self) -> str:
        """The workload, as it stands in each ``feedback_id``."""
        return self.reader.project

    async def tasks(self, changed_since: datetime | None) -> AsyncIterator[JsonDocument]:
        """Yield all tasks and answers, whenever they changed: files do not say what of them is new."""
        del changed_since
        for document in await asyncio.to_thread(self._documents):
            yield document

    async def add(self, requests: Sequence[LabelRequested]) -> None:
        """Append a line for each request."""
        now = self._now()
        lines = [to_json(task_line(request, now, prefill=self._prefill)) for request in requests]
        await asyncio.to_thread(self._rewrite, frozenset(), lines)

    async def remove(self, tasks: Sequence[TaskId]) -> None:
        """Take lines out of the tasks; their answers stay."""
        await asyncio.to_thread(self._rewrite, frozenset(tasks), [])

    async def has(self, annotation: AnnotationKey) -> bool:
        """Return true: an answer is withdrawn by a line of its own, never by its absence."""
        del annotation
        return True

    def _documents(self) -> list[dict[str, Any]]:
        answers = [line for path in sorted(self._folder.glob(ANSWERS)) for line in _lines(path)]
        return documents_of(self.reader, _lines(self._folder / TASKS), answers)

    def _rewrite(self, without: frozenset[TaskId], more: Sequence[bytes]) -> None:
        path, new = self._folder / TASKS, self._folder / f".{TASKS}.new"
        kept = [line.text for line in _lines(path) if query_of_task(self.reader, line) not in without]
        try:
            new.write_bytes(b"".join(text + b"\n" for text in (*kept, *more)))
            new.replace(path)
        except OSError as error:
            raise LabelToolFailed(f"--folder: {path} cannot be written ({error.strerror})") from None


async def open_folder(folder: Path, workload: str, prefill: bool) -> LabelTool:
    """Open the folder; as long as it is missing, it can be tried again. Raises LabelToolFailed."""
    if not await asyncio.to_thread(folder.is_dir):
        raise LabelToolFailed(f"--folder: {folder} is not a folder; create it or give another")
    return LabelFolder(folder, workload, prefill=prefill)


def _lines(path: Path) -> Iterator[Line]:
    """Yield a file's lines that are not empty; ``answers-NAME.jsonl`` are the answers of NAME."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise LabelToolFailed(f"--folder: {path} cannot be read ({error.strerror})") from None
    labeler = path.stem.removeprefix(_ANSWERS_STEM).strip("-_. ")
    for number, text in enumerate(content.split(b"\n"), 1):
        if text.strip():
            yield Line(f"{path.name} line {number}", labeler, text.strip())
