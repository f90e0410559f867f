"""Thinking that a model writes before its answer: where the answer begins, and which tokens are the answer's own. Pure.

A server with a parser for it hands thinking out apart (``reasoning_content``); another one leaves it in the text,
between marks such as ``<think>`` and ``</think>``, the first of which may stand in the prompt. Its tokens are among
those with log-probabilities either way, and say nothing of how sure the model is of its answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

#: The end of thinking, with the white space behind it.
_CLOSES = re.compile(r"(?:</(?:think|thinking|thought|reasoning)>|\[/THINK\]|◁/think▷)[\ufeff \t\r\n]*")
#: What may stand before an answer.
_BLANK = "\ufeff \t\r\n"


def answer_start(text: str) -> int:
    """Return where the answer begins in a text: after the thinking and white space, or at 0 where nothing is thought.

    Examples
    --------
    >>> text = '<think>A lens? No.</think> {"lens": null}'
    >>> text[answer_start(text) :]
    '{"lens": null}'
    """
    if text[:1] == "{" or text.lstrip(_BLANK)[:1] == "{":
        return 0
    starts = [close.end() for close in _CLOSES.finditer(text)]
    # Thinking may name the mark that ends it.
    return next((start for start in starts if text[start : start + 1] == "{"), starts[0] if starts else 0)


def first_own_token(spelt: Sequence[bytes], answer: str) -> int | None:
    """Return the number of the first token of an answer, at the end of a reply's tokens; None where they do not tell.

    ``spelt``: what each token of the reply stands for. All tokens after the first one are the answer's, the end of
    sequence included.

    Examples
    --------
    >>> first_own_token([b"<think>", b"hm", b"</think>", b"{", b"}", b""], "{}")
    3
    >>> first_own_token([b"token_id:7", b"token_id:9"], "{}") is None
    True
    """
    whole = b"".join(spelt)
    answer_bytes = answer.encode(errors="replace")
    at = whole.rfind(answer_bytes) if answer_bytes else -1
    if at < 0:
        # A character of several tokens may be spelt otherwise than in the text; the mark is plain.
        shown = whole.decode("latin-1")
        begins = answer_start(shown)
        if not begins:
            return None
        at = begins
    ends = accumulate(map(len, spelt))
    return next((number for number, end in enumerate(ends) if end > at), None)


def first_token_from(offsets: Sequence[int], start: int, length: int) -> int | None:
    """Return the number of the first token that begins at or after ``start``, by each token's offset in the text.

    None where the offsets cannot be those of a text of this length: some servers count the names of the tokens.
    """
    if not offsets or any(later < earlier for earlier, later in pairwise(offsets)):
        return None
    inside = [offset - offsets[0] for offset in offsets]
    if not 0 < inside[-1] <= length:
        return None
    return next((number for number, offset in enumerate(inside) if offset >= start), None)
