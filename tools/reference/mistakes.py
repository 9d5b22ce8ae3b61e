"""The silent mistakes of the model page (section 8 and A.5), each as a mutated reference.

`ALL` lists them.  A mutation replaces methods of the reference's classes in subclasses; the
reference itself knows nothing of it.  Where a mistake cannot be made literally in a small model
(an index beyond a tensor), the imitation is described in `how`.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Callable, List, Sequence, Tuple

import torch
from torch.nn import functional

from k3 import Checkpoint, Config, Model, mxfp4, ops
from k3.attn_res import AttnRes
from k3.kda import Kda
from k3.mla import Mla
from k3.model import BASE
from k3.moe import Mlp, Moe


def whole(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """Logits [T, vocab] of one pass over all ids."""
    return model.forward(ids, model.new_state())


@dataclass
class Mistake:
    name: str
    numbers: Tuple[int, ...]           # in section 8 of the page
    row: str = ""                      # the row of A.5 that shows it, if any
    how: str = ""
    model_class: type = Model
    checkpoint_class: type = Checkpoint
    config: dict = field(default_factory=dict)   # replaced values
    run: Callable = whole              # how ids become logits

    def logits(self, folder: str, config: Config, ids: Sequence[int]) -> torch.Tensor:
        """float64 [T, vocab]."""
        weights = self.checkpoint_class(folder, torch.float64)
        model = self.model_class(weights, dataclasses.replace(config, **self.config))
        with torch.no_grad():
            return self.run(model, ids)


ALL: List[Mistake] = []


def sub(base: type, **methods) -> type:
    return type(base.__name__ + "Mutated", (base,), methods)


def kda(**methods) -> type:
    return sub(Model, kda_class=sub(Kda, **methods))


def mla(**methods) -> type:
    return sub(Model, mla_class=sub(Mla, **methods))


def moe(**methods) -> type:
    return sub(Model, moe_class=sub(Moe, **methods))


def attn_res(**methods) -> type:
    return sub(Model, attn_res_class=sub(AttnRes, **methods))


def every_situ(function) -> type:
    """`function(self, g, u)` in the dense MLP, the shared and the routed experts."""
    mlp = sub(Mlp, situ=function)
    return sub(Model, mlp_class=mlp, moe_class=sub(
        Moe, situ=function,
        shared_mlp=lambda self: mlp(self.w, self.c, self.at + "shared_experts.")))


def add(name: str, numbers=(), model_class: type = Model, row: str = "", **more) -> None:
    ALL.append(Mistake(name, tuple(numbers), row, model_class=model_class, **more))


def add_row(row: str, numbers, model_class: type = Model, **more) -> None:
    """A row of A.5, under its own name."""
    add(row, numbers, model_class, row, **more)


# ---- AttnRes ------------------------------------------------------------------------------------

def _layer(self, layer, h, blocks, state, trace, *, mix_first=True, snapshot_mixed=False,
           clear=True, starts=None, twice=False, add_mixed=False):
    """`Model.run_layer` with one decision changed."""
    at = f"{BASE}layers.{layer}."
    start = layer % self.c.attn_res_block_size == 0 if starts is None else starts(self, layer)
    x = h
    if blocks and mix_first:
        sources = blocks + [h, h] if start and twice else blocks + [h]
        x = self.attn_res.mix(sources, at + "self_attention_res")
    if start:
        blocks.append(x if snapshot_mixed else h)
    a = self.token_mixers[layer].forward(self.norm(x, at + "input_layernorm"), state)
    prefix = a if start and clear else (x if add_mixed else h) + a
    y = self.attn_res.mix(blocks + [prefix], at + "mlp_res")
    return prefix + self.mix_channels(layer, self.norm(y, at + "post_attention_layernorm"), trace)


def layer_with(**change) -> type:
    def run_layer(self, layer, h, blocks, state, trace):
        return _layer(self, layer, h, blocks, state, trace, **change)
    return sub(Model, run_layer=run_layer)


def _plain_layer(self, layer, h, blocks, state, trace):
    at = f"{BASE}layers.{layer}."
    h = h + self.token_mixers[layer].forward(self.norm(h, at + "input_layernorm"), state)
    return h + self.mix_channels(layer, self.norm(h, at + "post_attention_layernorm"), trace)


def _mix_normalised(self, sources, name):
    v = torch.stack(sources)
    p = torch.softmax(self.scores(v, name), dim=0)
    return (p[..., None] * v * torch.rsqrt((v * v).mean(-1, keepdim=True) + self.eps)).sum(0)


def _mix_shared_scores(self, sources, name):
    v = torch.stack(sources)
    p = torch.softmax(self.scores(v, name), dim=0)[:, :1]
    return (p[..., None] * v).sum(0)


def _aliased_aggregate(self, blocks, h):
    """The sum is built in the buffer of `h`, which is read last."""
    v = torch.stack(blocks + [h])
    p = torch.softmax(self.attn_res.scores(v, BASE + "output_attn_res"), dim=0)[..., None]
    total = (p[:-1] * v[:-1]).sum(0)
    return total + p[-1] * total


def one_by_one(model: Model, ids: Sequence[int]) -> torch.Tensor:
    state = model.new_state()
    return torch.cat([model.forward([i], state) for i in ids])


def _kept_snapshots_layer(self, layer, h, blocks, state, trace):
    """Snapshots of earlier tokens stay among the sources.  Tokens come one by one."""
    if not hasattr(self, "kept"):
        self.kept = []
    if layer == 0:
        blocks.extend(self.kept)
    n = len(blocks)
    h = Model.run_layer(self, layer, h, blocks, state, trace)
    self.kept.extend(blocks[n:])
    return h


add_row("AttnRes: mean instead of softmax", [], attn_res(
    scores=lambda self, v, name: torch.zeros(v.shape[:2], dtype=v.dtype)))
add_row("AttnRes: normalised vectors mixed", [19], attn_res(mix=_mix_normalised))
add_row("AttnRes: norm weight missing in fold", [20], attn_res(
    fold=lambda self, name: self.weights.weight(name + "_proj.weight")[0]))
add_row("snapshot of the mixed vector", [21], layer_with(snapshot_mixed=True))
add_row("running sum not cleared", [22], layer_with(clear=False))
add_row("no mix before the token mixer", [], layer_with(mix_first=False))
add_row("final aggregation missing", [26], sub(Model, aggregate=lambda self, blocks, h: h))
add("plain residual stream", [18], sub(Model, run_layer=_plain_layer,
                                       aggregate=lambda self, blocks, h: h))
add("block test off by one", [23], layer_with(
    starts=lambda self, layer: (layer + 1) % self.c.attn_res_block_size == 0),
    how="a block starts where (layer + 1) % block == 0")
add("snapshot appended before the first mix", [24], layer_with(twice=True),
    how="the running vector is counted twice in the mix before the token mixer of a block start")
add("mixed vector added to the output", [25], layer_with(add_mixed=True),
    how="prefix = x + a in layers that do not start a block")
add("aliased buffer in the final aggregation", [27], sub(Model, aggregate=_aliased_aggregate),
    how="the sum is built in the buffer of the running vector, which is read last")
add("AttnRes scores divided by sqrt(d)", [28], attn_res(
    scores=lambda self, v, name: AttnRes.scores(self, v, name) * v.shape[-1] ** -0.5))
add("AttnRes scores shared across positions", [28], attn_res(mix=_mix_shared_scores),
    how="the first position of a call gives the weights of all")
add("snapshots kept across tokens", [29], sub(Model, run_layer=_kept_snapshots_layer),
    run=one_by_one, how="token by token; snapshots of earlier tokens stay among the sources")

# ---- KDA ----------------------------------------------------------------------------------------

def _l2_mean(x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + ops.L2_EPS)


def _l2(x, eps):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + eps)


def _l2_max(x):
    return x / (x * x).sum(-1, keepdim=True).sqrt().clamp(min=1e-6)


def normalised_by(norm) -> type:
    return kda(normalise=lambda self, q, k, v: (
        norm(q) * self.c.kda_head_dim ** -0.5, norm(k), v))


def _softplus(self, z, bias, rate):
    return -rate * functional.softplus(z + bias)


def step_with(read_old=False, value_axis=False, undecayed=False, after=None):
    """`Kda.step` with one decision changed; `after(s)` is applied to the new state."""
    def step(self, s, q, k, v, alpha, beta):
        decayed = (alpha[:, None, :] if value_axis else alpha[:, :, None]) * s
        u = torch.einsum("hcj,hc->hj", s if undecayed else decayed, k)
        new = decayed + k[:, :, None] * (beta[:, None] * (v - u))[:, None, :]
        if after is not None:
            new = after(new)
        return new, torch.einsum("hcj,hc->hj", decayed if read_old else new, q)
    return kda(step=step)


def _step_beta_per_channel(self, s, q, k, v, alpha, beta):
    channel_beta = beta[torch.arange(v.shape[1]) % beta.shape[0]].expand_as(v)
    decayed = alpha[:, :, None] * s
    u = torch.einsum("hcj,hc->hj", decayed, k)
    new = decayed + k[:, :, None] * (channel_beta * (v - u))[:, None, :]
    return new, torch.einsum("hcj,hc->hj", new, q)


def _rate_per_channel(self):
    a = self.w.weight(self.at + "A_log")
    return torch.exp(a[torch.arange(self.c.kda_head_dim) % a.shape[0]])[None, :]


def _kda_gate(self, x):
    return self.linear(x, "g_proj").view(self.shape)


def _kda_norm(self, o):
    return ops.rms_norm(o, self.w.weight(self.at + "o_norm.weight"), self.c.rms_norm_eps)


def fresh_windows(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """Token by token; before each, the convolution windows are empty again."""
    state, out = model.new_state(), []
    for i in ids:
        for layer, empty in zip(state, model.new_state()):
            if hasattr(layer, "window"):
                layer.window = empty.window
        out.append(model.forward([i], state))
    return torch.cat(out)


def _convolve_keeping_outputs(self, x, name, state):
    taps = self.taps(name)
    seq = torch.cat([state.window[name], x])
    y = self.activate(sum(seq[j : j + x.shape[0]] * taps[:, j] for j in range(taps.shape[1])), name)
    state.window[name] = torch.cat([state.window[name], y])[x.shape[0]:]
    return y


def after_another_request(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """KDA state and windows of a request with the reversed ids are still there."""
    state = model.new_state()
    model.forward(list(reversed(ids)), state)
    for layer, empty in zip(state, model.new_state()):
        if hasattr(layer, "rows"):
            layer.rows = empty.rows
    return model.forward(ids, state)


def rewound(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """All but the last id, a wrong token, rewound in MLA only, then the last id."""
    state = model.new_state()
    first = model.forward(ids[:-1], state)
    model.forward(ids[:1], state)
    for layer in state:
        if hasattr(layer, "rows"):
            layer.rows = layer.rows[:-1]
    return torch.cat([first, model.forward(ids[-1:], state)])


def _bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


add_row("conv taps reversed", [37], kda(
    taps=lambda self, name: Kda.taps(self, name).flip(1)))
add_row("no SiLU after conv", [37], kda(activate=lambda self, y, name: y))
add_row("L2 norm with mean", [35], normalised_by(_l2_mean))
add_row("q scale missing", [34], kda(
    normalise=lambda self, q, k, v: (ops.l2_norm(q), ops.l2_norm(k), v)))
add_row("v also L2-normalised", [35], kda(normalise=lambda self, q, k, v: (
    *Kda.normalise(self, q, k, v)[:2], ops.l2_norm(v))))
add_row("softplus decay", [30], kda(bound=_softplus))
add_row("softplus clamped at −5", [30], kda(
    bound=lambda self, z, bias, rate: _softplus(self, z, bias, rate).clamp(min=-5.0)))
add_row("dt_bias missing", [31], kda(
    dt_bias=lambda self: torch.zeros_like(Kda.dt_bias(self))))
add_row("dt_bias outside exp(A_log) factor", [31], kda(
    bound=lambda self, z, bias, rate: self.c.gate_lower_bound * torch.sigmoid(rate * z + bias)))
add_row("output read before the update", [33], step_with(read_old=True))
add_row("decay along the value axis", [32], step_with(value_axis=True))
add_row("delta term from undecayed state", [33], step_with(undecayed=True))
add_row("KDA gate before norm", [39], kda(
    gate=lambda self, o, x: _kda_norm(self, o * torch.sigmoid(_kda_gate(self, x)))))
add_row("KDA SiLU gate", [39], kda(
    gate=lambda self, o, x: _kda_norm(self, o) * ops.silu(_kda_gate(self, x))))
add("A_log read per channel", [5], kda(rate=_rate_per_channel),
    how="channel c reads entry c modulo the length of A_log")
add("KDA output not normalised", [11], kda(
    gate=lambda self, o, x: o * torch.sigmoid(_kda_gate(self, x))))
add("L2 norm eps 1e-5", [36], normalised_by(lambda x: _l2(x, 1e-5)))
add("L2 norm eps inside a max", [36], normalised_by(_l2_max))
add("no SiLU on v", [37], kda(
    activate=lambda self, y, name: y if name == "v" else ops.silu(y)))
add("conv history lost between calls", [38], run=fresh_windows,
    how="token by token with empty windows")
add("conv history of post-conv values", [38], kda(convolve=_convolve_keeping_outputs),
    run=one_by_one, how="token by token")
add("beta per channel", [40], kda(step=_step_beta_per_channel),
    how="value channel c reads beta of head c modulo the number of heads")
add("KDA state in BF16", [41], step_with(after=_bf16))
add("KDA state reused between requests", [42], run=after_another_request,
    how="after a request with the reversed ids")
add("rewound without restoring KDA state", [43], run=rewound,
    how="last position: one wrong token was fed before it and taken back in MLA only")

# ---- MLA ----------------------------------------------------------------------------------------

def _split_keys_then_values(self, kv):
    c, n = self.c, kv.shape[0]
    k, v = torch.split(kv, [c.mla_n_heads * c.qk_nope_head_dim, c.mla_n_heads * c.v_head_dim], 1)
    return k.view(n, c.mla_n_heads, -1), v.view(n, c.mla_n_heads, -1)


def _expand_without_extra(self, rows):
    k, v = Mla.expand(self, rows)
    return torch.cat([k[..., : self.c.qk_nope_head_dim],
                      torch.zeros_like(k[..., self.c.qk_nope_head_dim :])], 2), v


def _rotate(x, positions):
    """RoPE, half split, base 10000.  x [T, ..., even width]."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = angle.view(x.shape[0], *[1] * (x.dim() - 2), half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def _queries_rotated(self, x):
    q, n = Mla.queries(self, x), self.c.qk_nope_head_dim
    return torch.cat([q[..., :n], _rotate(q[..., n:], torch.arange(x.shape[0], dtype=x.dtype))], -1)


