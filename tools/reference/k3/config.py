"""config.json of a K3 checkpoint (page 1.2), nested as released or flat.

A missing required key is an error: the defaults of other programs are wrong for K3.
"""

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Tuple


@dataclass(frozen=True)
class Config:
    vocab_size: int
    hidden_size: int
    n_layers: int
    intermediate_size: int            # width of the dense MLP
    rms_norm_eps: float
    mla_latent_norm_eps: float        # eps of q_a_layernorm and kv_a_layernorm (page 3.2, 10.1)
    attn_res_block_size: int          # layers per AttnRes block
    mla_layers: Tuple[int, ...]       # zero-based
    kda_n_heads: int
    kda_head_dim: int
    conv_kernel_size: int
    gate_lower_bound: float
    mla_n_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    n_experts: int
    top_k: int
    n_shared_experts: int
    moe_intermediate_size: int
    latent_size: int                  # routed_expert_hidden_size
    routed_scaling_factor: float
    first_k_dense: int
    moe_layer_freq: int
    situ_beta: float
    situ_linear_beta: float
    eos_token_id: int

    def is_mla(self, layer_idx: int) -> bool:
        return layer_idx in self.mla_layers

    def is_dense(self, layer_idx: int) -> bool:
        return layer_idx < self.first_k_dense or layer_idx % self.moe_layer_freq != 0


def load_config(folder: str) -> Config:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as text:
        return parse_config(json.load(text))


def parse_config(root: Dict[str, Any]) -> Config:
    """Raises KeyError for a missing required key, ValueError for a value K3 does not have."""
    text = root.get("text_config", root)
    nested = text is not root
    linear = text["linear_attn_config"] if nested else text

    def need(where: Dict[str, Any], key: str) -> Any:
        if key not in where:
            raise KeyError(f"config.json: required key '{key}' is missing")
        return where[key]

    for key, want in (("hidden_act", "situ"), ("moe_router_activation_func", "sigmoid"),
                      ("mla_use_nope", True), ("mla_use_output_gate", True),
                      ("latent_moe_use_norm", True), ("moe_renormalize", True),
                      ("tie_word_embeddings", False)):
        found = need(root if key == "tie_word_embeddings" and key in root else text, key)
        if found != want:
            raise ValueError(f"config.json: {key}: want {want!r}, found {found!r}")
    if nested and need(linear, "use_full_rank_gate") is not True:
        raise ValueError("config.json: use_full_rank_gate: want true")

    n_layers = need(text, "num_hidden_layers")
    one_based = need(linear, "full_attn_layers")
    if not one_based or sorted(set(one_based)) != sorted(one_based) or not all(
            1 <= layer <= n_layers for layer in one_based):
        raise ValueError(f"config.json: full_attn_layers {one_based} of {n_layers} layers")
    if "kda_layers" in linear and sorted(one_based + linear["kda_layers"]) != list(
            range(1, n_layers + 1)):
        raise ValueError("config.json: full_attn_layers and kda_layers do not cover the layers")

    return Config(
        vocab_size=need(text, "vocab_size"),
        hidden_size=need(text, "hidden_size"),
        n_layers=n_layers,
        intermediate_size=need(text, "intermediate_size"),
        rms_norm_eps=need(text, "rms_norm_eps"),
        mla_latent_norm_eps=text.get("mla_latent_norm_eps", 1e-6),
        attn_res_block_size=need(text, "attn_res_block_size"),
        mla_layers=tuple(layer - 1 for layer in one_based),
        kda_n_heads=need(linear, "num_heads" if nested else "kda_num_heads"),
        kda_head_dim=need(linear, "head_dim" if nested else "kda_head_dim"),
        conv_kernel_size=need(linear, "short_conv_kernel_size"),
        gate_lower_bound=need(linear, "gate_lower_bound"),
        mla_n_heads=need(text, "num_attention_heads"),
        q_lora_rank=need(text, "q_lora_rank"),
        kv_lora_rank=need(text, "kv_lora_rank"),
        qk_nope_head_dim=need(text, "qk_nope_head_dim"),
        qk_rope_head_dim=need(text, "qk_rope_head_dim"),
        v_head_dim=need(text, "v_head_dim"),
        n_experts=need(text, "num_experts"),
        top_k=need(text, "num_experts_per_token"),
        n_shared_experts=need(text, "num_shared_experts"),
        moe_intermediate_size=need(text, "moe_intermediate_size"),
        latent_size=need(text, "routed_expert_hidden_size"),
        routed_scaling_factor=need(text, "routed_scaling_factor"),
        first_k_dense=need(text, "first_k_dense_replace"),
        moe_layer_freq=text.get("moe_layer_freq", 1),
        situ_beta=need(text, "activation_situ_beta" if nested else "situ_beta"),
        situ_linear_beta=need(
            text, "activation_situ_linear_beta" if nested else "situ_linear_beta"),
        eos_token_id=need(root if "eos_token_id" in root else text, "eos_token_id"),
    )
