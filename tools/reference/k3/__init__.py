"""PyTorch reference of the Kimi K3 text model, written from the model page only.

    config.py       config.json, nested or flat
    safetensors.py  the container
    mxfp4.py        4-bit weights
    checkpoint.py   a folder of shards, weights by name
    ops.py          RMSNorm, L2 norm, SiTU
    attn_res.py     the residual stream
    kda.py, mla.py  the token mixers, with the state they carry
    moe.py          the channel mixers
    model.py        layers, logits, greedy decoding

It is written to be read and checked, not to be fast.  Section numbers are those of the page.
"""

from .checkpoint import Checkpoint
from .config import Config, load_config
from .model import Model, Trace

__all__ = ["Checkpoint", "Config", "Model", "Trace", "load_config"]