def _rows_rotated(self, x):
    rows, n = Mla.cache_rows(self, x), self.c.kv_lora_rank
    return torch.cat([rows[:, :n], _rotate(rows[:, n:], torch.arange(x.shape[0], dtype=x.dtype))],
                     -1)


def _rows(self, x, *, norm):
    c = self.linear(x, "kv_a_proj_with_mqa")
    latent, extra = c[:, : self.c.kv_lora_rank], c[:, self.c.kv_lora_rank :]
    weight, eps = self.w.weight(self.at + "kv_a_layernorm.weight"), self.c.mla_latent_norm_eps
    if norm == "none":
        return c
    if norm == "all":
        return ops.rms_norm(c, torch.cat([weight, torch.ones_like(extra[0])]), eps)
    return torch.cat([ops.rms_norm(latent, weight, eps),
                      ops.rms_norm(extra, torch.ones_like(extra[0]), eps)], 1)


def _layer_with_raw_gate(self, layer, h, blocks, state, trace):
    mixer = self.token_mixers[layer]
    if self.c.is_mla(layer):
        at = f"{BASE}layers.{layer}."
        mixer.raw = self.attn_res.mix(blocks + [h], at + "self_attention_res") if blocks else h
    return Model.run_layer(self, layer, h, blocks, state, trace)


