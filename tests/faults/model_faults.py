"""The model servers fail in every way that a server on the network can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from random import Random

from tests.faults.arena import Arena
from tests.faults.episodes import Episode, Kind, recovered
from tests.faults.model_pair import SIDES, ModelPair, Side
from tests.support.scripted_model_server import Fault

FAULT_S = (2.0, 5.0)
_SIDES: tuple[tuple[Side, ...], ...] = (("small",), ("large",), SIDES)

FAULTS: Mapping[str, Callable[[ModelPair, Side], None]] = {
    "down": ModelPair.down,
    "hanging": lambda pair, side: pair.play(side, Fault("hang")),
    "slow-loris": lambda pair, side: pair.play(side, Fault("drip")),
    "500 storm": lambda pair, side: pair.play(side, Fault("status", status=500)),
    "503 storm": lambda pair, side: pair.play(side, Fault("status", status=503)),
    "429 storm": lambda pair, side: pair.play(side, Fault("status", status=429)),
    "truncated body": lambda pair, side: pair.play(side, Fault("truncated")),
    "truncated JSON": lambda pair, side: pair.play(side, Fault("half_json")),
    "answer is no JSON": lambda pair, side: pair.play(side, Fault("bad_answer")),
    "wrong model name": lambda pair, side: pair.rename(side, "another"),
    "10 MB reply": lambda pair, side: pair.play(side, Fault("ten_megabytes")),
    "connection reset": lambda pair, side: pair.play(side, Fault("reset")),
    "brown-out": lambda pair, side: pair.brown_out(side),
}


def models(name: str) -> Kind:
    """Return the kind that has one or both servers fail in one way for some seconds."""

    def fault(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
        for number in range(times):
            sides = _SIDES[number % len(_SIDES)] if times > 1 else draw.choice(_SIDES)
            began_s = time.monotonic()
            for side in sides:
                FAULTS[name](arena.models, side)
            time.sleep(draw.uniform(*FAULT_S))
            for side in sides:
                arena.models.recover(side)
                if name == "down":
                    arena.models.up(side)
            fault_s = time.monotonic() - began_s
            # A result that both models have answered as they do in good times.
            yield recovered(arena, f"model: {name}", " and ".join(sides), "whole", fault_s=fault_s)

    return fault
