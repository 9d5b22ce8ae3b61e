"""Writes a made-up checkpoint in the released layout; the weights come from a formula.

    python3 tools/reference/made_up.py OUT_FOLDER --preset deep25
    python3 tools/reference/made_up.py OUT_FOLDER --geometry my.json --seed 7
    python3 tools/reference/made_up.py OUT_FOLDER --preset tiny --set hidden_size=128 --set ...

Formula: page Appendix A.2, with the seed of a tensor

    seed(name) = FNV-1a64(name) XOR mix(s)      s = --seed, mix = the splitmix64 finaliser, mix(0) = 0

so --seed 0 --gain page is exactly A.2.  With --gain fan-in (the default) activations keep their size
at any width; `in` is the logical input width:

    BF16 matrices (also gate.weight and lm_head, not embed_tokens)   sqrt(3 / in) * r
    of these o_proj, down_proj, routed_expert_up_proj                half of that
    *_res_proj                                                       (0.1 * sqrt(96 / in)) * r
    weight_scale              (122 - floor(0.5 * log2(in / 64) + 0.5)) + (z & 1)

Everything is computed in double, left to right as written, rounded to float32 and then, for BF16
tensors, to BF16, both to nearest even.  A_log has 2 * n_heads entries, the second half 0.

With a vocabulary of 512 a byte-level tokenizer (256 ranks, 256 specials) is written too.
"""

import argparse
import json
import math
import os
import sys
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "nano")]
import bpe  # noqa: E402
import released_layout as released  # noqa: E402

MASK = (1 << 64) - 1
BASE = "language_model.model."

_SMALL = {  # what both presets share
    "hidden_size": 96, "intermediate_size": 128, "kda_num_heads": 2, "kda_head_dim": 16,
    "num_attention_heads": 2, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4, "v_head_dim": 16, "num_shared_experts": 2, "moe_intermediate_size": 32,
    "routed_expert_hidden_size": 64,
}

PRESETS: Dict[str, Dict[str, Any]] = {
    # The model of the page's Appendix A.
    "tiny": {**_SMALL, "gain": "page", "seed": 0, "num_hidden_layers": 6,
             "attn_res_block_size": 2, "full_attn_layers": [3, 5, 6], "num_experts": 8,
             "num_experts_per_token": 2, "vocab_size": 64, "bos_token_id": 61,
             "pad_token_id": 62, "eos_token_id": 63},
    # Three AttnRes blocks of the released length, MLA twice in a row at the end.
    "deep25": {**_SMALL, "gain": "fan-in", "seed": 1, "num_hidden_layers": 25,
               "attn_res_block_size": 12, "full_attn_layers": [4, 8, 12, 16, 20, 24, 25],
               "num_experts": 16, "num_experts_per_token": 4, "vocab_size": 512,
               "bos_token_id": 256, "eos_token_id": 258, "pad_token_id": 511},
}