def _normed_then_gated(self, o, x):
    heads = o.view(o.shape[0], self.c.mla_n_heads, self.c.v_head_dim)
    heads = ops.rms_norm(heads, torch.ones_like(heads[0, 0]), self.c.rms_norm_eps)
    return Mla.gate(self, heads.reshape(o.shape), x)


add_row("kv_b split as all keys, all values", [47], mla(split_heads=_split_keys_then_values))
add_row("extra key dims dropped", [44], mla(expand=_expand_without_extra))
add_row("scale 1/sqrt(nope)", [45], mla(scale=lambda self: self.c.qk_nope_head_dim ** -0.5))
add_row("MLA gate missing", [48], mla(gate=lambda self, o, x: o))
add_row("kv_a_layernorm missing", [49], mla(
    cache_rows=lambda self, x: _rows(self, x, norm="none")),
    how="also what caching the latent before its norm gives")
add("MLA output normalised before its gate", [11], mla(gate=_normed_then_gated),
    how="per head, weight 1")
add("RoPE applied to the extra dims", [44], mla(queries=_queries_rotated,
                                                cache_rows=_rows_rotated),
    how="half split, base 10000, positions from 0")
add("latent norm over latent and extra key", [46], mla(
    cache_rows=lambda self, x: _rows(self, x, norm="all")))
