"""A checkpoint folder with all that is needed to answer text with text: tokenizer, model, batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.generation import ContinuousBatch
from ucci_demo.model_server.guide import Vocabulary
from ucci_demo.model_server.llama import Llama

MODELS = Path(__file__).parent.parent / "models"

_SHOWN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = sorted(set(range(256)) - set(_SHOWN))
#: Which byte each character of a byte-level vocabulary stands for (Radford et al. 2019, section 2.2).
_BYTE_OF = {chr(byte): byte for byte in _SHOWN} | {chr(256 + place): byte for place, byte in enumerate(_HIDDEN)}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint."""

    tokenizer: Tokenizer
    model: Llama
    batch: ContinuousBatch

    @classmethod
    def open(cls, name: str, slots: int) -> Checkpoint:
        """Open ``small``, ``large`` or a folder. Raises ValueError if the folder holds no such checkpoint."""
        folder = MODELS / f"photo_{name}" if name in ("small", "large") else Path(name)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder}: holds no checkpoint; give small, large or a folder with config.json")
        model = Llama(folder, slots)
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), model, ContinuousBatch(model, slots))

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt."""
        return list(self.tokenizer.encode(prompt).ids)

    def prompt_ids(self, text: str) -> list[int]:
        """Return the token ids of a query in the checkpoints' own prompt."""
        return self.encode(PROMPT.replace("{text}", text))

    def vocabulary(self) -> Vocabulary:
        """Return the bytes of every token; special ones have none."""
        tokens = [b""] * self.model.vocabulary
        added = json.loads(self.tokenizer.to_str())["added_tokens"]
        for token, token_id in self.tokenizer.get_vocab(with_added_tokens=False).items():
            tokens[token_id] = bytes(_BYTE_OF[character] for character in token)
        for token in added:
            tokens[token["id"]] = b"" if token["special"] else token["content"].encode()
        return Vocabulary(tokens, self.model.shape.eos_id)

    def name(self, token_id: int) -> str:
        """Return the text of one token, special or not."""
        return str(self.tokenizer.decode([token_id], skip_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))
