"""Checks the trainer: gradients against the reference, weight rounding, tokenizer.

    python3 tools/nano/test_nano.py        exits non-zero if a check fails
"""

import ctypes
import json
import os
import sys
import unittest

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import bpe  # noqa: E402
import released_layout as released  # noqa: E402
from export import geometry_keys, pack, pieces  # noqa: E402
from k3 import Model as Reference, mxfp4  # noqa: E402
from k3.config import parse_config  # noqa: E402
from kernels import library  # noqa: E402
from layout import KIND_MXFP4, Geometry, Layout, initial_weights  # noqa: E402
from model import Mode, Model  # noqa: E402

# Of page 5.3: text and its pieces.
SPLITS = r'''
["The capital of France is", ["The", " capital", " of", " France", " is"]]
["Hello  world", ["Hello", " ", " world"]]
["  leading", [" ", " leading"]]
["a\n\n b", ["a", "\n\n", " b"]]
["x \n \n  y", ["x", " \n \n", " ", " y"]]
["tab\tx\t\ty", ["tab", "\tx", "\t", "\ty"]]
["foo.bar()", ["foo", ".bar", "()"]]
["(a)", ["(a", ")"]]
["$price", ["$price"]]
["don't DON'T we'll I'VE", ["don't", " DON'T", " we'll", " I'VE"]]
["fooBAR XMLHttpRequest iPhone", ["foo", "BAR", " XMLHttp", "Request", " i", "Phone"]]
["12345.678", ["123", "45", ".", "678"]]
["x=1;\r\n\r\n", ["x", "=", "1", ";\r\n\r\n"]]
["_snake_case", ["_snake", "_case"]]
["#!/usr/bin", ["#!/", "usr", "/bin"]]
["O'Reilly's", ["O'Re", "illy's"]]
["'s 't", ["'s", " '", "t"]]
["trail   ", ["trail", "   "]]
["///\n\n\nz", ["///\n\n\n", "z"]]
[" \t 5", [" \t", " ", "5"]]
["  \n", ["  \n"]]
'''


class Weights:
    """What the reference needs, from the trainer's flat array."""

    dtype = torch.float64

    def __init__(self, layout, flat):
        self._by_name = {name: x for name, _, x in pieces(layout, flat)}

    def weight(self, name):
        return self._by_name[name]

    expert = weight


class Gradients(unittest.TestCase):
    def test_loss_and_every_gradient_agree_with_the_reference(self):
        geometry = Geometry()
        layout, rng = Layout(geometry), np.random.default_rng(0)
        start = initial_weights(layout, 1)
        for p in layout.params:  # away from zeros and ones, where errors would hide
            if p.rate:
                spread = 0.1 if p.size < 2000 else 0.02
                start[p.offset : p.offset + p.size] += rng.normal(0, spread, p.size)
        flat, grads = torch.from_numpy(start), torch.zeros(layout.size)
        ids = torch.from_numpy(rng.integers(0, geometry.vocab, (2, 24)))
        targets = torch.from_numpy(rng.integers(0, geometry.vocab, (2, 24)))
        model = Model(layout, flat, grads)
        loss = model.loss(ids, targets, Mode())
        loss.backward()
        model.embedding_backward()

        flat64 = flat.double().requires_grad_(True)
        config = parse_config(released.nested_config(geometry_keys(geometry)))
        reference = Reference(Weights(layout, flat64), config)
        want = sum(functional.cross_entropy(reference.forward(row.tolist(), reference.new_state()),
                                            target, reduction="sum")
                   for row, target in zip(ids, targets))
        want.backward()
        self.assertAlmostEqual(float(loss), float(want), delta=1e-3)
        for p in layout.params:
            span = slice(p.offset, p.offset + p.size)
            norm = float(flat64.grad[span].norm())
            if p.rate and norm > 0:  # layer 0 does not mix before its token mixer
                error = float((grads[span] - flat64.grad[span]).norm()) / norm
                self.assertLess(error, 5e-4, p.name)


class Rounding(unittest.TestCase):
    def test_packed_weights_decode_to_what_was_trained(self):
        master = np.random.default_rng(1).normal(0, 0.1, (8, 64)).astype(np.float32)
        master[0, :32] = 0
        copy, pointer = np.zeros_like(master), ctypes.c_void_p
        library().round_weights(master.ctypes.data_as(pointer), ctypes.c_long(master.size),
                                KIND_MXFP4, copy.ctypes.data_as(pointer))
        packed, scale = pack(master)
        found = mxfp4.decode(torch.tensor(list(packed), dtype=torch.uint8).view(8, 32),
                             torch.tensor(list(scale), dtype=torch.uint8).view(8, 2))
        self.assertTrue(torch.equal(found, torch.from_numpy(copy)))
        group_top = np.abs(master).reshape(-1, 32).max(1)
        error = np.abs(master - copy).reshape(-1, 32).max(1)
        self.assertTrue((error <= group_top / 3 + 1e-12).all())


class Tokenizer(unittest.TestCase):
    def test_splits_of_the_page(self):
        for line in SPLITS.strip().splitlines():
            text, want = json.loads(line)
            self.assertEqual(bpe.split_ascii(text), want)

    def test_text_beyond_ascii_is_refused(self):
        with self.assertRaises(ValueError):
            bpe.split_ascii("caf\u00e9")

    def test_learned_ranks_encode_and_decode(self):
        text = "the cat sat on the mat, and the cat ran. " * 5
        tokens = bpe.learn(text, 270)
        self.assertEqual(len(tokens), 270)
        self.assertEqual(tokens[:256], [bytes([b]) for b in bpe.byte_order()])
        self.assertEqual(len(set(tokens)), 270)
        tokenizer = bpe.Tokenizer(tokens)
        ids = tokenizer.encode(text)
        self.assertLess(len(ids), len(text) // 2)
        self.assertEqual(tokenizer.decode(ids), text)


if __name__ == "__main__":
    unittest.main()
