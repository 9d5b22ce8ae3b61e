"""Geometry and parameters of the nano model as the trainer keeps them.

All parameters lie in one flat array, so that two processes can share it, and matrices that read
the same input are one matrix.  `export.py` cuts them into the tensors of the released layout.
"""

from dataclasses import dataclass
from typing import Dict, List, Tuple

import numpy as np

KIND_F32, KIND_BF16, KIND_MXFP4 = 0, 1, 2  # how a parameter is rounded and stored


@dataclass(frozen=True)
class Geometry:
    vocab: int = 1792                 # ranks + 256 specials
    hidden: int = 160
    n_layers: int = 13
    block: int = 3                    # layers per AttnRes block
    mla_layers: Tuple[int, ...] = (3, 7, 11, 12)  # zero-based
    intermediate: int = 384           # dense layer 0
    kda_heads: int = 4
    kda_dim: int = 32
    mla_heads: int = 4
    q_rank: int = 64
    kv_rank: int = 64
    nope: int = 32
    rope: int = 16
    v_dim: int = 32
    latent: int = 96
    n_experts: int = 32
    top_k: int = 4
    n_shared: int = 2
    moe_width: int = 64
    eps: float = 1e-5
    latent_eps: float = 1e-6
    gate_lower_bound: float = -5.0

    @property
    def kda_width(self) -> int:
        return self.kda_heads * self.kda_dim

    @property
    def shared_width(self) -> int:
        return self.n_shared * self.moe_width


@dataclass(frozen=True)
class Param:
    name: str
    shape: Tuple[int, ...]
    kind: int
    offset: int              # elements from the start of the flat array
    rate: float              # multiplies the learning rate; 0 = not touched by the optimiser
    decay: bool              # weight decay applies

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class Layout:
    """Names, shapes and places of all parameters of `geometry`."""

    EXPERT_RATE = 0.35  # an expert sees an eighth of the tokens: its gradient is noisy
    LATENT_NORM_RATE = 0.05  # else the optimiser silences the experts' early noise, for good

    def __init__(self, geometry: Geometry):
        self.geometry = geometry
        self.params: List[Param] = []
        self.size = 0
        self._add_all()
        self.by_name: Dict[str, Param] = {p.name: p for p in self.params}

    def _add(self, name, shape, kind=KIND_BF16, rate=1.0, decay=False):
        self.params.append(Param(name, tuple(shape), kind, self.size, rate, decay))
        self.size += (int(np.prod(shape)) + 63) // 64 * 64

    def _add_all(self) -> None:
        g = self.geometry
        self._add("embed", (g.vocab, g.hidden))
        self._add("head", (g.vocab, g.hidden), decay=True)
        for name in ("norm", "output_res_norm", "output_res_proj"):
            self._add(name, (g.hidden,))
        for layer in range(g.n_layers):
            at = f"{layer}."
            for name in ("input_norm", "post_norm", "attn_res_norm", "attn_res_proj",
                         "mlp_res_norm", "mlp_res_proj"):
                self._add(at + name, (g.hidden,))
            if layer in g.mla_layers:
                self._add_mla(at)
            else:
                self._add_kda(at)
            if layer == 0:
                self._add(at + "mlp_in", (2 * g.intermediate, g.hidden), decay=True)
                self._add(at + "mlp_out", (g.hidden, g.intermediate), decay=True)
            else:
                self._add_moe(at)

    def _add_kda(self, at: str) -> None:
        g, n = self.geometry, self.geometry.kda_width
        # rows: q k v g, f_a, b
        self._add(at + "kda_in", (4 * n + g.kda_dim + g.kda_heads, g.hidden), decay=True)
        self._add(at + "f_b", (n, g.kda_dim), decay=True)
        self._add(at + "conv", (3, n, 4), KIND_F32)
        self._add(at + "a_log", (g.kda_heads,), KIND_F32)
        self._add(at + "dt_bias", (n,), KIND_F32)
        self._add(at + "o_norm", (g.kda_dim,), KIND_F32)
        self._add(at + "o_proj", (g.hidden, n), decay=True)

    def _add_mla(self, at: str) -> None:
        g = self.geometry
        # rows: q_a, kv_a (latent, extra key), g
        rows = g.q_rank + g.kv_rank + g.rope + g.mla_heads * g.v_dim
        self._add(at + "mla_in", (rows, g.hidden), decay=True)
        self._add(at + "q_norm", (g.q_rank,))
        self._add(at + "kv_norm", (g.kv_rank,))
        self._add(at + "q_b", (g.mla_heads * (g.nope + g.rope), g.q_rank), decay=True)
        self._add(at + "kv_b", (g.mla_heads * (g.nope + g.v_dim), g.kv_rank), decay=True)
        self._add(at + "o_proj", (g.hidden, g.mla_heads * g.v_dim), decay=True)

    def _add_moe(self, at: str) -> None:
        g = self.geometry
        # rows: router, latent down-projection, shared gate, shared up
        self._add(at + "moe_in", (g.n_experts + g.latent + 2 * g.shared_width, g.hidden),
                  decay=True)
        self._add(at + "router_bias", (g.n_experts,), KIND_F32, rate=0.0)
        self._add(at + "latent_norm", (g.latent,), rate=self.LATENT_NORM_RATE)
        self._add(at + "routed_up", (g.hidden, g.latent), decay=True)
        self._add(at + "shared_out", (g.hidden, g.shared_width), decay=True)
        self._add(at + "w13", (g.n_experts, 2 * g.moe_width, g.latent), KIND_MXFP4,
                  self.EXPERT_RATE, decay=True)
        self._add(at + "w2", (g.n_experts, g.latent, g.moe_width), KIND_MXFP4,
                  self.EXPERT_RATE, decay=True)


def initial_weights(layout: Layout, seed: int) -> np.ndarray:
    """Flat float32 start values."""
    rng = np.random.default_rng(seed)
    flat = np.zeros(layout.size, np.float32)
    for p in layout.params:
        leaf = p.name.split(".")[-1]
        if leaf == "embed":
            x = rng.normal(0, 0.5, p.shape)
        elif leaf in ("a_log", "router_bias", "routed_up") or leaf.endswith("res_proj"):
            x = np.zeros(p.shape)
        elif leaf.endswith("norm"):
            x = np.ones(p.shape)
        elif leaf == "dt_bias":
            x = rng.uniform(-7, -1, p.shape)
        elif leaf == "conv":
            x = rng.normal(0, 0.2, p.shape)
            x[..., 3] += 0.7
        else:
            gain = 0.5 if leaf in ("o_proj", "mlp_out", "shared_out") else 1.0
            x = rng.normal(0, gain / np.sqrt(p.shape[-1]), p.shape)
        flat[p.offset : p.offset + p.size] = x.astype(np.float32).reshape(-1)
    return flat
