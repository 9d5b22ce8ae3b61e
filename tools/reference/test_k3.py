"""Checks the reference against the numbers of the model page (appendices A and B, section 4).

    python3 tools/reference/test_k3.py        exits non-zero if a check fails
"""

import copy
import os
import sys
import tempfile
import unittest

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import made_up  # noqa: E402
from k3 import Checkpoint, Model, Trace, load_config, mxfp4, ops  # noqa: E402
from k3.attn_res import AttnRes  # noqa: E402
from k3.config import parse_config  # noqa: E402
from k3.kda import Kda, KdaState  # noqa: E402
from k3.moe import Moe  # noqa: E402

F64 = torch.float64
PROMPT = [3, 4, 5, 6, 7]
GREEDY = [41, 55, 3, 27, 53, 56, 47, 46, 43]
LOGITS = """
 2.173024  1.192970  2.380353 -1.779243 -0.072748 -0.048243  0.618642 -1.935167  0.677033 -1.588190
-0.969630 -0.440411  1.952269  2.448096 -1.842291 -0.610974 -0.280364 -2.617191 -0.848964  1.027605
-0.418553 -1.527483 -1.953996  1.358243 -2.901253 -0.830798 -0.972584 -0.237070 -1.832425 -1.822095
 2.587595  1.536173  1.098204  0.395215  1.945335 -0.213191 -1.125073  0.939301  0.938037  0.776047
 2.173941  3.799108 -2.445855 -0.321178  0.025497  0.377135 -1.257834 -2.448169 -1.281225  1.240829
-2.333155 -0.272142  0.110553  0.718702 -0.812685 -0.380164  1.529556 -0.559362 -0.626157  1.864567
 1.653035 -1.535111 -1.661315 -0.506961"""


def t64(*values):
    return torch.tensor(values, dtype=F64)


class Case(unittest.TestCase):
    def near(self, found, want, tolerance=1.1e-6):
        found, want = torch.as_tensor(found).double(), torch.as_tensor(want).double()
        self.assertEqual(tuple(found.shape), tuple(want.shape))
        worst = float((found - want).abs().max())
        self.assertLessEqual(worst, tolerance, f"found {found.tolist()}, want {want.tolist()}")


