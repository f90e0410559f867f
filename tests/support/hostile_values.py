"""Values that no sender should send: text of JSON, so that what ``json.dumps`` would never write is among it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HOSTILE_VALUES: tuple[str, ...] = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "-0", "0", "-1", "1.5", "01", "+1", ".5", "1."),
    *("9" * 30, "9" * 5_000, "9007199254740993", "1" + "0" * 400 + ".0", "true", "false", "null", "nul", "None"),
    *('""', '" "', '"\\u0000"', '"\x00"', '"\\ud800"', '"\\udc00\\ud800"', '"\ud800"', '"\\u12"', '"\\x"', '"\t"', '"'),
    *('"\ufeff"', '"\u202e\u0000"', '"' + "é" * 600 + '"', '"' + "x" * 5_000 + '"', "'q'", "[]", "{}", "[[]]", "[{}]"),
    *("[null]", "[1]", "[" * 200, "[" * 200 + "]" * 200, '{"a":' * 200, '{"a":' * 200 + "1" + "}" * 200, "{a:1}"),
    *('{"a":1,"a":2}', '{"":""}', '{"\\u0000":"\\u0000"}', '["a","b",]', '{"a":1,}', "/*x*/1", "1//x", "\ufeff1"),
    *('"2999-12-31T23:59:59Z"', '"2026-01-01T00:06:00Z"', '"2026-01-01"', '"2026-02-30T00:00:00Z"', '"now"'),
    *(
        '"1970-01-01T00:00:00+23:00"',
        '"0001-01-01T00:00:00+23:59"',
        '"9999-12-31T23:59:59-23:59"',
        '"20260101T000000Z"',
    ),
    *('"2026-01-01T00:00:00"', '"2026-01-01T24:00:00Z"', '"2026-01-01T00:00:60Z"', '"1767225600"', "1767225600"),
)


def places(node: object) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a value within a JSON document, as its holder and its key or index."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(items):
        yield node, key
        yield from places(child)
