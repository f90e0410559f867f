"""The memo: recorded outputs by prompt, token by token with each runner-up.

Packed as flat arrays with row ends; about 24 bytes a token before compression. An answer from here and one computed
live go through the same protocol code and are equal. Decoding is greedy: to a recorded prompt that ends with the
first tokens of its recorded answer, the model adds the rest of that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.generation import GeneratedToken

RECORDED = Path(__file__).parent.parent / "recorded"
MEMO_NAME = "memo_{role}.npz"
ALTERNATIVES = 2
#: What ends a prompt; an answer's beginning may follow.
_TAIL = PROMPT.partition("{text}")[2]


class Memo:
    """Recorded outputs of one model."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as packed:
            texts = packed["texts"].tobytes().decode().split("\n")
            ends = packed["ends"].tolist()
            self._ids: NDArray[np.int16] = packed["ids"]
            self._logprobs: NDArray[np.float32] = packed["logprobs"]
        rows = zip(texts, [0, *ends[:-1]], ends, strict=True)
        self._rows = {PROMPT.replace("{text}", text): slice(start, end) for text, start, end in rows}

    @classmethod
    def of(cls, role: str) -> Memo | None:
        """Return the memo of ``small`` or ``large``, None for any other checkpoint."""
        path = RECORDED / MEMO_NAME.format(role=role)
        return cls(path) if path.is_file() else None

    def find(self, prompt: str) -> list[GeneratedToken] | None:
        """Return the recorded tokens of a prompt, or None where it was not recorded."""
        row = self._rows.get(prompt)
        if row is None:
            return None
        tokens = zip(self._ids[row].astype(np.intp), self._logprobs[row], strict=True)
        return [GeneratedToken(int(ids[0]), float(logprobs[0]), ids, logprobs) for ids, logprobs in tokens]

    def find_rest(
        self, prompt: str, prompt_ids: list[int], encode: Callable[[str], list[int]]
    ) -> list[GeneratedToken] | None:
        """Return what follows a prompt that ends with the beginning of an answer, where it follows from a recording.

        ``prompt_ids``: its tokens, which may be other ones than those that the model once generated for the same text.
        None unless the tokens are those of a recorded prompt and the first ones of its recorded answer.
        """
        asked = "".join(prompt.partition(_TAIL)[:2])
        recorded = self.find(asked)
        if recorded is None:
            return None
        asked_ids = encode(asked)
        begun = len(prompt_ids) - len(asked_ids)
        is_recorded = prompt_ids == asked_ids + [token.token_id for token in recorded[:begun]]
        return (recorded[begun:] or None) if is_recorded else None