class Operators(Case):
    """Appendix B and section 4."""

    def test_kda_step(self):
        kda = Kda.__new__(Kda)
        s, o = kda.step(t64(1, 2, 3, 4).view(1, 2, 2), t64(1, 0)[None], t64(.6, .8)[None],
                        t64(1, -1)[None], t64(.5, .25)[None], t64(.5))
        self.near(s[0], t64(.53, .28, .79, .04).view(2, 2), 1e-12)
        self.near(o[0], t64(.53, .28), 1e-12)

    def test_decay(self):
        kda = Kda.__new__(Kda)
        kda.c = parse_config(made_up.released.nested_config(made_up.PRESETS["tiny"]))
        for z, a_log, g, alpha in ((0, 0, -2.5, .08208500), (1, 0, -3.65529289, .02585392),
                                   (-1, 0, -1.34470711, .26061603), (2, 1, -4.97832229, .00688560),
                                   (-3, -.5, -.69741420, .49787104), (30, 0, -5, .00673795),
                                   (-30, 0, 0, 1)):
            found = kda.bound(t64(z), t64(0), torch.exp(t64(a_log)))
            self.near(found, t64(g), 1e-8)
            self.near(torch.exp(found), t64(alpha), 1e-8)

    def test_rms_norm(self):
        x = t64(.001, -.002, .003, .0005)
        self.near(ops.rms_norm(x, t64(1), 1e-5), t64(.27153769, -.54307539, .81461308, .13576885),
                  1e-8)
        self.near(ops.rms_norm(x, t64(1), 1e-6), t64(.46816459, -.93632918, 1.40449377, .23408229),
                  1e-8)
        self.near(ops.rms_norm(t64(1, -2, 3, .5), t64(1), 1e-5),
                  t64(.5298122, -1.0596244, 1.5894366, .2649061), 1e-7)

    def test_l2_norm(self):
        self.near(ops.l2_norm(t64(3, 4, 0, 0)), t64(.59999999, .79999998, 0, 0), 1e-8)
        self.near(ops.l2_norm(t64(3e-4, 4e-4, 0, 0)), t64(.26832816, .35777088, 0, 0), 1e-8)

    def test_convolution(self):
        kda = Kda.__new__(Kda)
        taps = t64(.1, .2, .3, .4, 1, 0, -1, 2).view(2, 4)
        kda.taps = lambda name: taps
        state = KdaState({"q": torch.zeros(3, 2, dtype=F64)}, torch.zeros(0))
        x = t64(1, 2, .5, -1, 2, 0, -1, 1, 3, 3).view(5, 2)
        found = torch.cat([kda.convolve(x[:2], "q", state), kda.convolve(x[2:], "q", state)])
        self.near(found, t64(.23947506, 3.92805516, .31122967, -.07194484, .87343755, .73105858,
                             .23947506, 3.92805516, 1.07207500, 3.92805516).view(5, 2), 1e-8)
        self.near(state.window["q"], t64(2, 0, -1, 1, 3, 3).view(3, 2), 0)

    def test_situ(self):
        for g, u, want in ((0, 1, 0), (1, 1, .7158178), (-1, 2, -.5258289), (4, -8, -23.1478977),
                           (10, 30, 82.2458215), (100, 1000, 100), (-2, -60, 5.4186433)):
            self.near(ops.situ(t64(g), t64(u), 4.0, 25.0), t64(want), 1e-7)

    def test_attn_res(self):
        mixture = AttnRes(None, 1e-5)
        mixture.fold = lambda name: t64(.5, -.25, 1, 2)
        sources = [t64(1, 2, 2, 0)[None], t64(0, -1, 0, 1)[None], t64(10, 0, 0, 0)[None]]
        scores = mixture.scores(torch.stack(sources), "")[:, 0]
        self.near(scores, t64(1.33333037, 3.18194870, .99999980), 1e-8)
        self.near(torch.softmax(scores, 0), t64(.12395304, .78723049, .08881648), 1e-8)
        self.near(mixture.mix(sources, "")[0], t64(1.01211780, -.53932442, .24790607, .78723049),
                  1e-8)

    def test_router(self):
        moe = Moe.__new__(Moe)
        moe.c = parse_config(made_up.released.nested_config(made_up.PRESETS["tiny"]))
        moe.linear = lambda x, name: x
        moe.selection_bias = lambda: t64(.3, 0, -.3, .6, 0)
        ids, weights = moe.route(t64(0, 1, 2, -1, .5)[None])
        self.assertEqual(ids[0].tolist(), [3, 0])
        self.near(weights[0], t64(.34975541, .65024459), 1e-8)

    def test_router_tie_takes_the_lowest_id(self):
        moe = Moe.__new__(Moe)
        moe.c = parse_config(made_up.released.nested_config(made_up.PRESETS["tiny"]))
        moe.linear = lambda x, name: x
        moe.selection_bias = lambda: torch.zeros(6, dtype=F64)
        self.assertEqual(moe.route(t64(0, 1, 2, 2, 2, 0)[None])[0][0].tolist(), [2, 3])

    def test_mxfp4(self):
        row = bytes.fromhex("217F08A3") + bytes(12)
        packed = torch.tensor(list(row), dtype=torch.uint8)[None]
        found = mxfp4.decode(packed, torch.tensor([[125]], dtype=torch.uint8))[0, :8]
        self.near(found, t64(.125, .25, -1.5, 1.5, 0, 0, .375, -.25), 0)
        real = torch.tensor(list(bytes.fromhex("16B9CE2385AB9BA2BC880BA1C5899998")),
                            dtype=torch.uint8)[None]
        want = t64(.0625, .0078125, -.0078125, -.0234375, -.0625, -.03125, .0234375, .015625,
                   .046875, 0, -.0234375, -.015625, -.0234375, -.0078125, .015625, -.015625,
                   -.03125, -.0234375, 0, 0, -.0234375, 0, .0078125, -.015625,
                   .046875, -.03125, -.0078125, 0, -.0078125, -.0078125, 0, -.0078125)
        self.near(mxfp4.decode(real, torch.tensor([[121]], dtype=torch.uint8))[0], want, 0)
        with self.assertRaises(ValueError):
            mxfp4.decode(real, torch.tensor([[255]], dtype=torch.uint8))


