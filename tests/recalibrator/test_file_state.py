"""One process a stage and directory, under one name for good."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from recalibrator.errors import StateInUse
from recalibrator.file_state import StateDirectory
from schemas.errors import ConfigError


def test_an_instance_keeps_its_name(tmp_path: Path) -> None:
    """But one that is configured goes before."""
    assert StateDirectory(tmp_path).instance_id == StateDirectory(tmp_path).instance_id
    assert StateDirectory(tmp_path).instance_id != StateDirectory(tmp_path / "other").instance_id
    assert StateDirectory(tmp_path, "fit-0").instance_id == "fit-0"


def test_a_lost_directory_cost_a_new_name(tmp_path: Path) -> None:
    """The start that followed waited 18 s until the group gave up the member of the former name."""
    before = StateDirectory(tmp_path / "state").instance_id
    shutil.rmtree(tmp_path / "state")
    assert StateDirectory(tmp_path / "state").instance_id == before


def test_a_name_given_by_an_earlier_release_stays(tmp_path: Path) -> None:
    (tmp_path / "instance-id").write_text("recalibrator-0123456789ab\n")
    assert StateDirectory(tmp_path).instance_id == "recalibrator-0123456789ab"


def test_a_stage_is_claimed_by_one_process_until_it_gives_up(tmp_path: Path) -> None:
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    first.lock("join")
    second.lock("fit")
    with pytest.raises(StateInUse, match="another process runs stage join"):
        second.lock("join")
    first.unlock()
    second.lock("join")
    second.unlock()


def test_state_of_one_cluster_is_never_taken_for_that_of_another(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    assert len({state.of_cluster(c, p) for c in ("one", "two") for p in ("ucci", "test")}) == 4


def test_unwritable_directory_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="state_dir"):
        StateDirectory(tmp_path / "file" / "state")


def test_an_instance_id_that_is_none_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "instance-id").write_text("two words\n")
    with pytest.raises(ConfigError, match="delete the file"):
        StateDirectory(tmp_path)


def test_the_state_directory_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """It holds texts of queries, and the labels that people gave."""
    state = StateDirectory(tmp_path / "state")
    state.lock("join")
    found = state.of_cluster("cluster", "ucci")
    state.unlock()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").rglob("*")}
    assert modes == {"instance-id": 0o600, "join.lock": 0o600, "cluster": 0o700, "ucci": 0o700}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert found == tmp_path / "state" / "cluster" / "ucci"
