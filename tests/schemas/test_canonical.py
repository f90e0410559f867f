"""The digest against an RFC 8785 computation that shares no code with it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import CalibrationVersion
from schemas.canonical import digest
from tests.support import strategies


def canonical(value: Any) -> str:
    """RFC 8785 by its text: keys by UTF-16 code units, ECMAScript numbers, minimal escapes."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return ecmascript(value)
    # Python escapes DEL as it is, and control characters as the RFC wants them.
    return json.dumps(value, ensure_ascii=False)


def ecmascript(value: float) -> str:
    """Number::toString of ECMA-262, 6.1.6.1.20, from Python's shortest digits."""
    if value == 0:
        return "0"
    sign, value = ("-", -value) if value < 0 else ("", value)
    mantissa, exponent = f"{value!r}e0".split("e")[:2] if "e" in repr(value) else (repr(value), "0")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    size = len(digits)
    if size <= point <= 21:
        return sign + digits + "0" * (point - size)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    power = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return sign + digits[0] + (f".{digits[1:]}" if size > 1 else "") + power


# RFC 8785, appendix B, and section 3.2.
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e21, "1e+21"),
        (999999999999999700000.0, "999999999999999700000"),
        (0.000001, "0.000001"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (1424953923781206.25, "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_the_rfc_lists_them(value: float, written: str) -> None:
    assert ecmascript(value) == written
    assert digest({"x": value}) == sha256(f'{{"x":{written}}}'.encode()).hexdigest()


def test_keys_are_sorted_by_utf_16_code_units() -> None:
    document = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    written = '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}'
    assert canonical(document) == written
    assert digest(document) == sha256(written.encode()).hexdigest()


def test_the_digest_leaves_itself_out() -> None:
    assert digest({"a": 1, "digest": "x"}) == digest({"a": 1}) == sha256(b'{"a":1}').hexdigest()


#: Those of floats alone and of integers alone are written by shorter ways than mixed ones.
NUMBERS = (
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False)
        | st.floats(0.0, 1.0).map(lambda share: round(share, 5))
        | st.integers(-(10**6), 10**6).map(float)
    )
    | st.lists(st.integers(-(2**53) + 1, 2**53 - 1))
    | st.lists(st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(0.0, 1.0) | st.text("aé\n"))
)


@given(document=strategies.json_objects, numbers=NUMBERS)
def test_the_digest_is_that_of_an_independent_computation(document: dict[str, Any], numbers: list[Any]) -> None:
    document = {name: value for name, value in document.items() if name != "digest"} | {"numbers": numbers}
    assert digest(document) == sha256(canonical(document).encode()).hexdigest()


@settings(max_examples=15)
@given(version=strategies.calibration_versions())
def test_digest_is_checkable_from_the_bytes(version: CalibrationVersion) -> None:
    """Another program can verify a version's digest from its bytes alone."""
    document = json.loads(version.to_json())
    claimed = document.pop("digest")
    assert claimed == sha256(canonical(document).encode()).hexdigest()


@pytest.mark.parametrize(
    "value",
    [float("nan"), [0.5, float("-inf")], 2**53, -(2**53), [10**30], [1, 2, 2**53], "\ud800", {1: 2}],
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="no canonical JSON form"):
        digest({"x": value})
