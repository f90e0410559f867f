"""Detectors as settings name them, each mistake with its remedy."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError
from schemas.settings import WorkloadSettings
from schemas.settings_text import parse_settings
from schemas.settings_workload import DEFAULT_DETECTORS

TABLE = """
[workloads.w]
fields = ["a"]
target = { micro_f1 = 0.9 }
"""


def read(lines: str) -> WorkloadSettings:
    return parse_settings(TABLE + lines, {}, "ucci.toml").workloads["w"]


def test_the_default_is_all_of_ours() -> None:
    assert (read("").detectors, read("").river) == (DEFAULT_DETECTORS, {})


def test_detectors_of_both_kinds_are_read_in_order() -> None:
    found = read(
        'detectors = ["label_residual", "agreement"]\nriver = { KSWIN = { alpha = 0.001, seed = 7 }, ADWIN = {} }'
    )
    assert found.detectors == ("label_residual", "agreement")
    assert list(found.river.items()) == [("KSWIN", {"alpha": 0.001, "seed": 7}), ("ADWIN", {})]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('detectors = ["agrement"]', r"workloads\.w\.detectors\.0: .*'agreement'"),
        ('detectors = ["agreement", "agreement"]', r"must not name a detector twice: agreement"),
        ("river = { HDDM_W = {} }", r"workloads\.w\.river\.HDDM_W.*'ADWIN', 'PageHinkley' or 'KSWIN'"),
        ("river = { ADWIN = { delta = [1] } }", r"workloads\.w\.river\.ADWIN\.delta"),
    ],
)
def test_a_mistake_is_a_configuration_error_with_its_remedy(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(line)
