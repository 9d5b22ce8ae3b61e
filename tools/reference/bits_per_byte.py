"""Bits per byte of a text under a model, by the float32 reference.

    python3 tools/reference/bits_per_byte.py models/nano tests/data/heldout.txt

The text is encoded as one piece and cut into windows of 256 tokens, the last one shorter.  Each
window starts from zero state.  Its first token is not scored and its bytes are not counted:

    bits per byte = sum over scored tokens of -log2 p / sum over scored tokens of their bytes
"""

import argparse
import math
import os
import sys
from typing import Sequence, Tuple

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "nano")]
import bpe  # noqa: E402
from k3 import Checkpoint, Model, load_config  # noqa: E402

WINDOW_TOKENS = 256


def measure(model: Model, ids: Sequence[int], tokens: Sequence[bytes]) -> Tuple[float, int, int]:
    """(bits per byte, scored tokens, scored bytes)."""
    bits, n_tokens, n_bytes = 0.0, 0, 0
    with torch.no_grad():
        for start in range(0, len(ids), WINDOW_TOKENS):
            window = ids[start : start + WINDOW_TOKENS]
            if len(window) < 2:
                continue
            logits = model.forward(window[:-1], model.new_state())
            log_p = torch.log_softmax(logits.double(), dim=1)
            picked = log_p[torch.arange(len(window) - 1), torch.tensor(window[1:])]
            bits -= float(picked.sum()) / math.log(2)
            n_tokens += len(window) - 1
            n_bytes += sum(len(tokens[i]) for i in window[1:])
    return bits / n_bytes, n_tokens, n_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="checkpoint folder with tiktoken.model")
    parser.add_argument("text", help="ASCII text file")
    args = parser.parse_args()
    tokens = bpe.read_tiktoken(os.path.join(args.model, "tiktoken.model"))
    with open(args.text, encoding="utf-8", newline="") as text:
        ids = bpe.Tokenizer(tokens).encode(text.read())
    model = Model(Checkpoint(args.model), load_config(args.model))
    value, n_tokens, n_bytes = measure(model, ids, tokens)
    print(f"{value:.6f} bits per byte, {n_tokens} tokens, {n_bytes} bytes scored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
