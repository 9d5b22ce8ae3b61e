"""AttnRes: the residual stream as a mixture of snapshots (page 3.3)."""

from typing import List

import torch


class AttnRes:
    """The learned softmax mixture in front of a mixer.  Stateless."""

    def __init__(self, weights, eps: float):
        self.weights, self.eps = weights, eps

    def mix(self, sources: List[torch.Tensor], name: str) -> torch.Tensor:
        """sources, each [T, d], oldest snapshot first and the running vector last -> [T, d].

        `name` + "_norm.weight" and `name` + "_proj.weight" are the tensors of the mixture.
        """
        v = torch.stack(sources)                                             # [S, T, d]
        p = torch.softmax(self.scores(v, name), dim=0)                       # [S, T]
        return (p[..., None] * v).sum(0)

    def scores(self, v: torch.Tensor, name: str) -> torch.Tensor:
        """[S, T, d] -> [S, T]: (v . fold) / sqrt(mean v^2 + eps)."""
        return (v * self.fold(name)).sum(-1) * torch.rsqrt((v * v).mean(-1) + self.eps)

    def fold(self, name: str) -> torch.Tensor:
        return self.weights.weight(name + "_norm.weight") * self.weights.weight(
            name + "_proj.weight")[0]
