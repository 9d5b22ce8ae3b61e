"""Weights by name from a folder in the released layout (page 2)."""

import json
import os
from typing import Dict

import torch

from . import mxfp4
from .safetensors import Shard


class Checkpoint:
    """`weight(name)` for BF16 and F32 tensors, `expert(name)` for MXFP4 matrices; cached."""

    def __init__(self, folder: str, dtype: torch.dtype = torch.float32):
        self.dtype = dtype
        with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as text:
            self._file_of: Dict[str, str] = json.load(text)["weight_map"]
        self._shards = {f: Shard(os.path.join(folder, f)) for f in set(self._file_of.values())}
        self._cache: Dict[str, torch.Tensor] = {}
        for name, file in self._file_of.items():
            if name not in self._shards[file].header:
                raise ValueError(f"{file}: {name} is in the index but not in the shard")

    def weight(self, name: str) -> torch.Tensor:
        if name not in self._cache:
            dtype, tensor = self._read(name)
            if dtype == "U8":
                raise ValueError(f"{name}: want BF16 or F32, found U8")
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name}: a value is not finite")
            self._cache[name] = tensor.to(self.dtype)
        return self._cache[name]

    def expert(self, name: str) -> torch.Tensor:
        """The matrix [out, in] whose bytes are `name`.weight_packed and `name`.weight_scale."""
        if name not in self._cache:
            packed, scale = self._read(name + ".weight_packed"), self._read(name + ".weight_scale")
            self._cache[name] = self._decode(packed[1], scale[1]).to(self.dtype)
        return self._cache[name]

    def _decode(self, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return mxfp4.decode(packed, scale)

    def _read(self, name: str):
        if name not in self._file_of:
            raise KeyError(f"checkpoint: no tensor {name}")
        return self._shards[self._file_of[name]].read(name)
