"""How sure the model was of each field of its answer: the mean margin p1 - p2 of the tokens of the field's value. Pure.

Where a token stands in the text is known of streamed replies alone; see :mod:`stream_router.model_client.request`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from stream_router.ports import TokenMark

#: A key with its colon, which is a group, or else a string whole, so that nothing inside it passes for a key.
_STRING = re.compile(r'"(?:([^"\\]*)"\s*:\s*|[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)

_DIGITS = 4


def field_margins(text: str, marks: Sequence[TokenMark], fields: Collection[str]) -> dict[str, float]:
    r"""Return the margin of each field that the answer names, in [0, 1], rounded to four places.

    The tokens of a value are those that hold any of its characters: that which opens it decides between a value and
    null, and is often one with the end of the key.

    Parameters
    ----------
    text : str
        A valid answer: one JSON object of texts, lists of texts and nulls.
    marks : sequence of TokenMark
        Of its tokens, in order; tokens that came together share one start.
    fields : collection of str
        The workload's. A key that is written with escapes is not found.

    Examples
    --------
    >>> marks = [TokenMark(0, 1.0), TokenMark(2, 0.9), TokenMark(7, 0.5), TokenMark(11, 0.7), TokenMark(12, 0.2)]
    >>> field_margins('{"iso": "100"}', marks, ("iso", "lens"))
    {'iso': 0.4667}
    """
    keys = [(key, found.end(), found.start()) for found in _STRING.finditer(text) if (key := found[1])]
    if not marks:
        return {}
    starts, sure = zip(*marks, strict=True)
    margins: dict[str, float] = {}
    end = len(text)
    for field, begins, key_begins in reversed(keys):
        # Of a key that comes twice, the last counts in JSON.
        if field in fields and field not in margins:
            first = bisect_left(starts, starts[max(0, bisect_right(starts, begins) - 1)])
            inside = sure[first : bisect_left(starts, end)]
            if inside:
                margins[field] = round(sum(inside) / len(inside), _DIGITS)
        end = key_begins
    return margins