def fnv1a64(name: str) -> int:
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream(seed: int, n: int) -> np.ndarray:
    """n words uint64: splitmix64 from `seed`."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def to_bf16_bytes(x: np.ndarray) -> bytes:
    """float64 -> float32 -> BF16, nearest even."""
    u = x.astype(np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2").tobytes()


class Generator:
    """Bytes of one tensor from its name."""

    def __init__(self, geometry: Dict[str, Any]):
        self.page_gain = geometry["gain"] == "page"
        self.seed = mix(geometry["seed"] & MASK)
        self.n_kda_heads = geometry["kda_num_heads"]

    def words(self, name: str, n: int) -> np.ndarray:
        return stream(fnv1a64(name) ^ self.seed, n)

    def tensor(self, name: str, dtype: str, shape: Tuple[int, ...]) -> bytes:
        z = self.words(name, math.prod(shape))
        if name.endswith(".weight_packed"):
            return (z & np.uint64(255)).astype(np.uint8).tobytes()
        if name.endswith(".weight_scale"):
            base = 122 if self.page_gain else 122 - math.floor(
                0.5 * math.log2(shape[1] * 32 / 64) + 0.5)
            return (base + (z & np.uint64(1)).astype(np.int64)).astype(np.uint8).tobytes()
        r = 2.0 * (z >> np.uint64(40)).astype(np.float64) / 2.0 ** 24 - 1.0
        x = self._value(name, shape, r)
        return to_bf16_bytes(x) if dtype == "BF16" else x.astype("<f4").tobytes()

    def _value(self, name: str, shape: Tuple[int, ...], r: np.ndarray) -> np.ndarray:
        leaf = name.split(".")[-2] if name.endswith(".weight") else name.split(".")[-1]
        if leaf == "A_log":
            r[self.n_kda_heads:] = 0.0
            return r
        if leaf == "dt_bias":
            return 2.0 * r
        if leaf == "e_score_correction_bias":
            return 0.25 * r
        if leaf.endswith("_conv1d"):
            return 0.5 * r
        if leaf == "embed_tokens":
            return r
        if leaf.endswith("_res_proj"):
            return (0.5 if self.page_gain else 0.1 * math.sqrt(96 / shape[1])) * r
        if "norm" in leaf:
            return 1.0 + 0.25 * r
        if self.page_gain:
            return 0.25 * r
        into_stream = leaf in ("o_proj", "down_proj", "routed_expert_up_proj")
        return ((0.5 if into_stream else 1.0) * math.sqrt(3 / shape[1])) * r


def layer_tensors(g: Dict[str, Any], layer: int) -> Iterator[Tuple[str, str, Tuple[int, ...]]]:
    """(name, dtype, shape) of one layer's tensors (page 2.2)."""
    d, at = g["hidden_size"], f"{BASE}layers.{layer}."
    for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm",
                 "mlp_res_norm"):
        yield f"{at}{name}.weight", "BF16", (d,)
    for name in ("self_attention_res_proj", "mlp_res_proj"):
        yield f"{at}{name}.weight", "BF16", (1, d)
    mixer = _mla_tensors(g) if layer + 1 in g["full_attn_layers"] else _kda_tensors(g)
    for name, dtype, shape in mixer:
        yield f"{at}self_attn.{name}", dtype, shape
    if layer == 0:
        width = g["intermediate_size"]
        for name, shape in (("gate", (width, d)), ("up", (width, d)), ("down", (d, width))):
            yield f"{at}mlp.{name}_proj.weight", "BF16", shape
    else:
        for name, dtype, shape in _moe_tensors(g):
            yield f"{at}block_sparse_moe.{name}", dtype, shape


def _kda_tensors(g):
    d, heads, dim = g["hidden_size"], g["kda_num_heads"], g["kda_head_dim"]
    n = heads * dim
    for k in "qkvg":
        yield f"{k}_proj.weight", "BF16", (n, d)
    yield "o_proj.weight", "BF16", (d, n)
    yield "f_a_proj.weight", "BF16", (dim, d)
    yield "f_b_proj.weight", "BF16", (n, dim)
    yield "b_proj.weight", "BF16", (heads, d)
    for k in "qkv":
        yield f"{k}_conv1d.weight", "F32", (n, 1, 4)
    yield "A_log", "F32", (2 * heads,)
    yield "dt_bias", "F32", (n,)
    yield "o_norm.weight", "F32", (dim,)


def _mla_tensors(g):
    d, heads, ql, kl = (g["hidden_size"], g["num_attention_heads"], g["q_lora_rank"],
                        g["kv_lora_rank"])
    nope, rope, v = g["qk_nope_head_dim"], g["qk_rope_head_dim"], g["v_head_dim"]
    for name, shape in (
            ("q_a_proj", (ql, d)), ("q_a_layernorm", (ql,)), ("q_b_proj", (heads * (nope + rope), ql)),
            ("kv_a_proj_with_mqa", (kl + rope, d)), ("kv_a_layernorm", (kl,)),
            ("kv_b_proj", (heads * (nope + v), kl)), ("g_proj", (heads * v, d)),
            ("o_proj", (d, heads * v))):
        yield name + ".weight", "BF16", shape


