"""Writes the trained nano model as a checkpoint in the released layout.

    python3 tools/nano/export.py RUN_FOLDER OUT_FOLDER

Reads RUN_FOLDER/state.npz and RUN_FOLDER/tiktoken.model.  The stored weights are exactly those the
trainer computed with.
"""

import argparse
import ctypes
import os
import shutil
import sys
from typing import Dict, Iterator, List, Tuple

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import bpe  # noqa: E402
import released_layout as released  # noqa: E402
from kernels import library  # noqa: E402
from layout import KIND_BF16, KIND_MXFP4, Geometry, Layout  # noqa: E402

BASE = "language_model.model."

# trainer name -> released name after the layer prefix, for tensors that are not cut
_PLAIN = {
    "input_norm": "input_layernorm.weight", "post_norm": "post_attention_layernorm.weight",
    "attn_res_norm": "self_attention_res_norm.weight",
    "mlp_res_norm": "mlp_res_norm.weight",
    "f_b": "self_attn.f_b_proj.weight", "o_proj": "self_attn.o_proj.weight",
    "dt_bias": "self_attn.dt_bias", "o_norm": "self_attn.o_norm.weight",
    "q_norm": "self_attn.q_a_layernorm.weight", "kv_norm": "self_attn.kv_a_layernorm.weight",
    "q_b": "self_attn.q_b_proj.weight", "kv_b": "self_attn.kv_b_proj.weight",
    "mlp_out": "mlp.down_proj.weight",
    "router_bias": "block_sparse_moe.gate.e_score_correction_bias",
    "latent_norm": "block_sparse_moe.routed_expert_norm.weight",
    "routed_up": "block_sparse_moe.routed_expert_up_proj.weight",
    "shared_out": "block_sparse_moe.shared_experts.down_proj.weight",
}


def row_names(g: Geometry, leaf: str) -> List[Tuple[str, int]]:
    """(released name after the layer prefix, rows) of the parts of a fused matrix."""
    n = g.kda_width
    if leaf == "kda_in":
        parts = [(k + "_proj", n) for k in "qkvg"] + [("f_a_proj", g.kda_dim),
                                                     ("b_proj", g.kda_heads)]
        return [("self_attn." + name + ".weight", rows) for name, rows in parts]
    if leaf == "mla_in":
        parts = [("q_a_proj", g.q_rank), ("kv_a_proj_with_mqa", g.kv_rank + g.rope),
                 ("g_proj", g.mla_heads * g.v_dim)]
        return [("self_attn." + name + ".weight", rows) for name, rows in parts]
    if leaf == "mlp_in":
        return [("mlp.gate_proj.weight", g.intermediate), ("mlp.up_proj.weight", g.intermediate)]
    if leaf == "moe_in":
        parts = [("gate", g.n_experts), ("routed_expert_down_proj", g.latent),
                 ("shared_experts.gate_proj", g.shared_width),
                 ("shared_experts.up_proj", g.shared_width)]
        return [("block_sparse_moe." + name + ".weight", rows) for name, rows in parts]
    raise ValueError(f"no parts known for {leaf}")


def pieces(layout: Layout, flat) -> Iterator[Tuple[str, int, object]]:
    """(released name, kind, view of `flat`) of every tensor; experts as their matrices.

    `flat` is a NumPy array or a PyTorch tensor.  A_log comes without its padding.
    """
    g = layout.geometry
    outer = {"embed": BASE + "embed_tokens.weight", "head": "language_model.lm_head.weight",
             "norm": BASE + "norm.weight", "output_res_norm": BASE + "output_attn_res_norm.weight",
             "output_res_proj": BASE + "output_attn_res_proj.weight"}
    for p in layout.params:
        x = flat[p.offset : p.offset + p.size].reshape(p.shape)
        if p.name in outer:
            yield outer[p.name], p.kind, x[None] if p.name.endswith("res_proj") else x
            continue
        layer, leaf = p.name.split(".")
        at = f"{BASE}layers.{layer}."
        if leaf in ("attn_res_proj", "mlp_res_proj"):
            name = "self_attention_res_proj" if leaf == "attn_res_proj" else leaf
            yield at + name + ".weight", p.kind, x[None]
        elif leaf == "conv":
            for i, k in enumerate("qkv"):
                yield f"{at}self_attn.{k}_conv1d.weight", p.kind, x[i][:, None]
        elif leaf == "a_log":
            yield at + "self_attn.A_log", p.kind, x
        elif leaf == "w13":
            for e in range(g.n_experts):
                expert = f"{at}block_sparse_moe.experts.{e}."
                yield expert + "w1", p.kind, x[e, : g.moe_width]
                yield expert + "w3", p.kind, x[e, g.moe_width :]
        elif leaf == "w2":
            for e in range(g.n_experts):
                yield f"{at}block_sparse_moe.experts.{e}.w2", p.kind, x[e]
        elif leaf in _PLAIN:
            yield at + _PLAIN[leaf], p.kind, x
        else:
            row = 0
            for name, rows in row_names(g, leaf):
                yield at + name, p.kind, x[row : row + rows]
                row += rows