add("extra key normalised too", [46], mla(
    cache_rows=lambda self, x: _rows(self, x, norm="both")), how="on its own, weight 1")
add("MLA gate of the un-normalised stream", [48], sub(
    Model, run_layer=_layer_with_raw_gate,
    mla_class=sub(Mla, gate=lambda self, o, x: Mla.gate(self, o, self.raw))))
add("latent eps", [50], config={"mla_latent_norm_eps": 1e-5}, how="1e-5 for 1e-6 (A.3)")

# ---- experts ------------------------------------------------------------------------------------

def _expert_exchanged(self, z, expert_id):
    w1, w2, w3 = (self.w.expert(f"{self.at}experts.{expert_id}.{m}") for m in ("w1", "w2", "w3"))
    return w2 @ self.situ(w3 @ z, w1 @ z)


def _shared_scaled(factor):
    class Scaled(Mlp):
        def forward(self, x):
            return factor * Mlp.forward(self, x)
    return moe(shared_mlp=lambda self: Scaled(self.w, self.c, self.at + "shared_experts."))


def _sigmoid_of_capped(self, g, u):
    b, lb = self.c.situ_beta, self.c.situ_linear_beta
    capped = b * torch.tanh(g / b)
    return capped * torch.sigmoid(capped) * lb * torch.tanh(u / lb)


