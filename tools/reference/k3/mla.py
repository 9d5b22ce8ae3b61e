"""Gated MLA, the full-attention token mixer without rotary embedding (page 3.5)."""

from dataclasses import dataclass
from typing import Tuple

import torch

from . import ops
from .config import Config


@dataclass
class MlaState:
    """The latent cache: [positions, kv_lora_rank + rope], latent after its norm, extra key raw."""

    rows: torch.Tensor


class Mla:
    """One layer.  `at` is the prefix of its tensors, up to and including "self_attn."."""

    def __init__(self, weights, config: Config, at: str):
        self.w, self.c, self.at = weights, config, at

    def new_state(self) -> MlaState:
        width = self.c.kv_lora_rank + self.c.qk_rope_head_dim
        return MlaState(torch.zeros(0, width, dtype=self.w.dtype))

    def forward(self, x: torch.Tensor, state: MlaState) -> torch.Tensor:
        """x [T, d] (normalised layer input) -> [T, d]; `state` grows by T rows."""
        c, n_new = self.c, x.shape[0]
        q = self.queries(x)                                                  # [T, heads, nope+rope]
        state.rows = torch.cat([state.rows, self.cache_rows(x)])
        k, v = self.expand(state.rows)                                       # [n, heads, ...]
        score = torch.einsum("thd,shd->hts", q, k) * self.scale()
        n = state.rows.shape[0]
        future = torch.arange(n)[None, :] > torch.arange(n - n_new, n)[:, None]
        p = torch.softmax(score.masked_fill(future, float("-inf")), dim=-1)
        o = torch.einsum("hts,shd->thd", p, v).reshape(n_new, c.mla_n_heads * c.v_head_dim)
        return self.linear(self.gate(o, x), "o_proj")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.w.weight(f"{self.at}{name}.weight").t()

    def latent_norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return ops.rms_norm(x, self.w.weight(f"{self.at}{name}.weight"),
                            self.c.mla_latent_norm_eps)

    def queries(self, x: torch.Tensor) -> torch.Tensor:
        c = self.c
        q = self.linear(self.latent_norm(self.linear(x, "q_a_proj"), "q_a_layernorm"), "q_b_proj")
        return q.view(-1, c.mla_n_heads, c.qk_nope_head_dim + c.qk_rope_head_dim)

    def cache_rows(self, x: torch.Tensor) -> torch.Tensor:
        latent, extra = torch.split(self.linear(x, "kv_a_proj_with_mqa"),
                                    [self.c.kv_lora_rank, self.c.qk_rope_head_dim], dim=1)
        return torch.cat([self.latent_norm(latent, "kv_a_layernorm"), extra], dim=1)

    def expand(self, rows: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Cache rows -> keys [n, heads, nope + rope], values [n, heads, v]."""
        c = self.c
        kv = self.linear(rows[:, : c.kv_lora_rank], "kv_b_proj")
        k, v = self.split_heads(kv)
        extra = rows[:, None, c.kv_lora_rank :].expand(-1, c.mla_n_heads, -1)
        return torch.cat([k, extra], dim=2), v

    def split_heads(self, kv: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Per head, key rows then value rows."""
        c = self.c
        kv = kv.view(-1, c.mla_n_heads, c.qk_nope_head_dim + c.v_head_dim)
        return kv[..., : c.qk_nope_head_dim], kv[..., c.qk_nope_head_dim :]

    def scale(self) -> float:
        return (self.c.qk_nope_head_dim + self.c.qk_rope_head_dim) ** -0.5

    def gate(self, o: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return o * torch.sigmoid(self.linear(x, "g_proj"))