def bf16_bytes(x: np.ndarray) -> bytes:
    """float32, already on BF16 values after rounding to nearest even -> little-endian BF16."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2").tobytes()


def pack(x: np.ndarray) -> Tuple[bytes, bytes]:
    """Master weights [out, in] of an expert -> (packed, scale) bytes."""
    x = np.ascontiguousarray(x, np.float32)
    packed, scale = np.zeros(x.size // 2, np.uint8), np.zeros(x.size // 32, np.uint8)
    pointer = ctypes.c_void_p
    library().pack_mxfp4(x.ctypes.data_as(pointer), ctypes.c_long(x.size),
                         packed.ctypes.data_as(pointer), scale.ctypes.data_as(pointer))
    return packed.tobytes(), scale.tobytes()


def shards(layout: Layout, master: np.ndarray) -> List[released.Shard]:
    out: List[Dict] = [{} for _ in range(layout.geometry.n_layers + 1)]
    for name, kind, x in pieces(layout, master):
        number = int(name.split(".")[3]) if ".layers." in name else -1
        if name.endswith("A_log"):  # padded with zeros, as in the released checkpoint
            x = np.concatenate([x, np.zeros_like(x)])
        if kind == KIND_MXFP4:
            packed, scale = pack(x)
            out[number][name + ".weight_packed"] = ("U8", (x.shape[0], x.shape[1] // 2), packed)
            out[number][name + ".weight_scale"] = ("U8", (x.shape[0], x.shape[1] // 32), scale)
        elif kind == KIND_BF16:
            out[number][name] = ("BF16", x.shape, bf16_bytes(x))
        else:
            out[number][name] = ("F32", x.shape, np.ascontiguousarray(x, "<f4").tobytes())
    return out


def geometry_keys(g: Geometry) -> Dict:
    n_ranks = g.vocab - 256
    return {
        "vocab_size": g.vocab, "hidden_size": g.hidden, "num_hidden_layers": g.n_layers,
        "attn_res_block_size": g.block, "full_attn_layers": [n + 1 for n in g.mla_layers],
        "intermediate_size": g.intermediate, "kda_num_heads": g.kda_heads,
        "kda_head_dim": g.kda_dim, "num_attention_heads": g.mla_heads, "q_lora_rank": g.q_rank,
        "kv_lora_rank": g.kv_rank, "qk_nope_head_dim": g.nope, "qk_rope_head_dim": g.rope,
        "v_head_dim": g.v_dim, "routed_expert_hidden_size": g.latent, "num_experts": g.n_experts,
        "num_experts_per_token": g.top_k, "num_shared_experts": g.n_shared,
        "moe_intermediate_size": g.moe_width, "bos_token_id": n_ranks,
        "eos_token_id": n_ranks + 2, "pad_token_id": n_ranks + 255}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of state.npz and tiktoken.model")
    parser.add_argument("out", help="folder to write")
    args = parser.parse_args()
    geometry = Geometry()
    layout = Layout(geometry)
    n_ranks = len(bpe.read_tiktoken(os.path.join(args.run, "tiktoken.model")))
    if n_ranks + 256 != geometry.vocab:
        raise ValueError(f"want {geometry.vocab - 256} ranks, found {n_ranks}")
    with np.load(os.path.join(args.run, "state.npz")) as saved:
        master = saved["master"]
        print(f"state after {int(saved['step'])} steps")
    released.write_shards(args.out, shards(layout, master))
    released.write_json(args.out, "config.json", released.nested_config(geometry_keys(geometry)))
    released.write_json(args.out, "generation_config.json",
                        {"max_length": 4096, "eos_token_id": n_ranks + 2})
    released.write_tokenizer_config(args.out, n_ranks)
    shutil.copyfile(os.path.join(args.run, "tiktoken.model"),
                    os.path.join(args.out, "tiktoken.model"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