def _linear_not_capped(self, g, u):
    b = self.c.situ_beta
    return b * torch.tanh(g / b) * torch.sigmoid(g) * u


def _route_on_latent(self, x):
    latent = self.linear(x, "routed_expert_down_proj")
    gate = self.w.weight(self.at + "gate.weight")[:, : latent.shape[1]]
    score = self.score(latent @ gate.t())
    biased = score + self.selection_bias()
    ids = torch.sort(biased, dim=1, descending=True, stable=True)[1][:, : self.c.top_k]
    return ids, self.pick_weights(score, biased, ids)


def _aggregate_bf16(self, z, ids, weights):
    agg = torch.zeros_like(z)
    for expert_id, weight in zip(ids, weights):
        agg = _bf16(agg + _bf16(weight * self.expert(z, expert_id)))
    return agg


def _numeric_order(self, z, expert_id):
    on_disk = sorted(range(self.c.n_experts), key=str)
    return Moe.expert(self, z, on_disk[expert_id])


add_row("router bias in the weights", [52], moe(
    pick_weights=lambda self, score, biased, ids: Moe.pick_weights(self, biased, biased, ids)))
add_row("no renormalisation", [54], moe(
    pick_weights=lambda self, score, biased, ids: score.gather(1, ids)))
add_row("bias not used in selection", [52], moe(selection_bias=lambda self: 0.0))
add_row("w1 and w3 exchanged", [7], moe(expert=_expert_exchanged))
add_row("norm per expert instead of aggregate", [55], moe(
    expert=lambda self, z, e: self.latent_norm(Moe.expert(self, z, e)),
    routed_up=lambda self, agg: self.linear(agg, "routed_expert_up_proj")))
add_row("routed_expert_norm missing", [55], moe(
    routed_up=lambda self, agg: self.linear(agg, "routed_expert_up_proj")))
