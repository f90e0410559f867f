"""What a run of pip-audit amounts to: a database that is not reached is no clean bill of health."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tools.dependency_audit import verdict

SAFE = {"name": "numpy", "version": "2.0", "vulns": []}
FAULTY = {"name": "jinja2", "version": "3.0", "vulns": [{"id": "GHSA-1"}, {"id": "GHSA-2"}]}
SKIPPED = {"name": "ours", "skip_reason": "not found"}


def done(packages: list[dict[str, Any]] | None, code: int = 0) -> subprocess.CompletedProcess[str]:
    said = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    return subprocess.CompletedProcess([], code, said, "ServiceError: no route to host")


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([SAFE], 0, "no known vulnerability (1 of 1 packages looked up)"),
        ([SAFE, SKIPPED], 0, "no known vulnerability (1 of 2 packages looked up)"),
        (
            [SAFE, FAULTY],
            1,
            "2 known vulnerabilities (2 of 2 packages looked up): jinja2 3.0: GHSA-1, jinja2 3.0: GHSA-2",
        ),
        ([SKIPPED, SKIPPED], 3, "not audited: none of its packages"),
        ([], 3, "not audited: none of its packages"),
        (None, 3, "not audited: the database of vulnerabilities is not reached (ServiceError: no route to host)"),
    ],
)
def test_a_database_that_is_not_reached_is_no_clean_bill(
    packages: list[dict[str, Any]] | None, code: int, said: str
) -> None:
    found, line = verdict(done(packages, int(code == 1)))
    assert found == code
    assert line.startswith(said)
