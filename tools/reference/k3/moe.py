"""The channel mixers: dense SiTU MLP and latent mixture of experts (page 3.6 to 3.8)."""

from typing import List, Optional, Tuple

import torch

from . import ops
from .config import Config


class Mlp:
    """gate_proj, up_proj, down_proj under the prefix `at`."""

    def __init__(self, weights, config: Config, at: str):
        self.w, self.c, self.at = weights, config, at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, d] -> [T, d]."""
        return self.linear(self.situ(self.linear(x, "gate_proj"), self.linear(x, "up_proj")),
                           "down_proj")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.w.weight(f"{self.at}{name}.weight").t()

    def situ(self, g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return ops.situ(g, u, self.c.situ_beta, self.c.situ_linear_beta)


class Moe(Mlp):
    """`at` is the prefix up to and including "block_sparse_moe."."""

    def __init__(self, weights, config: Config, at: str):
        super().__init__(weights, config, at)
        self.shared = self.shared_mlp()

    def shared_mlp(self) -> Mlp:
        return Mlp(self.w, self.c, self.at + "shared_experts.")

    def forward(self, x: torch.Tensor, picks: Optional[List] = None) -> torch.Tensor:
        """x [T, d] -> [T, d].  `picks` receives (expert ids, weights) [T, top_k] if given."""
        ids, weights = self.route(x)
        if picks is not None:
            picks.append((ids, weights))
        z = self.linear(x, "routed_expert_down_proj")
        terms = [self.aggregate(z[t], ids[t].tolist(), weights[t]) for t in range(x.shape[0])]
        return self.routed_up(torch.stack(terms)) + self.shared.forward(x)

    def route(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """(expert ids, weights) [T, top_k] in order of selection, lowest id first on a tie."""
        score = self.score(self.linear(x, "gate"))
        biased = score + self.selection_bias()
        ids = torch.sort(biased, dim=1, descending=True, stable=True)[1][:, : self.c.top_k]
        return ids, self.pick_weights(score, biased, ids)

    def score(self, logit: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(logit)

    def selection_bias(self) -> torch.Tensor:
        return self.w.weight(self.at + "gate.e_score_correction_bias")

    def pick_weights(self, score, biased, ids) -> torch.Tensor:
        """Without the bias, divided by their sum."""
        picked = score.gather(1, ids)
        return picked / (picked.sum(1, keepdim=True) + 1e-20) * self.c.routed_scaling_factor

    def aggregate(self, z: torch.Tensor, ids: List[int], weights: torch.Tensor) -> torch.Tensor:
        """Weighted sum over the chosen experts of one token.  z [latent] -> [latent]."""
        agg = torch.zeros_like(z)
        for expert_id, weight in zip(ids, weights):
            agg = agg + weight * self.expert(z, expert_id)
        return agg

    def expert(self, z: torch.Tensor, expert_id: int) -> torch.Tensor:
        w1, w2, w3 = (self.w.expert(f"{self.at}experts.{expert_id}.{m}") for m in ("w1", "w2", "w3"))
        return w2 @ self.situ(w1 @ z, w3 @ z)

    def routed_up(self, agg: torch.Tensor) -> torch.Tensor:
        """The norm acts on the sum, once per token."""
        return self.linear(self.latent_norm(agg), "routed_expert_up_proj")

    def latent_norm(self, agg: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(agg, self.w.weight(self.at + "routed_expert_norm.weight"),
                            self.c.rms_norm_eps)
