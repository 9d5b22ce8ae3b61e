"""Checks the mutations of mistakes.py against table A.5 of the model page.

    python3 tools/reference/test_mistakes.py        exits non-zero if a check fails
"""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import made_up  # noqa: E402
import mistakes  # noqa: E402
from k3 import load_config  # noqa: E402

PROMPT = [3, 4, 5, 6, 7]
# row of A.5: (logits of ids 0, 1, 2, 41 at the last position, argmax)
ROWS = {
    "AttnRes: mean instead of softmax": ((-0.1555, 0.5897, 0.7682, 0.1237), 28),
    "AttnRes: normalised vectors mixed": ((1.3065, 0.4686, 0.9878, -0.6418), 49),
    "AttnRes: norm weight missing in fold": ((0.9937, 1.1008, 0.8061, 3.8864), 41),
    "snapshot of the mixed vector": ((-1.3538, 1.9755, 0.1525, 1.7480), 13),
    "running sum not cleared": ((-0.9772, 2.5843, -0.0450, 1.8433), 46),
    "no mix before the token mixer": ((-1.1549, 1.0621, 1.0033, 1.1987), 39),
    "final aggregation missing": ((2.2795, 1.2187, 2.3694, 3.7819), 41),
    "conv taps reversed": ((1.3921, 0.0598, 1.8195, 1.2313), 13),
    "no SiLU after conv": ((-1.1131, 0.2974, 2.0132, -1.9224), 46),
    "L2 norm with mean": ((-0.9501, 0.0367, 1.1103, 0.3614), 17),
    "q scale missing": ((-0.7662, 2.7786, -0.5006, 2.0797), 13),
    "v also L2-normalised": ((-1.4152, -0.8116, 1.9247, 0.7654), 39),
    "softplus decay": ((-1.4717, 2.9386, 0.2729, 1.1336), 13),
    "softplus clamped at −5": ((-1.4714, 2.9394, 0.2742, 1.1320), 13),
    "dt_bias missing": ((1.3803, 1.0130, -0.4575, 1.8701), 5),
    "dt_bias outside exp(A_log) factor": ((-0.9010, 1.1439, 1.0683, 2.0308), 37),
    "output read before the update": ((0.9203, 1.2648, -1.7653, 1.4157), 39),
    "decay along the value axis": ((2.6358, -0.6386, 1.5011, -1.0073), 28),
    "delta term from undecayed state": ((1.2939, 1.8243, -0.4653, 2.9211), 13),
    "KDA gate before norm": ((-1.7613, 2.4840, -0.0268, 0.8406), 13),
    "KDA SiLU gate": ((-0.2420, -1.1544, 0.2895, 2.7469), 41),
    "kv_b split as all keys, all values": ((-1.8189, -0.5046, 0.7886, 1.0961), 37),
    "extra key dims dropped": ((-0.5867, -0.5161, 1.8410, 2.1951), 13),
    "scale 1/sqrt(nope)": ((2.2650, 1.7944, 1.6607, 3.3539), 41),
    "MLA gate missing": ((-0.3874, 0.6106, 1.2079, 3.2980), 41),
    "kv_a_layernorm missing": ((1.8611, 1.0032, 3.0042, 3.4080), 41),
    "router bias in the weights": ((2.1680, 0.8004, 2.9010, 4.3134), 41),
    "no renormalisation": ((2.1730, 1.1930, 2.3803, 3.7991), 41),
    "bias not used in selection": ((-2.4863, -0.0554, 1.4748, 0.5040), 17),
    "w1 and w3 exchanged": ((1.8116, -0.1750, 2.3233, -0.1967), 37),
    "norm per expert instead of aggregate": ((1.6398, 0.4688, 3.1057, 2.7929), 34),
    "routed_expert_norm missing": ((-2.0762, -0.6199, 1.2625, 0.8016), 17),
    "shared experts missing": ((0.2572, 1.6862, 1.9582, -0.3519), 39),
    "SwiGLU instead of SiTU": ((2.4470, 1.1111, 3.2779, 4.0330), 41),
    "sigmoid of the capped gate": ((-1.0281, -1.5467, -1.3536, 1.1804), 11),
    "linear half not capped": ((2.1605, 1.2098, 2.4175, 3.8013), 41),
    "nibbles swapped": ((-0.9915, 2.3450, -1.0947, 0.9855), 48),
}


class Mistakes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        made_up.write(cls.temp.name, made_up.PRESETS["tiny"])
        cls.config = load_config(cls.temp.name)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def test_every_row_of_the_page(self):
        found = {m.row: m for m in mistakes.ALL if m.row}
        self.assertEqual(set(found), set(ROWS))
        for row, (want, argmax) in ROWS.items():
            with self.subTest(row):
                last = found[row].logits(self.temp.name, self.config, PROMPT)[-1]
                for token_id, value in zip((0, 1, 2, 41), want):
                    self.assertAlmostEqual(float(last[token_id]), value, delta=6e-5)
                self.assertEqual(int(last.argmax()), argmax)

    def test_latent_eps(self):
        mistake = next(m for m in mistakes.ALL if m.name == "latent eps")
        last = mistake.logits(self.temp.name, self.config, PROMPT)[-1]
        for token_id, value in zip((0, 1, 2, 41), (2.173029, 1.192965, 2.380363, 3.799105)):
            self.assertAlmostEqual(float(last[token_id]), value, delta=6e-7)

    def test_no_mistake_is_no_difference(self):
        right = mistakes.Mistake("none", ()).logits(self.temp.name, self.config, PROMPT)
        for name in ("scale byte read as signed", "numeric expert order on disk"):
            mistake = next(m for m in mistakes.ALL if m.name == name)
            wrong = mistake.logits(self.temp.name, self.config, PROMPT)
            self.assertEqual(float((wrong - right).abs().max()), 0.0)

    def test_names_are_unique(self):
        names = [m.name for m in mistakes.ALL]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
