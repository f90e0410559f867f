"""Trains the second pair, which reads job listings: a small and a large Llama, some twenty minutes of one core.

Needs JAX, which nothing else here does: ``pip install -r research/answers/train.lock`` into an environment with the
demo's packages, then ``python -m research.answers.train``. What it writes, ``listings_small`` and ``listings_large``,
is committed, in the format of the demo's checkpoints.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from research.answers.listings import FIELDS, PROMPT, listing

FOLDER = Path(__file__).parent
PAD, START, END = 0, 1, 2
VOCABULARY, LENGTH, BATCH = 700, 96, 48
_SIZED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
SIZES = {
    "small": dict(zip(_SIZED, (40, 96, 2, 2, 20), strict=True)),
    "large": dict(zip(_SIZED, (96, 256, 3, 4, 24), strict=True)),
}
STEPS = {"small": 2_000, "large": 1_500}
RATE = {"small": 6e-3, "large": 4e-3}

Weights = dict[str, jax.Array]


def answer(gold: dict[str, str | None]) -> str:
    """Return the answer that a query should get."""
    return " " + json.dumps(gold)


def made_tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer in which each key of the answer is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    keys = [f'{" {" if not place else ", "}"{field}": ' for place, field in enumerate(FIELDS)]
    added = [AddedToken(token, special=False) for token in ("Job: ", "\nOutput:", *keys, "null", '"}', "null}")]
    draw = random.Random(1)
    texts = [
        text for one in (listing(draw) for _ in range(8_000)) for text in (one.text, *filter(None, one.gold.values()))
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(added),
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(added)
    return tokenizer


def batch(tokenizer: Tokenizer, draw: random.Random) -> tuple[np.ndarray, np.ndarray]:
    """Draw texts with their answers; returns ids and which of them are to be learned, shape (batch, length)."""
    ids, learned = np.full((BATCH, LENGTH), PAD), np.zeros((BATCH, LENGTH), dtype=bool)
    for row in range(BATCH):
        query = listing(draw)
        asked = tokenizer.encode(PROMPT.replace("{text}", query.text)).ids
        said = [*tokenizer.encode(answer(query.gold)).ids, END]
        whole = (asked + said)[:LENGTH]
        ids[row, : len(whole)] = whole
        learned[row, len(asked) : len(whole)] = True
    return ids, learned


def drawn_weights(size: dict[str, int], vocabulary: int, seed: int) -> Weights:
    """Return weights to start from, by their names in a checkpoint."""
    hidden, inner, attended = (
        size["hidden_size"],
        size["intermediate_size"],
        size["num_attention_heads"] * size["head_dim"],
    )
    shapes = {"model.embed_tokens": (vocabulary, hidden)}
    for layer in range(size["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.{part}_proj": (attended, hidden) for part in "qkv"}
        shapes |= {f"{at}.self_attn.o_proj": (hidden, attended), f"{at}.mlp.down_proj": (hidden, inner)}
        shapes |= {f"{at}.mlp.{part}_proj": (inner, hidden) for part in ("gate", "up")}
        shapes |= {f"{at}.{norm}_layernorm": (hidden,) for norm in ("input", "post_attention")}
    shapes["model.norm"] = (hidden,)
    rng = np.random.default_rng(seed)
    return {
        f"{name}.weight": jnp.ones(shape)
        if len(shape) == 1
        else jnp.asarray(
            rng.standard_normal(shape) * (0.05 if "embed" in name else shape[1] ** -0.5), dtype=jnp.float32
        )
        for name, shape in shapes.items()
    }


def logits(weights: Weights, ids: jax.Array, size: dict[str, int]) -> jax.Array:
    """Return the forward pass of a Llama, shape (batch, length, vocabulary)."""
    heads, width, length = size["num_attention_heads"], size["head_dim"], ids.shape[1]
    angles = jnp.arange(length)[:, None] / 10_000.0 ** (jnp.arange(0, width, 2) / width)
    cos, sin = (jnp.concatenate((part, part), axis=-1)[:, None] for part in (jnp.cos(angles), jnp.sin(angles)))
    future = jnp.triu(jnp.full((length, length), -1e9), 1)

    def norm(x: jax.Array, name: str) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weights[f"{name}.weight"]

    def turned(x: jax.Array) -> jax.Array:
        first, second = jnp.split(x, 2, axis=-1)
        return x * cos + jnp.concatenate((-second, first), axis=-1) * sin

    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(size["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        y = norm(x, f"{at}.input_layernorm")
        q, k, v = (
            (y @ weights[f"{at}.self_attn.{part}_proj.weight"].T).reshape(*y.shape[:2], heads, width) for part in "qkv"
        )
        scores = jnp.einsum("bihd,bjhd->bhij", turned(q), turned(k)) * width**-0.5 + future
        mixed = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v).reshape(*y.shape[:2], heads * width)
        x = x + mixed @ weights[f"{at}.self_attn.o_proj.weight"].T
        y = norm(x, f"{at}.post_attention_layernorm")
        gate, up = (y @ weights[f"{at}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (jax.nn.silu(gate) * up) @ weights[f"{at}.mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ weights["model.embed_tokens.weight"].T


def trained(role: str, tokenizer: Tokenizer, steps: int) -> Weights:
    """Train one model on texts that are drawn as it goes."""
    size = SIZES[role]
    weights = drawn_weights(size, tokenizer.get_vocab_size(), seed=1)
    rule = optax.adamw(
        optax.warmup_cosine_decay_schedule(0.0, RATE[role], 100, steps, RATE[role] / 50), weight_decay=0.01
    )

    @jax.jit
    def step(weights: Weights, state: Any, ids: jax.Array, learned: jax.Array) -> tuple[Weights, Any, jax.Array]:
        def loss(weights: Weights) -> jax.Array:
            each = optax.softmax_cross_entropy_with_integer_labels(logits(weights, ids[:, :-1], size), ids[:, 1:])
            return (each * learned[:, 1:]).sum() / learned[:, 1:].sum()

        found, slope = jax.value_and_grad(loss)(weights)
        change, state = rule.update(slope, state, weights)
        return optax.apply_updates(weights, change), state, found

    draw, state, began = random.Random(f"train {role}"), rule.init(weights), time.perf_counter()
    for number in range(steps):
        ids, learned = batch(tokenizer, draw)
        end = -(-int((ids != PAD).sum(axis=1).max()) // 8) * 8
        weights, state, found = step(weights, state, ids[:, :end], learned[:, :end])
        if number % 100 == 0:
            sys.stderr.write(f"{role} {number}: loss {float(found):.4f}, {time.perf_counter() - began:.0f} s\n")
    return weights


def save(weights: Weights, role: str, tokenizer: Tokenizer) -> None:
    """Write a checkpoint."""
    folder = FOLDER / f"listings_{role}"
    folder.mkdir(exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": START,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "num_key_value_heads": SIZES[role]["num_attention_heads"],
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": tokenizer.get_vocab_size(),
        **SIZES[role],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({name: np.asarray(one, dtype=np.float32) for name, one in weights.items()}, folder / "model.safetensors")


def main() -> None:
    """Train both and write them."""
    tokenizer = made_tokenizer()
    for role, steps in STEPS.items():
        save(trained(role, tokenizer, steps), role, tokenizer)


if __name__ == "__main__":
    main()
