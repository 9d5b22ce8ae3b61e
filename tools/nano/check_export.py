"""Checks an exported checkpoint against the trainer's own weights and forward pass.

    python3 tools/nano/check_export.py RUN_FOLDER MODEL_FOLDER

Every stored tensor must equal the trainer's compute copy to the bit, and the reference's logits on a
held-out window must agree with the trainer's within 1e-4.  Exits non-zero otherwise.
"""

import argparse
import ctypes
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import bpe  # noqa: E402
import corpus  # noqa: E402
from export import pieces  # noqa: E402
from k3 import Checkpoint, Model as Reference, load_config  # noqa: E402
from kernels import library  # noqa: E402
from layout import KIND_MXFP4, Geometry, Layout  # noqa: E402
from model import Linear, Mode, Model  # noqa: E402


def compute_copy(layout: Layout, master: np.ndarray) -> np.ndarray:
    copy, pointer = np.zeros_like(master), ctypes.c_void_p
    for p in layout.params:
        library().round_weights(master[p.offset :].ctypes.data_as(pointer), ctypes.c_long(p.size),
                                p.kind, copy[p.offset :].ctypes.data_as(pointer))
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of state.npz")
    parser.add_argument("model", help="checkpoint folder")
    args = parser.parse_args()
    layout = Layout(Geometry())
    with np.load(os.path.join(args.run, "state.npz")) as saved:
        copy = torch.from_numpy(compute_copy(layout, saved["master"]))
    stored = Checkpoint(args.model)
    different = 0
    for name, kind, x in pieces(layout, copy):
        found = stored.expert(name) if kind == KIND_MXFP4 else stored.weight(name)
        different += not torch.equal(found[: x.shape[0]], x)
    _, held_out = corpus.split_held_out(corpus.read_chapters())
    tokens = bpe.read_tiktoken(os.path.join(args.model, "tiktoken.model"))
    ids = bpe.Tokenizer(tokens).encode(held_out[0])[:192]
    with torch.no_grad():
        trainer = Model(layout, copy, torch.zeros_like(copy))
        rows = trainer._forward(trainer.w["embed"].data[ids], 1, Mode())
        logits = Linear.apply(rows, trainer.w["head"])
        reference = Reference(stored, load_config(args.model))
        want = reference.forward(ids, reference.new_state())
    worst = float((logits - want).abs().max() / want.abs().max())
    print(f"{different} tensors differ; logits within {worst:.1e} of the largest")
    return int(different > 0 or worst > 1e-4)


if __name__ == "__main__":
    sys.exit(main())
