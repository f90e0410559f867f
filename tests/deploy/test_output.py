"""What the commands write where the output's encoding lacks characters, and where nobody reads to the end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

import recalibrator.cli
import stream_router.cli
import ucci_stream.cli
from tests.support.checkout import ROOT
from ucci_runtime.cli import ReaderGone, in_encoding, prepare_output
from ucci_stream.options import Outcome, say, show, warn

COMMANDS: dict[str, tuple[typer.Typer, Callable[[], None]]] = {
    "stream-router": (stream_router.cli.app, stream_router.cli.main),
    "recalibrator": (recalibrator.cli.app, recalibrator.cli.main),
    "ucci-stream": (ucci_stream.cli.app, ucci_stream.cli.main),
}
#: A dash, what labelers and senders write, and half a surrogate pair.
ODD = "– … → é 写真 \N{GRINNING FACE} \udcff"


def _paths(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    yield before
    for name, one in getattr(group, "commands", {}).items():
        yield from _paths(one, *before, name)


def _helps() -> list[tuple[str, ...]]:
    return [(name, *path) for name, (app, _) in COMMANDS.items() for path in _paths(typer.main.get_command(app))]


class Written:
    """Standard output and standard error of this process, in an encoding that is no Unicode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
        self._encoding = encoding
        self._streams = []
        for name in ("stdout", "stderr"):
            stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
            self._streams.append(stream)
            monkeypatch.setattr(sys, name, stream)

    def text(self) -> str:
        for stream in self._streams:
            stream.flush()
        return "".join(stream.buffer.getvalue().decode(self._encoding) for stream in self._streams)


in_old_encodings = pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1251"])


@pytest.mark.parametrize("path", _helps(), ids=" ".join)
def test_help_is_written_in_ascii(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, "ascii")
    monkeypatch.setattr(sys, "argv", [*path, "--help"])
    with pytest.raises(SystemExit) as end:
        COMMANDS[path[0]][1]()
    assert end.value.code in {0, None}
    assert "Usage" in written.text()


@in_old_encodings
def test_lines_and_tables_keep_the_exit_code(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, encoding)
    prepare_output()
    table = Table("–", "写真")
    table.add_row(ODD, "é")
    with pytest.raises(typer.Exit) as end:
        show(Outcome({}, [ODD, table], 4), as_json=False)
    warn(ODD)
    assert end.value.exit_code == 4
    said = written.text()
    assert "\\ud83d\\ude00" in said
    assert ("- ... ->" in said) is (encoding != "cp1251")  # which has a dash and an ellipsis


@in_old_encodings
def test_json_stays_json_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, encoding)
    prepare_output()
    document = {"sentence": ODD.replace("\udcff", ""), "é": [1]}
    show(Outcome(document, []), as_json=True)
    assert json.loads(written.text()) == document


@given(text=st.text(), encoding=st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8", None]))
def test_escaped_json_says_the_same(text: str, encoding: str | None) -> None:
    shown = in_encoding(json.dumps(text, ensure_ascii=False), encoding)
    shown.encode(encoding or "utf-8")
    assert json.loads(shown) == text


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("code", [0, 4])
def test_a_reader_who_leaves_changes_no_exit_code(as_json: bool, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    """As `head` does: the outcome is the work's, not the reader's."""
    script = (
        "from ucci_runtime.cli import prepare_output; from ucci_stream.options import Outcome, show\n"
        "from ucci_stream import cli\nprepare_output()\n"
        f"cli.app.command('x')(lambda: show(Outcome({{}}, ['line'] * 9), as_json={as_json}) if not {code} else "
        f"show(Outcome({{}}, ['line'] * 9, {code}), as_json={as_json}))\nimport sys; sys.argv = ['u', 'x']; cli.main()"
    )
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, check=False, cwd=ROOT, text=True
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (code, "")


def test_an_endless_command_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(ReaderGone) as end:
            say("a line")
        with suppress(BrokenPipeError):
            stream.flush()
    assert end.value.code == 0
