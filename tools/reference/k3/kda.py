"""KDA, the gated delta-rule token mixer (page 3.4)."""

from dataclasses import dataclass
from typing import Dict, Tuple

import torch

from . import ops
from .config import Config


@dataclass
class KdaState:
    """What a layer carries from token to token."""

    window: Dict[str, torch.Tensor]   # "q", "k", "v": [taps - 1, width] inputs of the convolution
    s: torch.Tensor                   # [heads, key channel, value channel]


class Kda:
    """One layer.  `at` is the prefix of its tensors, up to and including "self_attn."."""

    def __init__(self, weights, config: Config, at: str):
        self.w, self.c, self.at = weights, config, at
        self.shape = (-1, config.kda_n_heads, config.kda_head_dim)

    def new_state(self) -> KdaState:
        c, dtype = self.c, self.w.dtype
        width = c.kda_n_heads * c.kda_head_dim
        return KdaState(
            {k: torch.zeros(c.conv_kernel_size - 1, width, dtype=dtype) for k in "qkv"},
            torch.zeros(c.kda_n_heads, c.kda_head_dim, c.kda_head_dim, dtype=dtype))

    def forward(self, x: torch.Tensor, state: KdaState) -> torch.Tensor:
        """x [T, d] (normalised layer input) -> [T, d]; `state` moves on by T tokens."""
        q, k, v = (self.convolve(self.linear(x, n + "_proj"), n, state) for n in "qkv")
        q, k, v = self.normalise(*(y.view(self.shape) for y in (q, k, v)))
        beta = torch.sigmoid(self.linear(x, "b_proj"))                       # [T, heads]
        alpha = torch.exp(self.log_decay(x))                                 # [T, heads, key]
        outs = []
        for t in range(x.shape[0]):
            state.s, o = self.step(state.s, q[t], k[t], v[t], alpha[t], beta[t])
            outs.append(o)
        return self.linear(self.gate(torch.stack(outs), x).reshape(x.shape[0], -1), "o_proj")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.w.weight(f"{self.at}{name}.weight").t()

    def convolve(self, x: torch.Tensor, name: str, state: KdaState) -> torch.Tensor:
        """Causal depthwise convolution and SiLU.  x [T, width]; the last tap is the present."""
        taps = self.taps(name)
        seq = torch.cat([state.window[name], x])
        state.window[name] = seq[x.shape[0]:]
        y = sum(seq[j : j + x.shape[0]] * taps[:, j] for j in range(taps.shape[1]))
        return self.activate(y, name)

    def taps(self, name: str) -> torch.Tensor:
        return self.w.weight(f"{self.at}{name}_conv1d.weight")[:, 0]

    def activate(self, y: torch.Tensor, name: str) -> torch.Tensor:
        return ops.silu(y)

    def normalise(self, q, k, v) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Per head, over channels: q and k to length 1, q scaled; v untouched."""
        return ops.l2_norm(q) * self.c.kda_head_dim ** -0.5, ops.l2_norm(k), v

    def log_decay(self, x: torch.Tensor) -> torch.Tensor:
        """g [T, heads, key channels], in [gate_lower_bound, 0].  `A_log` is per head."""
        z = self.linear(self.linear(x, "f_a_proj"), "f_b_proj").view(self.shape)
        return self.bound(z, self.dt_bias(), self.rate())

    def dt_bias(self) -> torch.Tensor:
        return self.w.weight(self.at + "dt_bias").view(self.shape[1:])

    def rate(self) -> torch.Tensor:
        """exp(A_log) [heads, 1]; what follows in the tensor is padding."""
        return torch.exp(self.w.weight(self.at + "A_log")[: self.c.kda_n_heads])[:, None]

    def bound(self, z, bias, rate) -> torch.Tensor:
        return self.c.gate_lower_bound * torch.sigmoid(rate * (z + bias))

    def step(self, s, q, k, v, alpha, beta) -> Tuple[torch.Tensor, torch.Tensor]:
        """One token: s [heads, key, value]; q, k, v, alpha [heads, channel]; beta [heads].

        Decay, predict from the decayed state, correct, read from the updated state.
        """
        s = alpha[:, :, None] * s
        u = torch.einsum("hcj,hc->hj", s, k)
        s = s + k[:, :, None] * (beta[:, None] * (v - u))[:, None, :]
        return s, torch.einsum("hcj,hc->hj", s, q)

    def gate(self, o: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Norm per head, then the sigmoid gate of the layer input.  o [T, heads, value]."""
        o = ops.rms_norm(o, self.w.weight(self.at + "o_norm.weight"), self.c.rms_norm_eps)
        return o * torch.sigmoid(self.linear(x, "g_proj")).view(self.shape)
