"""Texts that others wrote, from what is installed on this machine; none of them is kept in the repository.

English ones are messages of programs (gettext's catalogues), docstrings of Python's library, licences of packages and
scikit-learn's descriptions of data; other languages are translations of the same messages.
"""

from __future__ import annotations

import ast
import gettext
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from schemas.draws import uniform

LANGUAGES = ("de", "fr", "es", "it", "pl", "pt_BR", "nl", "sv", "ru", "uk", "ja", "zh_CN")
_CATALOGUES = Path("/usr/share/locale")
_CHARACTERS = range(24, 401)
_MOST = 20_000


class NoTexts(Exception):
    """Too few texts of a kind are installed on this machine."""


def english() -> dict[str, list[str]]:
    """Return English sentences by the kind of their source, those kinds alone of which there are 1,500."""
    packages = Path(sysconfig.get_path("purelib"))
    kinds = {
        "messages": (text for text, _ in _messages("de")),
        "docstrings": _docstrings(Path(sysconfig.get_path("stdlib"))),
        "licences": _sentences(packages.glob("*.dist-info/licenses/**/*")),
        "descriptions": _sentences([*packages.glob("sklearn/**/*.rst"), *packages.glob("scipy/**/*.rst")]),
        "package docstrings": _docstrings(packages / "scipy"),
    }
    found = {kind: _chosen(texts) for kind, texts in kinds.items()}
    found = {kind: texts for kind, texts in found.items() if len(texts) >= 1_500}
    if len(found) < 2:
        raise NoTexts("English: fewer than two kinds of 1,500 sentences each are installed here")
    return found


def translated(language: str) -> list[str]:
    """Return messages in a language; empty where this machine has fewer than 500."""
    found = _chosen(text for _, text in _messages(language))
    return found if len(found) >= 500 else []


def _chosen(texts: Iterable[str]) -> list[str]:
    """Return different sentences of usual length, in the order of their hashes."""
    plain = (" ".join(text.split()) for text in texts)
    return sorted({text for text in plain if len(text) in _CHARACTERS}, key=lambda text: uniform(text, "text"))[:_MOST]


def _messages(language: str) -> Iterator[tuple[str, str]]:
    for path in sorted((_CATALOGUES / language / "LC_MESSAGES").glob("*.mo")):
        try:
            with path.open("rb") as file:
                known = gettext.GNUTranslations(file)._catalog  # noqa: SLF001 the only list of all
        except (OSError, UnicodeDecodeError):
            continue
        for message, text in known.items():
            if isinstance(message, str) and isinstance(text, str) and message and text != message:
                yield message, text


def _docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("*/*.py")):
        if "site-packages" in path.relative_to(folder).parts:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                yield from _split(ast.get_docstring(node) or "")


def _sentences(paths: Iterable[Path]) -> Iterator[str]:
    for path in sorted(paths):
        if path.is_file():
            yield from _split(path.read_text(encoding="utf-8", errors="replace"))


def _split(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+|\n\s*\n", text)


if __name__ == "__main__":
    for name, texts in english().items():
        sys.stdout.write(f"{name}: {len(texts)}: {texts[::2_000][:4]}\n")
    for language in LANGUAGES:
        sys.stdout.write(f"{language}: {len(translated(language))}\n")
