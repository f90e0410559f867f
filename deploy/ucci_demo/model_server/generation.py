"""Greedy generation with continuous batching: a step adds a token to every sequence, whatever its neighbours are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ucci_demo.model_server.llama import Llama

FinishReason = Literal["stop", "length", "abort"]
#: How many alternatives are kept for each token: the most that the protocol lets a client ask for.
TOP = 20


@dataclass(slots=True)
class GeneratedToken:
    """One token with the most probable alternatives, most probable first."""

    token_id: int
    logprob: float
    top_ids: NDArray[np.intp]
    top_logprobs: NDArray[np.float32]


@dataclass(slots=True)
class Generation:
    """One request on its way."""

    prompt_ids: list[int]
    #: Cut to what the context leaves.
    max_tokens: int
    #: Called once, from the thread that steps the batch.
    on_finished: Callable[[Generation], None]
    #: Called with each token, the last one included, from that thread.
    on_token: Callable[[GeneratedToken], None] | None = None
    tokens: list[GeneratedToken] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    cancelled: bool = False

    def finish(self, reason: FinishReason) -> None:
        """End the request and say so."""
        self.finish_reason = reason
        self.on_finished(self)


class ContinuousBatch:
    """The scheduler around one model, which was made with as many ``slots``; stepped by one thread."""

    def __init__(self, model: Llama, slots: int) -> None:
        self._model = model
        self._free = list(range(slots))
        self._waiting: deque[Generation] = deque()
        self._running: dict[int, Generation] = {}
        #: Tokens, over all requests.
        self.generated = 0

    @property
    def load(self) -> tuple[int, int]:
        """Sequences in the batch, and requests without a slot yet."""
        return len(self._running), len(self._waiting)

    def submit(self, generation: Generation) -> None:
        """Queue a request; from any thread."""
        self._waiting.append(generation)

    def step(self) -> bool:
        """Admit what fits, advance every sequence by one token; False when there was nothing to do."""
        self._admit()
        if not self._running:
            return False
        slots = np.fromiter(self._running, dtype=np.intp)
        generations = list(self._running.values())
        ids = np.array([g.tokens[-1].token_id for g in generations], dtype=np.intp)
        positions = np.array([len(g.prompt_ids) + len(g.tokens) - 1 for g in generations], dtype=np.intp)
        rows = self._model.decode(slots, ids, positions)
        for slot, generation, row in zip(slots.tolist(), generations, rows, strict=True):
            self._record(slot, generation, row)
        return True

    def abort(self) -> None:
        """End every request with what it has got so far, as a server does when it is stopped."""
        for generation in [*self._running.values(), *self._waiting]:
            generation.finish("abort")
        self._free.extend(self._running)
        self._running.clear()
        self._waiting.clear()

    def _admit(self) -> None:
        while self._free and self._waiting:
            generation = self._waiting.popleft()
            if generation.cancelled:
                continue
            slot = self._free.pop()
            self._running[slot] = generation
            self._record(slot, generation, self._model.prefill(slot, generation.prompt_ids))

    def _record(self, slot: int, generation: Generation, logprobs: NDArray[np.float32]) -> None:
        top = np.argpartition(logprobs, -TOP)[-TOP:]
        top = top[np.argsort(-logprobs[top], kind="stable")]
        token_id = int(top[0])
        token = GeneratedToken(token_id, float(logprobs[token_id]), top, logprobs[top])
        generation.tokens.append(token)
        self.generated += 1
        if generation.on_token is not None:
            generation.on_token(token)
        shape = self._model.shape
        full = len(generation.tokens) >= min(generation.max_tokens, shape.context - len(generation.prompt_ids))
        if token_id == shape.eos_id or full or generation.cancelled:
            del self._running[slot]
            self._free.append(slot)
            generation.finish("stop" if token_id == shape.eos_id else "length")
