"""MXFP4 weights (page 4): 4-bit values, one power-of-two scale per 32 inputs."""

import torch

# E2M1: bit 3 is the sign.
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
GROUP = 32


def decode(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """packed uint8 [out, in/2], scale uint8 [out, in/32] -> float32 [out, in], exact.

    The low nibble is the even column.  Scale byte e means 2^(e-127); 255 (NaN) is refused.
    """
    if packed.shape[1] * 2 != scale.shape[1] * GROUP:
        raise ValueError(f"MXFP4: packed {tuple(packed.shape)}, scale {tuple(scale.shape)}")
    if bool((scale == 255).any()):
        raise ValueError("MXFP4: scale byte 255 (NaN)")
    values = torch.tensor(VALUES, dtype=torch.float32)
    nibbles = torch.stack([packed & 15, packed >> 4], dim=2).reshape(packed.shape[0], -1)
    # Exact in double, and every product fits float32 for scales in normal range.
    factor = torch.pow(torch.tensor(2.0, dtype=torch.float64), scale.double() - 127)
    return (values[nibbles.long()].double() * factor.repeat_interleave(GROUP, dim=1)).float()
