"""Element-wise operations and norms, over the last dimension."""

import torch

L2_EPS = 1e-6  # added to the sum of squares (page 3.2)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """w * x / sqrt(mean x^2 + eps).  Page 3.2."""
    return weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))


def l2_norm(x: torch.Tensor) -> torch.Tensor:
    """x / sqrt(sum x^2 + 1e-6).  Page 3.4, step 3."""
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + L2_EPS)


def silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def situ(g: torch.Tensor, u: torch.Tensor, beta: float, linear_beta: float) -> torch.Tensor:
    """[beta tanh(g/beta) sigma(g)] [linear_beta tanh(u/linear_beta)].  Page 3.7."""
    gate = beta * torch.tanh(g / beta) * torch.sigmoid(g)
    return gate * linear_beta * torch.tanh(u / linear_beta)
