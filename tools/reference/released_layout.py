"""Writes a checkpoint folder in the released layout (page 2): shards, index, JSON files.

Shards: one per layer, then one with head, embedding, final norm and output AttnRes.  Inside a
shard all F32 tensors, then BF16, then U8, by name compared as strings.  The header is compact JSON
in data order, padded with spaces to a multiple of 8, without `__metadata__`.
"""

import json
import os
from typing import Any, Dict, List, Tuple

# name -> (dtype, shape, bytes)
Shard = Dict[str, Tuple[str, Tuple[int, ...], bytes]]

_ORDER = {"F32": 0, "BF16": 1, "U8": 2}

# Offset from the first special id -> (name, "special" flag); the others are reserved (page 5.1).
SPECIALS = {
    0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|end_of_msg|>", True), 3: ("<|open|>", False),
    4: ("<|close|>", False), 5: ("<|sep|>", False), 6: ("[start_header_id]", True),
    7: ("[end_header_id]", True), 9: ("[EOT]", True), 18: ("<|media_begin|>", True),
    19: ("<|media_content|>", True), 20: ("<|media_end|>", True), 21: ("<|media_pad|>", True),
    65: ("<osagent_mode>", True), 254: ("[UNK]", True), 255: ("[PAD]", True),
}


def shard_name(number: int, total: int) -> str:
    """Shards count from 1; five digits, and six for the total."""
    return f"model-{number:05d}-of-{total:06d}.safetensors"


def write_shards(folder: str, shards: List[Shard]) -> None:
    """Shard files and model.safetensors.index.json."""
    os.makedirs(folder, exist_ok=True)
    weight_map: Dict[str, str] = {}
    total_bytes = 0
    for number, shard in enumerate(shards, 1):
        file = shard_name(number, len(shards))
        total_bytes += _write_shard(os.path.join(folder, file), shard)
        weight_map.update({name: file for name in shard})
    index = {"metadata": {"total_size": total_bytes},
             "weight_map": {name: weight_map[name] for name in sorted(weight_map)}}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        out.write(json.dumps(index, separators=(",", ":")))


def _write_shard(path: str, shard: Shard) -> int:
    names = sorted(shard, key=lambda name: (_ORDER[shard[name][0]], name))
    header, at = {}, 0
    for name in names:
        dtype, shape, data = shard[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for name in names:
            out.write(shard[name][2])
    return at


def write_json(folder: str, file: str, content: Any) -> None:
    with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
        json.dump(content, out, indent=1)
        out.write("\n")


def write_tokenizer_config(folder: str, n_ranks: int) -> None:
    """The 16 named specials after `n_ranks` ranks."""
    decoder = {str(n_ranks + at): {"content": name, "special": special}
               for at, (name, special) in SPECIALS.items()}
    write_json(folder, "tokenizer_config.json", {
        "added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "[EOS]",
        "pad_token": "[PAD]", "unk_token": "[UNK]"})


def nested_config(g: Dict[str, Any]) -> Dict[str, Any]:
    """config.json shaped as the released one, from the geometry keys of `made_up.PRESETS`."""
    n_layers = g["num_hidden_layers"]
    mla = g["full_attn_layers"]
    text_keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                 "num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
                 "qk_rope_head_dim", "v_head_dim", "attn_res_block_size", "num_experts",
                 "num_experts_per_token", "num_shared_experts", "moe_intermediate_size",
                 "routed_expert_hidden_size")
    text: Dict[str, Any] = {"model_type": "kimi_linear"}
    text.update({key: g[key] for key in text_keys})
    text.update({
        "num_key_value_heads": g["num_attention_heads"], "hidden_act": "situ",
        "rms_norm_eps": 1e-05, "mla_use_nope": True, "mla_use_output_gate": True,
        "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
        "latent_moe_use_norm": True, "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "topk_method": "noaux_tc",
        "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1,
        "max_position_embeddings": g.get("max_position_embeddings", 4096),
        "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
        "linear_attn_config": {
            "num_heads": g["kda_num_heads"], "head_dim": g["kda_head_dim"],
            "short_conv_kernel_size": 4, "gate_lower_bound": -5.0, "use_full_rank_gate": True,
            "full_attn_layers": mla,
            "kda_layers": [n for n in range(1, n_layers + 1) if n not in mla]},
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
            "quantization_status": "compressed", "kv_cache_scheme": None,
            "config_groups": {"group_0": {
                "targets": ["Linear"], "input_activations": None,
                "weights": {"num_bits": 4, "type": "float", "group_size": 32, "strategy": "group",
                            "symmetric": True, "dynamic": False, "scale_dtype": "torch.uint8",
                            "observer": "minmax"}}}},
    })
    return {"model_type": "kimi_k3", "architectures": ["KimiK3ForConditionalGeneration"],
            "dtype": "bfloat16", "tie_word_embeddings": False,
            "bos_token_id": g["bos_token_id"], "eos_token_id": g["eos_token_id"],
            "pad_token_id": g["pad_token_id"], "text_config": text}