class Configuration(Case):
    def test_a_missing_key_is_an_error(self):
        nested = made_up.released.nested_config(made_up.PRESETS["tiny"])
        parse_config(nested)
        for where, key in ((nested["text_config"], "rms_norm_eps"),
                           (nested["text_config"]["linear_attn_config"], "full_attn_layers"),
                           (nested["text_config"]["linear_attn_config"], "head_dim")):
            kept = where.pop(key)
            with self.assertRaises(KeyError):
                parse_config(nested)
            where[key] = kept

    def test_flat_and_nested_agree(self):
        nested = made_up.released.nested_config(made_up.PRESETS["tiny"])
        flat = {**nested, **nested["text_config"], "head_dim": 999}
        linear = flat.pop("linear_attn_config")
        del flat["text_config"]
        flat.update({"kda_num_heads": linear["num_heads"], "kda_head_dim": linear["head_dim"]})
        for key in ("short_conv_kernel_size", "gate_lower_bound", "full_attn_layers"):
            flat[key] = linear[key]
        flat["situ_beta"] = flat.pop("activation_situ_beta")
        flat["situ_linear_beta"] = flat.pop("activation_situ_linear_beta")
        self.assertEqual(parse_config(flat), parse_config(nested))


class TinyModel(Case):
    """Appendix A."""

    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.folder = cls.temp.name
        made_up.write(cls.folder, made_up.PRESETS["tiny"])
        cls.config = load_config(cls.folder)
        cls.checkpoint = Checkpoint(cls.folder, F64)
        cls.model = Model(cls.checkpoint, cls.config)
        cls.trace, cls.state = Trace(), cls.model.new_state()
        cls.logits = cls.model.forward(PROMPT, cls.state, cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def test_generator(self):
        self.assertEqual(made_up.fnv1a64(""), 0xCBF29CE484222325)
        self.assertEqual(made_up.fnv1a64("a"), 0xAF63DC4C8601EC8C)
        self.assertEqual(made_up.mix(0), 0)
        embed = "language_model.model.embed_tokens.weight"
        self.assertEqual(made_up.fnv1a64(embed), 0xDEC43C721D10B8A6)
        self.assertEqual([int(z) for z in made_up.stream(made_up.fnv1a64(embed), 2)],
                         [0xBB99B999D5C5AA3E, 0xCFE2BFA130953F2E])
        at = "language_model.model.layers.0."
        for name, want in (
                (embed, (.46484375, .625, -.9453125)),
                (at + "self_attn.q_proj.weight", (.1806640625, -.1298828125, -.1630859375)),
                (at + "input_layernorm.weight", (1.140625, 1.21875, 1.0546875)),
                (at + "self_attn.k_conv1d.weight", (.340978146, .325272560, .185152829)),
                (at + "self_attn.A_log", (.559907794, .542974949, 0, 0)),
                (at + "self_attn.dt_bias", (-1.124759436, -1.805470467, .374642372)),
                (at + "self_attn.o_norm.weight", (1.218518615, 1.198478102, .958110571)),
                ("language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias",
                 (-.065754920, -.181295156, .186627597)),
                ("language_model.model.output_attn_res_proj.weight",
                 (.212890625, -.06396484375, -.11083984375))):
            self.near(self.checkpoint.weight(name).reshape(-1)[: len(want)], t64(*want), 1e-9)
        w1 = "language_model.model.layers.1.block_sparse_moe.experts.0.w1"
        self.assertEqual(self.checkpoint._read(w1 + ".weight_packed")[1][0, :6].tolist(),
                         [0xCF, 0xA4, 0xE1, 0x02, 0xEC, 0xCA])
        self.assertEqual(self.checkpoint._read(w1 + ".weight_scale")[1].reshape(-1)[:4].tolist(),
                         [123, 123, 122, 123])
        self.near(self.checkpoint.expert(w1)[0, :6], t64(-.375, -.125, .125, -.0625, .03125, -.25),
                  0)

    def test_layer_outputs(self):
        rows = [(23.171028, -11.505663, -3.785420, -0.239685, -2.938474, 1.820592),
                (34.701709, -7.616148, -4.381179, 1.209874, -0.170999, 2.630295),
                (15.509688, -3.837723, 1.524223, -0.097073, 0.823649, 2.779876),
                (20.326672, 1.918548, 0.118156, 2.241908, 0.902045, 2.873339),
                (16.203164, -13.645291, 0.906283, 2.478708, 1.004020, -1.173785),
                (22.851080, -42.266569, 2.513017, 4.829385, 1.012298, -0.959832),
                (21.781865, -39.919933, 2.361766, 4.676272, 0.995629, -0.763355)]
        for h, want in zip(self.trace.layer_outputs + [self.trace.final_mix], rows):
            last = h[-1]
            self.near(torch.cat([t64(last.norm(), last.sum()), last[:4]]), t64(*want))

    def test_routes(self):
        want = [([4, 6], (.480187, .519813)), ([7, 3], (.541263, .458737)),
                ([1, 4], (.622015, .377985)), ([1, 6], (.536859, .463141)),
                ([2, 1], (.539899, .460101))]
        for layer, (pick, (ids, weights)) in enumerate(zip(self.trace.picks, want), 1):
            self.assertEqual(pick[0], layer)
            self.assertEqual(pick[1][-1].tolist(), ids)
            self.near(pick[2][-1], t64(*weights))

    def test_carried_state(self):
        s = self.state[0].s
        self.near(torch.stack([s.sum(), s.abs().sum()]), t64(1.450691, 10.132090))
        self.near(s[0, 0, :4], t64(-.059716, -.009394, -.019423, -.005572))
        self.near(self.state[1].s.sum(), torch.tensor(5.760050))
        self.near(self.state[3].s.sum(), torch.tensor(0.538680))
        self.near(self.state[0].window["q"][:, :3], t64(
            1.244583, -2.143710, .914660, -2.507553, 4.065862, -.412528,
            -.410009, -1.856531, -1.259019).view(3, 3))
        self.near(self.state[2].rows[0, :4], t64(-.359409, 1.036945, .090556, -1.500378))
        self.near(self.state[4].rows[0, :4], t64(-.948972, .365497, -.406840, -1.106249))
        self.near(self.state[4].rows[4, 16:], t64(3.819626, .283787, 2.302138, 1.117168))

    def test_logits(self):
        self.near(self.logits[-1], t64(*map(float, LOGITS.split())))
        self.assertEqual(self.logits.argmax(-1).tolist(), [27, 3, 39, 62, 41])

    def test_greedy(self):
        ids, logits = self.model.greedy(PROMPT, 9)
        self.assertEqual(ids, GREEDY)
        whole = self.model.forward(PROMPT + ids[:-1], self.model.new_state())
        self.near(logits, whole, 1e-11)

    def test_split_prefill(self):
        state = self.model.new_state()
        parts = [self.model.forward(PROMPT[:2], state), self.model.forward(PROMPT[2:], state)]
        self.near(torch.cat(parts), self.logits, 1e-11)

    def test_sequences_do_not_disturb_each_other(self):
        a, b = self.model.new_state(), self.model.new_state()
        for one, other in zip(PROMPT, reversed(PROMPT)):
            logits = self.model.forward([one], a)
            self.model.forward([other], b)
        self.near(logits[0], self.logits[-1], 1e-11)

    def test_a_copied_state_continues(self):
        state = self.model.new_state()
        self.model.forward(PROMPT[:3], state)
        branch = copy.deepcopy(state)
        self.model.forward([60, 61], state)
        self.near(self.model.forward(PROMPT[3:], branch)[-1], self.logits[-1], 1e-11)

    def test_float32_is_near(self):
        model = Model(Checkpoint(self.folder, torch.float32), self.config)
        self.near(model.forward(PROMPT, model.new_state()), self.logits, 2e-5)


if __name__ == "__main__":
    unittest.main()
