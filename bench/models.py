"""Model folders with fresh weights, without any package: the same for both sides.

Weights are drawn once, a million of them, and every tensor goes on where the one before ended, around and around: a
checkpoint for measurements, not for learning from.
"""
import array
import json
import pathlib
import random
import struct

DRAWN = 1_000_003
DEVIATION = 0.02

# 12.6 million parameters: the shape of the published measurements.
MEDIUM = {"vocab_size": 4096, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
          "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}


def config(shape, positions):
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "max_position_embeddings": positions, "tie_word_embeddings": False,
            "initializer_range": DEVIATION, "torch_dtype": "float32", "bos_token_id": None, "eos_token_id": None,
            **shape}


def tensors(shape):
    """Names and sizes, as published."""
    hidden, inner, dim = shape["hidden_size"], shape["intermediate_size"], shape["head_dim"]
    queries, keys = shape["num_attention_heads"] * dim, shape["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", [shape["vocab_size"], hidden]
    for layer in range(shape["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        for name, rows, columns in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)):
            yield f"{block}.self_attn.{name}_proj.weight", [rows, columns]
        for name, rows, columns in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            yield f"{block}.mlp.{name}_proj.weight", [rows, columns]
        for name, size in (("self_attn.q_norm", dim), ("self_attn.k_norm", dim), ("input_layernorm", hidden),
                           ("post_attention_layernorm", hidden)):
            yield f"{block}.{name}.weight", [size]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [shape["vocab_size"], hidden]


def write(folder, shape=MEDIUM, positions=8192):
    """Writes `config.json` and `model.safetensors`, unless they are there."""
    folder = pathlib.Path(folder)
    if (folder / "config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    drawn = array.array("f", (random.gauss(0, DEVIATION) for _ in range(DRAWN)))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, sizes in tensors(shape):
        count = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": sizes, "data_offsets": [end, end + 4 * count]}
        end += 4 * count
    head = json.dumps(header).encode()
    at = 0
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(head)) + head)
        for _, sizes in tensors(shape):
            if len(sizes) == 1:
                out.write(array.array("f", [1.0] * sizes[0]).tobytes())
                continue
            left = sizes[0] * sizes[1]
            while left:
                part = drawn[at : at + left]
                out.write(part.tobytes())
                left, at = left - len(part), (at + len(part)) % DRAWN
    (folder / "config.json").write_text(json.dumps(config(shape, positions), indent=1) + "\n")
    return folder
