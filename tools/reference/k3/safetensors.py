"""A minimal reader of the safetensors container (page 2.1).

    8 bytes   little-endian header length N
    N bytes   JSON: name -> {dtype, shape, data_offsets [begin, end) relative to byte 8 + N}
    rest      data
"""

import json
import os
from typing import Any, Dict, Tuple

import numpy as np
import torch

_NUMPY = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "U8": np.dtype("u1")}


class Shard:
    """One file.  Header checked on opening, data read when a tensor is asked for."""

    def __init__(self, path: str):
        self.path = path
        size_bytes = os.path.getsize(path)
        with open(path, "rb") as file:
            n_header = int.from_bytes(file.read(8), "little")
            if 8 + n_header > size_bytes:
                raise ValueError(f"{path}: header of {n_header} bytes, file of {size_bytes}")
            self.header: Dict[str, Any] = json.loads(file.read(n_header))
        self.header.pop("__metadata__", None)
        self._data_start = 8 + n_header
        for name, entry in self.header.items():
            begin, end = entry["data_offsets"]
            want = int(np.prod(entry["shape"])) * _NUMPY[entry["dtype"]].itemsize
            if end - begin != want or self._data_start + end > size_bytes:
                raise ValueError(f"{path}: {name}: want {want} bytes, header says "
                                 f"[{begin}, {end}), file has {size_bytes - self._data_start}")

    def read(self, name: str) -> Tuple[str, torch.Tensor]:
        """(dtype, tensor): F32 and BF16 as float32, U8 as uint8."""
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        with open(self.path, "rb") as file:
            file.seek(self._data_start + begin)
            raw = np.frombuffer(file.read(end - begin), _NUMPY[entry["dtype"]])
        raw = raw.reshape(entry["shape"])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return entry["dtype"], torch.from_numpy(raw.copy())
