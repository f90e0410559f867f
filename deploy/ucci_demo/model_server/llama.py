"""A Llama forward pass in NumPy, from token ids to the log-probabilities of the next token.

Float32 throughout, key-value cache by slot, so that sequences of different lengths share a batch and join or leave it
between steps. Weights come from a Hugging Face checkpoint folder (safetensors, config.json).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
_MASKED = np.float32(-1e9)


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of ``config.json`` that the forward pass needs."""

    layers: int
    heads: int
    head_dim: int
    context: int
    eos_id: int
    norm_epsilon: float
    rope_theta: float

    @classmethod
    def read(cls, folder: Path) -> Shape:
        """Read it. Raises ValueError if the checkpoint is of another architecture than this file implements."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] != "llama" or config["num_key_value_heads"] != config["num_attention_heads"]:
            raise ValueError(f"{folder}: only Llama checkpoints without grouped heads are supported")
        return cls(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            head_dim=config["head_dim"],
            context=config["max_position_embeddings"],
            eos_id=config["eos_token_id"],
            norm_epsilon=config["rms_norm_eps"],
            rope_theta=config["rope_parameters"]["rope_theta"],
        )


class _Layer(NamedTuple):
    attention_norm: Floats
    qkv: Floats
    output: Floats
    mlp_norm: Floats
    gate_up: Floats
    down: Floats


class Llama:
    """The model and its key-value cache. ``slots``: how many sequences may be in flight at once."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.shape = Shape.read(folder)
        weights = load_file(folder / "model.safetensors")
        self._embedding = weights["model.embed_tokens.weight"]
        self._final_norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, index) for index in range(self.shape.layers)]
        cache = (slots, self.shape.heads, self.shape.context, self.shape.head_dim)
        self._keys = [np.zeros(cache, np.float32) for _ in self._layers]
        self._values = [np.zeros(cache, np.float32) for _ in self._layers]
        self._cos, self._sin = _rotations(self.shape)

    def prefill(self, slot: int, ids: list[int]) -> Floats:
        """Read a prompt into an empty slot. Returns log-probabilities of the token after the prompt."""
        length = len(ids)
        x = self._embedding[ids]
        causal = np.triu(np.full((length, length), _MASKED, np.float32), 1)
        cos, sin = self._cos[:length, None], self._sin[:length, None]
        for layer, keys, values in zip(self._layers, self._keys, self._values, strict=True):
            q, k, v = self._project(layer, x)
            # By head first: each head's matrices are then plain matrix products.
            q, k, v = (part.swapaxes(0, 1) for part in (_rotate(q, cos, sin), _rotate(k, cos, sin), v))
            keys[slot, :, :length], values[slot, :, :length] = k, v
            scores = q @ k.swapaxes(1, 2) * np.float32(self.shape.head_dim**-0.5) + causal
            mixed = (_softmax(scores) @ v).swapaxes(0, 1)
            x = self._after_attention(layer, x, mixed.reshape(length, -1))
        return np.asarray(self._log_probabilities(x[-1:])[0])

    def decode(self, slots: Ints, ids: Ints, positions: Ints) -> Floats:
        """Advance sequences, by slot, newest token and its position. Returns log-probabilities of what follows."""
        n, longest = len(ids), int(positions.max()) + 1
        x = self._embedding[ids]
        hidden = np.arange(longest)[None, None, :] > positions[:, None, None]
        cos, sin = self._cos[positions, None], self._sin[positions, None]
        for layer, all_keys, all_values in zip(self._layers, self._keys, self._values, strict=True):
            q, k, v = self._project(layer, x)
            q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
            all_keys[slots, :, positions], all_values[slots, :, positions] = k, v
            keys, values = all_keys[slots, :, :longest], all_values[slots, :, :longest]
            scores = (keys @ q[..., None])[..., 0] * np.float32(self.shape.head_dim**-0.5)
            weights = _softmax(np.where(hidden, _MASKED, scores))
            mixed = weights[:, :, None, :] @ values
            x = self._after_attention(layer, x, mixed.reshape(n, -1))
        return self._log_probabilities(x)

    def _project(self, layer: _Layer, x: Floats) -> tuple[Floats, Floats, Floats]:
        qkv = self._norm(x, layer.attention_norm) @ layer.qkv
        q, k, v = qkv.reshape(len(x), 3, self.shape.heads, self.shape.head_dim).swapaxes(0, 1)
        return q, k, v

    def _after_attention(self, layer: _Layer, x: Floats, mixed: Floats) -> Floats:
        x = x + mixed @ layer.output
        gate, up = np.split(self._norm(x, layer.mlp_norm) @ layer.gate_up, 2, axis=-1)
        return np.asarray(x + (gate / (1.0 + np.exp(-gate)) * up) @ layer.down)

    def _norm(self, x: Floats, weight: Floats) -> Floats:
        scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.shape.norm_epsilon)
        return np.asarray(x * scale.astype(np.float32) * weight)

    def _log_probabilities(self, x: Floats) -> Floats:
        logits = self._norm(x, self._final_norm) @ self._embedding.T
        top = logits.max(axis=-1, keepdims=True)
        return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)))


def _layer(weights: dict[str, Floats], index: int) -> _Layer:
    """Collect one layer's weights, those that share an input joined into one matrix."""

    def weight(name: str) -> Floats:
        return weights[f"model.layers.{index}.{name}.weight"]

    attention = [weight(f"self_attn.{part}_proj") for part in "qkv"]
    mlp = [weight(f"mlp.{part}_proj") for part in ("gate", "up")]
    return _Layer(
        attention_norm=weight("input_layernorm"),
        qkv=np.ascontiguousarray(np.concatenate(attention).T),
        output=np.ascontiguousarray(weight("self_attn.o_proj").T),
        mlp_norm=weight("post_attention_layernorm"),
        gate_up=np.ascontiguousarray(np.concatenate(mlp).T),
        down=np.ascontiguousarray(weight("mlp.down_proj").T),
    )


def _rotations(shape: Shape) -> tuple[Floats, Floats]:
    """Return cosines and sines of the rotary embedding (RoFormer, Su et al. 2021), shape (context, head_dim / 2)."""
    half = np.arange(0, shape.head_dim, 2, dtype=np.float32) / shape.head_dim
    angles = np.arange(shape.context, dtype=np.float32)[:, None] / np.float32(shape.rope_theta) ** half
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
