"""The overload benchmark runs, and finds the limit worth having."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.overload import main


@pytest.mark.slow
def test_the_limit_keeps_an_overloaded_server_up_and_answering(tmp_path: Path) -> None:
    main(["--quick", "--json", str(tmp_path / "overload.json")])
    found = json.loads((tmp_path / "overload.json").read_text())
    steady = found["drops_abandoned"]["steady"]
    assert steady["adaptive"]["goodput"] > steady["fixed"]["goodput"]
    assert steady["adaptive"]["times_down"] == 0
    assert found["hang"]["down_after_timeouts"] > 1.0
