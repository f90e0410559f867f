"""A checkpoint folder with all that is needed to answer text with text: tokenizer, model, batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.generation import ContinuousBatch
from ucci_demo.model_server.llama import Llama

MODELS = Path(__file__).parent.parent / "models"


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

    def name(self, token_id: int) -> str:
        """Return the text of one token, special or not."""
        return str(self.tokenizer.decode([token_id], skip_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))
