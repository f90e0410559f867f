"""Names in a model server's list, compared with the name that it is asked for. Pure.

A list alone does not show what a server answers to: ollama lists ``qwen:latest`` and answers to ``qwen``, llama.cpp
lists a file's path, a proxy ``provider/*``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_LATEST = ":latest"


def may_serve(listed: str, model: str) -> bool:
    """Return whether a model may be meant by a name in a server's list that is written otherwise.

    Examples
    --------
    >>> [may_serve(name, "qwen") for name in ("qwen:latest", "Qwen", "openai/*", "/models/qwen.gguf", "*")]
    [True, True, False, True, True]
    """
    name, wanted = listed.casefold(), model.casefold()
    if is_wildcard(listed):
        return fnmatchcase(wanted, name)
    file = name.replace("\\", "/").rpartition("/")[2]
    meant = {name, name.removesuffix(_LATEST), file, file.rpartition(".")[0]}
    return wanted in meant or wanted.removesuffix(_LATEST) == name


def is_wildcard(listed: str) -> bool:
    """Return whether a name in a server's list stands for many models."""
    return "*" in listed
