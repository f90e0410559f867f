"""Detectors as settings name them: read as text and never run, each mistake with its remedy."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.detectors import DEFAULT_DETECTORS, check_detector, river_spec
from schemas.errors import ConfigError
from schemas.settings_text import parse_settings

TABLE = """
[workloads.w]
fields = ["a"]
target = {{ micro_f1 = 0.9 }}
detectors = {detectors}
"""


def test_the_default_is_all_of_ours() -> None:
    text = TABLE.format(detectors="").replace("detectors = \n", "")
    assert parse_settings(text, {}, "ucci.toml").workloads["w"].detectors == DEFAULT_DETECTORS


def test_detectors_of_both_kinds_are_read_in_order() -> None:
    text = TABLE.format(detectors='["agreement", "river:KSWIN(alpha=0.001, seed=7)", "river:ADWIN"]')
    found = parse_settings(text, {}, "ucci.toml").workloads["w"].detectors
    assert found == ("agreement", "river:KSWIN(alpha=0.001, seed=7)", "river:ADWIN")
    assert river_spec(found[1]).arguments == {"alpha": 0.001, "seed": 7}


@pytest.mark.parametrize(
    ("detectors", "message"),
    [
        ('["agrement"]', r"workloads\.w\.detectors\.0: 'agrement' is no detector: use agreement, .* or river:ADWIN"),
        ('["river:HDDM_W"]', r"river has no such detector here; use one of ADWIN, PageHinkley, KSWIN"),
        ('["river:ADWIN(delta=2.0)"]', r"delta must be a number from 1e-09 to 0\.5"),
        ('["river:ADWIN(clock=1.5)"]', r"clock must be a whole number from 1"),
        ('["river:ADWIN(clock=true)"]', r"write it as river:ADWIN\(delta=0\.002\)"),
        ('["river:ADWIN(clock=True)"]', r"clock must be a whole number"),
        ('["river:ADWIN(alpha=0.1)"]', r"ADWIN has no argument alpha; it takes delta, clock"),
        ('["river:ADWIN(0.1)"]', r"with plain values by name"),
        ('["river:PageHinkley(mode=\\"left\\")"]', r"mode must be one of 'up', 'down', 'both'"),
        ('["river:KSWIN"]', r"give it a seed, such as seed=1"),
        ('["river:KSWIN(seed=1, stat_size=80)"]', r"window_size must be at least twice stat_size \(80\)"),
        ('["agreement", "agreement"]', r"must not name a detector twice: agreement"),
        ("[]", r"workloads\.w\.detectors: .*at least 1"),
    ],
)
def test_a_mistake_is_a_configuration_error_with_its_remedy(detectors: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings(TABLE.format(detectors=detectors), {}, "ucci.toml")


@given(st.text(max_size=300) | st.from_regex(r"(ADWIN|__import__\('os'\))\([a-z_]{0,8}=?.{0,20}\)(\.[a-z]+)?"))
def test_whatever_is_written_is_read_or_refused_and_never_run(text: str) -> None:
    with suppress(ValueError):
        check_detector(f"river:{text}")
        assert text.split("(", maxsplit=1)[0].strip() in ("ADWIN", "PageHinkley", "KSWIN")
