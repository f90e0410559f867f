"""How the call costs of two models compare: ratios and prices from measured calls, with bootstrap intervals.

A server that always has ``C`` calls in flight, each of a mean time ``T``, finishes ``C / T`` calls a second (Little's
law), so that a call takes ``T / C`` seconds of the server: what an operator pays for, and what is compared here.

Calls were made in blocks, each of which asked both models the same queries shortly after each other. The bootstrap
draws whole blocks: whatever slowed the machine for a while hit both models' calls of that block, and stays with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.routed import ModelRole
from stream_router.model_client.http_probe import ROLES

Floats = npt.NDArray[np.float64]
#: A whole answer, or a call for one token alone: what it takes to read the prompt.
Kind = Literal["answer", "reading"]

_DRAWS = 2_000
_SEED = 0
_INTERVAL = (2.5, 97.5)
#: Of the time of an answer, that generating it takes at least: prices stay above 0 where noise says otherwise.
_LEAST_SHARE = 1e-3


class TimedCall(NamedTuple):
    """One measured call."""

    role: ModelRole
    kind: Kind
    #: From 0.
    block: int

    latency_s: float
    #: As the server counts them; ``prompt_tokens`` is 0 where it does not.
    prompt_tokens: int
    completion_tokens: int


class Interval(NamedTuple):
    """An estimate with its 95% bootstrap interval."""

    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """How one server did with whole answers."""

    calls: int
    p50_s: float
    p99_s: float
    #: Calls finished and tokens generated a second, with all places taken.
    calls_per_s: float
    generated_per_s: float
    #: Prompt tokens that it takes in a second when it generates one token a call; None where that was not measured.
    read_per_s: float | None
    #: Mean of a call.
    prompt_tokens: float
    completion_tokens: float


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Prices of tokens in those that the small model generates; see :class:`schemas.costs.ModelCosts`."""

    #: One token that the large model generates.
    large: Interval
    #: One token read; None where servers do not count them, and the tokens generated bear the whole cost.
    prompt_small: Interval | None
    prompt_large: Interval | None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What the calls say."""

    servers: Mapping[ModelRole, ServerFigures]
    #: One call of the large model, in calls of the small one.
    large: Interval

    tokens: TokenPrices


class _Sums(NamedTuple):
    """Sums over calls; of each block, or of each draw of blocks."""

    seconds: Floats
    calls: Floats
    read: Floats
    generated: Floats

    def drawn(self, draws: npt.NDArray[np.int64]) -> _Sums:
        return _Sums(*(column[draws].sum(axis=1) for column in self))


class _Prices(NamedTuple):
    """Seconds of latency for one call, one token generated and one token read; of each draw."""

    call: Floats
    generated: Floats
    read: Floats


def estimate_costs(
    calls: Sequence[TimedCall], concurrency: int, server_prices: Mapping[ModelRole, float]
) -> CostEstimate:
    """Compare what calls of both models cost.

    ``calls``: whole answers of both models in every block; calls for one token where both servers count prompts.
    ``concurrency``: calls in flight at the server throughout. ``server_prices``: what each server costs for as long as
    it is up; only the ratio matters.
    """
    blocks = 1 + max(call.block for call in calls)
    # The first row is what was measured, each block once.
    chosen = np.random.default_rng(_SEED).integers(0, blocks, size=(_DRAWS, blocks))
    draws = np.vstack([np.arange(blocks), chosen])
    prices = {role: _prices(calls, role, blocks, draws, server_prices[role]) for role in ROLES}
    small, large = prices["small"], prices["large"]
    is_apart = any(call.kind == "reading" for call in calls)
    return CostEstimate(
        servers={role: _figures([call for call in calls if call.role == role], concurrency) for role in ROLES},
        large=_interval(large.call / small.call),
        tokens=TokenPrices(
            large=_interval(large.generated / small.generated),
            prompt_small=_interval(small.read / small.generated) if is_apart else None,
            prompt_large=_interval(large.read / small.generated) if is_apart else None,
        ),
    )


def _prices(
    calls: Sequence[TimedCall], role: ModelRole, blocks: int, draws: npt.NDArray[np.int64], server_price: float
) -> _Prices:
    """Solve for the two prices that explain both kinds of calls: time = read * p + generated * g."""
    of_role = [call for call in calls if call.role == role]
    whole = _sums((call for call in of_role if call.kind == "answer"), blocks).drawn(draws)
    first = _sums((call for call in of_role if call.kind == "reading"), blocks).drawn(draws)
    seconds = server_price * whole.seconds
    read = np.zeros_like(seconds)
    determinant = first.read * whole.generated - whole.read * first.generated
    is_known = determinant > 0.0
    solved = server_price * (first.seconds * whole.generated - whole.seconds * first.generated)
    read[is_known] = solved[is_known] / determinant[is_known]
    most = (1.0 - _LEAST_SHARE) * np.divide(seconds, whole.read, out=np.zeros_like(seconds), where=whole.read > 0.0)
    read = np.clip(read, 0.0, most)
    generated = (seconds - read * whole.read) / np.maximum(whole.generated, 1.0)
    return _Prices(call=seconds / whole.calls, generated=generated, read=read)


def _sums(calls: Iterable[TimedCall], blocks: int) -> _Sums:
    sums = _Sums(*(np.zeros(blocks) for _ in _Sums._fields))
    for call in calls:
        sums.seconds[call.block] += call.latency_s
        sums.calls[call.block] += 1.0
        sums.read[call.block] += call.prompt_tokens
        sums.generated[call.block] += call.completion_tokens
    return sums


def _figures(calls: Sequence[TimedCall], concurrency: int) -> ServerFigures:
    answers = [call for call in calls if call.kind == "answer"]
    readings = [call for call in calls if call.kind == "reading"]
    latencies = [call.latency_s for call in answers]
    calls_per_s = concurrency * len(answers) / sum(latencies)
    generated = sum(call.completion_tokens for call in answers) / len(answers)
    seconds_reading, read = sum(call.latency_s for call in readings), sum(call.prompt_tokens for call in readings)
    p50, p99 = np.percentile(latencies, (50.0, 99.0))
    return ServerFigures(
        calls=len(answers),
        p50_s=float(p50),
        p99_s=float(p99),
        calls_per_s=calls_per_s,
        generated_per_s=calls_per_s * generated,
        read_per_s=concurrency * read / seconds_reading if seconds_reading > 0.0 else None,
        prompt_tokens=sum(call.prompt_tokens for call in answers) / len(answers),
        completion_tokens=generated,
    )


def _interval(draws: Floats) -> Interval:
    """Return the first value, which is that of the blocks as measured, and percentiles of the others."""
    lower, upper = np.percentile(draws[1:], _INTERVAL)
    return Interval(float(draws[0]), float(lower), float(upper))