def _moe_tensors(g):
    d, latent, width = g["hidden_size"], g["routed_expert_hidden_size"], g["moe_intermediate_size"]
    shared = g["num_shared_experts"] * width
    for name, shape in (
            ("gate", (g["num_experts"], d)), ("routed_expert_down_proj", (latent, d)),
            ("routed_expert_norm", (latent,)), ("routed_expert_up_proj", (d, latent)),
            ("shared_experts.gate_proj", (shared, d)), ("shared_experts.up_proj", (shared, d)),
            ("shared_experts.down_proj", (d, shared))):
        yield name + ".weight", "BF16", shape
    yield "gate.e_score_correction_bias", "F32", (g["num_experts"],)
    for e in range(g["num_experts"]):
        for m, (rows, cols) in (("w1", (width, latent)), ("w2", (latent, width)),
                                ("w3", (width, latent))):
            yield f"experts.{e}.{m}.weight_packed", "U8", (rows, cols // 2)
            yield f"experts.{e}.{m}.weight_scale", "U8", (rows, cols // 32)


def outer_tensors(g: Dict[str, Any]) -> Iterator[Tuple[str, str, Tuple[int, ...]]]:
    d, vocab = g["hidden_size"], g["vocab_size"]
    yield "language_model.lm_head.weight", "BF16", (vocab, d)
    yield BASE + "embed_tokens.weight", "BF16", (vocab, d)
    yield BASE + "norm.weight", "BF16", (d,)
    yield BASE + "output_attn_res_norm.weight", "BF16", (d,)
    yield BASE + "output_attn_res_proj.weight", "BF16", (1, d)


def check(g: Dict[str, Any]) -> None:
    """Raises KeyError for a missing key, ValueError for a geometry that cannot be written."""
    for key in PRESETS["tiny"]:
        if key not in g:
            raise KeyError(f"geometry: '{key}' is missing")
    if g["gain"] not in ("page", "fan-in"):
        raise ValueError(f"geometry: gain {g['gain']!r} is neither 'page' nor 'fan-in'")
    for key in ("routed_expert_hidden_size", "moe_intermediate_size"):
        if g[key] % 32:
            raise ValueError(f"geometry: {key} {g[key]} is not a multiple of 32")
    if g["vocab_size"] > 512:
        raise ValueError(f"geometry: vocab_size {g['vocab_size']}: at most 512 (256 byte ranks)")


def write(folder: str, g: Dict[str, Any]) -> None:
    """The whole checkpoint folder for geometry `g` (keys as in PRESETS)."""
    check(g)
    generator = Generator(g)

    def shard(tensors) -> released.Shard:
        return {name: (dtype, shape, generator.tensor(name, dtype, shape))
                for name, dtype, shape in tensors}

    shards: List[released.Shard] = [shard(layer_tensors(g, n))
                                    for n in range(g["num_hidden_layers"])]
    released.write_shards(folder, shards + [shard(outer_tensors(g))])
    released.write_json(folder, "config.json", released.nested_config(g))
    released.write_json(folder, "generation_config.json",
                        {"max_length": 4096, "eos_token_id": g["eos_token_id"]})
    if g["vocab_size"] == 512:
        bpe.write_tiktoken(os.path.join(folder, "tiktoken.model"),
                           [bytes([b]) for b in bpe.byte_order()])
        released.write_tokenizer_config(folder, 256)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="folder to write")
    parser.add_argument("--preset", choices=sorted(PRESETS), help="geometry to start from")
    parser.add_argument("--geometry", help="JSON file with geometry keys, over the preset")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON",
                        help="one geometry key, over the file")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--gain", choices=("page", "fan-in"))
    args = parser.parse_args()
    g: Dict[str, Any] = dict(PRESETS[args.preset]) if args.preset else {"gain": "fan-in", "seed": 0}
    if args.geometry:
        with open(args.geometry, encoding="utf-8") as text:
            g.update(json.load(text))
    for setting in args.set:
        key, _, value = setting.partition("=")
        g[key] = json.loads(value)
    if args.seed is not None:
        g["seed"] = args.seed
    if args.gain is not None:
        g["gain"] = args.gain
    write(args.out, g)
    return 0


if __name__ == "__main__":
    sys.exit(main())
