"""Names of fields and workloads: two that people, models or labelers cannot tell apart are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_text import parse_settings


def settings_of(*fields: str, workload: str = "photo") -> Settings:
    table = {"fields": fields, "target": {"micro_f1": 0.9}}
    return parse_settings("", {"UCCI_WORKLOADS": json.dumps({workload: table})})


def fault_of(*fields: str, workload: str = "photo") -> str:
    with pytest.raises(ConfigError) as refused:
        settings_of(*fields, workload=workload)
    (fault,) = refused.value.faults
    return fault


@pytest.mark.parametrize(
    "name",
    [
        "camera ",
        " camera",
        "camera\n",
        "cam\tera",
        "iso\u200b",
        "\ufeffiso",
        "i\u00adso",
        "iso\ufe0f",
        "\u3164",
        "i\u034fso",
    ],
    ids=ascii,
)
def test_a_name_that_hides_something_is_refused(name: str) -> None:
    for fault in (fault_of("lens", name), fault_of("lens", workload=name)):
        assert ascii(name) in fault
        assert fault.isprintable()


@pytest.mark.parametrize(
    ("first", "second"),
    [("camera", "Camera"), ("film type", "film  type"), ("\u00c5", "A\u030a"), ("ﬁlm", "film"), ("straße", "STRASSE")],
)
def test_fields_that_look_alike_are_refused(first: str, second: str) -> None:
    fault = fault_of(first, "lens", second)
    assert f"{first} and {second}" in fault


def test_two_workloads_may_differ_by_case() -> None:
    table = {"fields": ["iso"], "target": {"micro_f1": 0.9}}
    assert len(parse_settings("", {"UCCI_WORKLOADS": json.dumps({"Photo": table, "photo": table})}).workloads) == 2


@given(name=st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=20))
def test_a_taken_name_has_no_twin_in_another_case(name: str) -> None:
    twin = name.swapcase()
    assert settings_of(name).workloads["photo"].fields == (name,)
    if twin != name:
        assert f"{name} and {twin} differ by case" in fault_of(name, twin)