add_row("shared experts missing", [56], _shared_scaled(0.0))
add_row("SwiGLU instead of SiTU", [57], every_situ(lambda self, g, u: ops.silu(g) * u))
add_row("sigmoid of the capped gate", [57], every_situ(_sigmoid_of_capped))
add_row("linear half not capped", [57], every_situ(_linear_not_capped))
add("numeric expert order on disk", [6], moe(expert=_numeric_order),
    how="expert e is taken from place e of the shard; needs more than 10 experts")
add("a lost expert", [8], moe(expert=lambda self, z, e: (
    torch.zeros_like(z) if e == 1 else Moe.expert(self, z, e))), how="expert 1 of every layer is 0")
add("router on the latent", [51], moe(route=_route_on_latent),
    how="with the first columns of gate.weight")
add("softmax router", [53], moe(score=lambda self, logit: torch.softmax(logit, dim=1)))
add("shared experts counted twice", [56], _shared_scaled(2.0))
add("shared experts averaged", [56], _shared_scaled(0.5))
add("expert outputs summed in BF16", [58], moe(aggregate=_aggregate_bf16))

# ---- loading and number formats -----------------------------------------------------------------

class _Swapped(Checkpoint):
    def _decode(self, packed, scale):
        return mxfp4.decode((packed >> 4) | (packed << 4), scale)


class _Bias128(Checkpoint):
    def _decode(self, packed, scale):
        return mxfp4.decode(packed, scale) / 2


class _SignedScale(Checkpoint):
    def _decode(self, packed, scale):
        factor = torch.where(scale > 127, 2.0 ** -256, 1.0).repeat_interleave(mxfp4.GROUP, dim=1)
        return mxfp4.decode(packed, scale) * factor


class _GroupsAlongOutput(Checkpoint):
    def _decode(self, packed, scale):
        n_out, n_in = packed.shape[0], packed.shape[1] * 2
        plain = mxfp4.decode(packed, torch.full_like(scale, 127))
        exponent = scale.view(n_out // mxfp4.GROUP, n_in).repeat_interleave(mxfp4.GROUP, dim=0)
        return plain * torch.pow(torch.tensor(2.0), exponent.float() - 127)


class _NoSign(Checkpoint):
    def _decode(self, packed, scale):
        return mxfp4.decode(packed & 0x77, scale)


def _four_bit(w):
    """Rows to 15 levels."""
    step = w.abs().amax(1, keepdim=True) / 7
    return torch.round(w / step.clamp(min=1e-30)) * step


class _RouterFourBit(Checkpoint):
    def weight(self, name):
        w = super().weight(name)
        return _four_bit(w) if name.endswith("gate.weight") else w


class _TrunkFourBit(Checkpoint):
    def weight(self, name):
        w = super().weight(name)
        linear = w.dim() == 2 and w.shape[0] > 1 and ".layers." in name
        return _four_bit(w) if linear and not name.endswith("gate.weight") else w


add_row("nibbles swapped", [13], checkpoint_class=_Swapped)
add("scale bias 128", [14], checkpoint_class=_Bias128)
add("scale byte read as signed", [14], checkpoint_class=_SignedScale,
    how="differs only for scale bytes from 128")
add("scale groups along the output", [15], checkpoint_class=_GroupsAlongOutput,
    how="the scale bytes are read as [out / 32, in]")
add("sign bit ignored", [16], checkpoint_class=_NoSign)
add("router in 4 bits", [12], checkpoint_class=_RouterFourBit, how="rows rounded to 15 levels")
add("trunk in 4 bits", [12], checkpoint_class=_TrunkFourBit, how="rows rounded to 15 levels")
add("rms_norm_eps 1e-6", [1], config={"rms_norm_eps": 1e-6},
    how="the released class default, if the nested key is not found")

# Numbers of section 8 about the forward pass that no logits can show, and why.
NOT_IN_LOGITS = {
    2: "full_attn_layers zero-based: the layer's tensors are missing, a load error",
    3: "layer 0 as MoE: the layer's tensors are missing, a load error",
    4: "head_dim of text_config for KDA: shapes do not match, a load error",
    9: "prefix logic: tensors are missing, a load error",
    10: "shard names: files are missing, a load error",
    17: "scale byte 255: must be refused at load or decode; no valid checkpoint holds it",
}
