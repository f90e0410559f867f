"""The demo's two models, run live without a server: prompts flow in, answers with marked tokens flow out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_router.model_client.uncertainty import margin
from stream_router.ports import TokenMark
from ucci_demo.model_server.checkpoint import Checkpoint
from ucci_demo.model_server.generation import GeneratedToken, Generation

SLOTS = 32
MAX_TOKENS = 256
_HELD_BACK = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    ``tokens``: generated, the end of sequence included. ``read``: tokens of the prompt. ``is_whole``: whether it ended
    by itself.
    """

    text: str
    tokens: int
    read: int
    is_whole: bool
    marks: tuple[TokenMark, ...]


class LiveModel:
    """One checkpoint; answers to equal prompts are computed once.

    ``name``: ``small`` or ``large``.
    """

    def __init__(self, name: str) -> None:
        self._checkpoint = Checkpoint.open(name, SLOTS)
        self._known: dict[str, Answer] = {}

    def answers(self, prompts: Sequence[str]) -> list[Answer]:
        """Return the greedy answers to many prompts, in their order."""
        done: dict[str, Generation] = {}
        for prompt in dict.fromkeys(prompt for prompt in prompts if prompt not in self._known):
            done[prompt] = Generation(self._checkpoint.encode(prompt), MAX_TOKENS, lambda _: None)
            self._checkpoint.batch.submit(done[prompt])
        while self._checkpoint.batch.step():
            pass
        self._known |= {prompt: self._answer(generation) for prompt, generation in done.items()}
        return [self._known[prompt] for prompt in prompts]

    def _answer(self, generation: Generation) -> Answer:
        text, marks = self._marked(generation.tokens)
        is_whole = generation.finish_reason == "stop"
        return Answer(text, len(generation.tokens), len(generation.prompt_ids), is_whole, marks)

    def _marked(self, tokens: Sequence[GeneratedToken]) -> tuple[str, tuple[TokenMark, ...]]:
        """Return the text and where each token begins in it, as a stream shows it."""
        text, ids, marks = "", list[int](), []
        for token in tokens:
            marks.append(TokenMark(len(text), margin(token.top_logprobs[:2].tolist())))
            ids.append(token.token_id)
            grown = self._checkpoint.decode(ids)
            text = text if grown.endswith(_HELD_BACK) else grown
        return text, tuple(marks)
