"""A pytest plugin that writes what Hypothesis drew for each test, as digests of all its choices in their order.

Given by ``-p tests.support.drawn_choices``; writes the file that the variable DRAWN_CHOICES names. With REVERSED set,
the tests run from the last to the first.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis.internal.conjecture.data import ConjectureData

#: Several tests may have one name, such as those that Schemathesis makes of an API's routes.
_digests: dict[str, list[Any]] = defaultdict(list)
_of_this_test: list[Any] = []
_freeze = ConjectureData.freeze


def _digest_and_freeze(data: ConjectureData) -> None:
    if not data.frozen:
        for digest in _of_this_test:
            digest.update(repr(data.choices).encode("utf-8", "surrogatepass"))
    _freeze(data)


def pytest_configure() -> None:
    setattr(ConjectureData, "freeze", _digest_and_freeze)  # noqa: B010 a method is not assigned otherwise


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "REVERSED" in os.environ:
        items.reverse()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _of_this_test[:] = [hashlib.sha256()]
    _digests[item.nodeid].extend(_of_this_test)


def pytest_sessionfinish() -> None:
    unchanged = hashlib.sha256().hexdigest()
    by_test = {name: sorted({one.hexdigest() for one in digests}) for name, digests in sorted(_digests.items())}
    drawing = {name: digests for name, digests in by_test.items() if digests != [unchanged]}
    Path(os.environ["DRAWN_CHOICES"]).write_text(json.dumps(drawing, indent=1), encoding="utf-8")
