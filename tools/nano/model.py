"""The nano model for training: forward pass over windows, gradients into a flat array.

Formulas: the model page, section 3.  Each operation is an autograd function whose backward pass
writes the gradients of its own weights straight into the gradient array (every weight is used
once per pass, so nothing is accumulated and nothing needs clearing); autograd only carries the
gradients of activations.  Rows are windows x tokens.
"""

from dataclasses import dataclass
from typing import Dict, List, Optional

import torch
from torch.autograd import Function
from torch.nn import functional

from kernels import f32, library, ptr, ptrs
from layout import Geometry, Layout


class Weight:
    """A parameter's compute copy and its gradient, both views of flat arrays."""

    def __init__(self, data: torch.Tensor, grad: torch.Tensor):
        self.data, self.grad = data, grad


class Linear(Function):
    """y = x W^T."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x)
        ctx.w = w
        return x @ w.data.t()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        torch.mm(dy.t(), x, out=ctx.w.grad)
        return dy @ ctx.w.data, None


class Rms(Function):
    """RMSNorm of rows [R, d]."""

    @staticmethod
    def forward(ctx, x, w, eps):
        x = x.contiguous()
        y, r = torch.empty_like(x), torch.empty(x.shape[0])
        library().rms_fwd(ptr(x), ptr(w.data), x.shape[0], x.shape[1], f32(eps), ptr(y), ptr(r))
        ctx.save_for_backward(x, r)
        ctx.w = w
        return y

    @staticmethod
    def backward(ctx, dy):
        x, r = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        library().rms_bwd(ptr(x), ptr(ctx.w.data), ptr(r), ptr(dy), x.shape[0], x.shape[1],
                          ptr(dx), ptr(ctx.w.grad))
        return dx, None, None


class Mix(Function):
    """AttnRes mixture of the sources, each [R, d]."""

    @staticmethod
    def forward(ctx, norm, proj, eps, *sources):
        n_rows, d = sources[0].shape
        out = torch.empty_like(sources[0])
        dot, rinv, p = torch.empty(3, n_rows, len(sources)).unbind(0)
        library().mix_fwd(ptrs(sources), ptr(norm.data), ptr(proj.data), len(sources), n_rows, d,
                          f32(eps), ptr(out), ptr(dot), ptr(rinv), ptr(p))
        ctx.save_for_backward(dot, rinv, p, *sources)
        ctx.norm, ctx.proj = norm, proj
        return out

    @staticmethod
    def backward(ctx, dout):
        dot, rinv, p, *sources = ctx.saved_tensors
        n_rows, d = sources[0].shape
        grads = [torch.empty_like(s) for s in sources]
        dout = dout.contiguous()
        library().mix_bwd(ptrs(sources), ptr(ctx.norm.data), ptr(ctx.proj.data), ptr(dot),
                          ptr(rinv), ptr(p), ptr(dout), len(sources), n_rows, d, ptrs(grads),
                          ptr(ctx.norm.grad), ptr(ctx.proj.grad))
        return (None, None, None, *grads)


class Situ(Function):
    """[gate | up] of width 2w -> SiTU of width w."""

    @staticmethod
    def forward(ctx, gu):
        gu = gu.contiguous()
        out = torch.empty(gu.shape[0], gu.shape[1] // 2)
        library().situ_fwd(ptr(gu), gu.shape[1], gu.shape[0], out.shape[1], ptr(out))
        ctx.save_for_backward(gu)
        return out

    @staticmethod
    def backward(ctx, dout):
        (gu,) = ctx.saved_tensors
        dgu = torch.empty_like(gu)
        dout = dout.contiguous()
        library().situ_bwd(ptr(gu), gu.shape[1], ptr(dout), gu.shape[0], dout.shape[1], ptr(dgu),
                           gu.shape[1])
        return dgu


class Kda(Function):
    """KDA up to, not including, its output projection: x [R, d] -> [R, heads * head_dim]."""

    @staticmethod
    def forward(ctx, x, w: Dict[str, Weight], g: Geometry, n_windows):
        n, hd = g.kda_width, g.kda_dim
        proj = x @ w["kda_in"].data.t()
        zf = proj[:, 4 * n : 4 * n + hd] @ w["f_b"].data.t()
        out = torch.empty(x.shape[0], n)
        library().kda_fwd(ptr(proj), proj.shape[1], ptr(zf), ptr(w["conv"].data),
                          ptr(w["a_log"].data), ptr(w["dt_bias"].data), ptr(w["o_norm"].data),
                          n_windows, x.shape[0] // n_windows, g.kda_heads,
                          f32(g.gate_lower_bound), f32(g.eps), ptr(out))
        ctx.save_for_backward(x, proj, zf)
        ctx.w, ctx.g, ctx.n_windows = w, g, n_windows
        return out

    @staticmethod
    def backward(ctx, dout):
        x, proj, zf = ctx.saved_tensors
        w, g = ctx.w, ctx.g
        n, hd = g.kda_width, g.kda_dim
        dout = dout.contiguous()
        dproj, dzf = torch.empty_like(proj), torch.empty_like(zf)
        library().kda_bwd(ptr(proj), proj.shape[1], ptr(zf), ptr(w["conv"].data),
                          ptr(w["a_log"].data), ptr(w["dt_bias"].data), ptr(w["o_norm"].data),
                          ptr(dout), ctx.n_windows, x.shape[0] // ctx.n_windows, g.kda_heads,
                          f32(g.gate_lower_bound), f32(g.eps), ptr(dproj), ptr(dzf),
                          ptr(w["conv"].grad), ptr(w["a_log"].grad), ptr(w["dt_bias"].grad),
                          ptr(w["o_norm"].grad))
        fa = slice(4 * n, 4 * n + hd)
        torch.mm(dzf.t(), proj[:, fa], out=w["f_b"].grad)
        dproj[:, fa] = dzf @ w["f_b"].data
        torch.mm(dproj.t(), x, out=w["kda_in"].grad)
        return dproj @ w["kda_in"].data, None, None, None


class Moe(Function):
    """x [R, d] -> (aggregate of the routed experts [R, latent], shared activation [R, width]).

    `load` [n_experts] receives how many picks each expert got.  `bias` overrides the router bias
    of the selection where given (to measure what the learned picks are worth).
    """

    @staticmethod
    def forward(ctx, x, w: Dict[str, Weight], g: Geometry, load, bias):
        n_rows, n_exp, k = x.shape[0], g.n_experts, g.top_k
        proj = x @ w["moe_in"].data.t()
        s = torch.sigmoid(proj[:, :n_exp])
        idx = torch.topk(s + (w["router_bias"].data if bias is None else bias), k, dim=1)[1]
        picked = s.gather(1, idx)
        total = picked.sum(1, keepdim=True) + 1e-20
        weight = picked / total
        order = torch.empty(n_rows * k, dtype=torch.int32)
        first = torch.empty(n_exp + 1, dtype=torch.int32)
        xs, ys = torch.empty(2, n_rows * k, g.latent).unbind(0)
        gu = torch.empty(n_rows * k, 2 * g.moe_width)
        act = torch.empty(n_rows * k, g.moe_width)
        agg = torch.empty(n_rows, g.latent)
        z = proj[:, n_exp:]
        library().experts_fwd(ptr(z), proj.shape[1], ptr(idx), ptr(weight), ptr(w["w13"].data),
                              ptr(w["w2"].data), n_rows, k, n_exp, g.latent, g.moe_width,
                              ptr(order), ptr(first), ptr(xs), ptr(gu), ptr(act), ptr(ys),
                              ptr(agg))
        if load is not None:
            load.copy_(first[1:] - first[:-1])
        shared = torch.empty(n_rows, g.shared_width)
        sgu = proj[:, n_exp + g.latent :]
        library().situ_fwd(ptr(sgu), proj.shape[1], n_rows, g.shared_width, ptr(shared))
        ctx.save_for_backward(x, proj, s, idx, total, weight, order, first, xs, gu, act, ys)
        ctx.w, ctx.g = w, g
        return agg, shared

    @staticmethod
    def backward(ctx, dagg, dshared):
        x, proj, s, idx, total, weight, order, first, xs, gu, act, ys = ctx.saved_tensors
        w, g = ctx.w, ctx.g
        n_rows, n_exp, k = x.shape[0], g.n_experts, g.top_k
        dagg, dshared = dagg.contiguous(), dshared.contiguous()
        dproj, dweight = torch.empty_like(proj), torch.empty_like(weight)
        dz = dproj[:, n_exp:]
        library().experts_bwd(ptr(dagg), ptr(weight), ptr(w["w13"].data), ptr(w["w2"].data),
                              n_rows, k, n_exp, g.latent, g.moe_width, ptr(order), ptr(first),
                              ptr(xs), ptr(gu), ptr(act), ptr(ys), ptr(dz), proj.shape[1],
                              ptr(dweight), ptr(w["w13"].grad), ptr(w["w2"].grad))
        ds = (dweight - (dweight * weight).sum(1, keepdim=True)) / total
        dlogit = torch.zeros(n_rows, n_exp).scatter_(1, idx, ds)
        dproj[:, :n_exp] = dlogit * s * (1 - s)
        sgu, dsgu = proj[:, n_exp + g.latent :], dproj[:, n_exp + g.latent :]
        library().situ_bwd(ptr(sgu), proj.shape[1], ptr(dshared), n_rows, g.shared_width,
                           ptr(dsgu), proj.shape[1])
        torch.mm(dproj.t(), x, out=w["moe_in"].grad)
        return dproj @ w["moe_in"].data, None, None, None, None


@dataclass
class Mode:
    """What a pass does besides the plain forward pass."""

    shared_keep: float = 1.0          # probability that a window keeps a layer's shared experts
    dropout: float = 0.0              # on mixer outputs
    without_routed: bool = False      # measure: routed up-projections as if zero
    random_picks: bool = False        # measure: fixed random bias of the router
    loads: Optional[torch.Tensor] = None  # [n_layers, n_experts], receives picks per expert


class Model:
    """Forward pass over flat compute weights [size] with gradients into `grads` [size]."""

    def __init__(self, layout: Layout, weights: torch.Tensor, grads: torch.Tensor, seed: int = 0):
        self.g = layout.geometry
        self.w: Dict[str, Weight] = {}
        self.layers: List[Dict[str, Weight]] = [{} for _ in range(self.g.n_layers)]
        for p in layout.params:
            span = slice(p.offset, p.offset + p.size)
            weight = Weight(weights[span].view(p.shape), grads[span].view(p.shape))
            self.w[p.name] = weight
            if "." in p.name:
                layer, leaf = p.name.split(".")
                self.layers[int(layer)][leaf] = weight
        self.random = torch.Generator().manual_seed(seed)
        fixed = torch.Generator().manual_seed(12345)
        self.random_bias = 10 * torch.randn(self.g.n_layers, self.g.n_experts, generator=fixed)

    def loss(self, ids: torch.Tensor, targets: torch.Tensor, mode: Mode) -> torch.Tensor:
        """Sum of -ln p over ids, targets [n_windows, n_tokens]; each window from zero state.

        The embedding's gradient is finished by `embedding_backward` after `backward`.
        """
        self._ids = ids.reshape(-1)
        self._embedded = self.w["embed"].data[self._ids].requires_grad_(True)
        logits = Linear.apply(self._forward(self._embedded, ids.shape[0], mode), self.w["head"])
        return functional.cross_entropy(logits, targets.reshape(-1), reduction="sum")

    def embedding_backward(self) -> None:
        grad = self.w["embed"].grad
        grad.zero_()
        grad.index_add_(0, self._ids, self._embedded.grad)

    def _forward(self, h, n_windows, mode):
        g, blocks = self.g, []
        for layer in range(g.n_layers):
            w = self.layers[layer]
            x = self._mix(w, "attn_res", blocks + [h]) if blocks else h
            start = layer % g.block == 0
            if start:
                blocks.append(h)
            x = Rms.apply(x, w["input_norm"], g.eps)
            a = self._mla(x, w, n_windows) if layer in g.mla_layers else Linear.apply(
                Kda.apply(x, w, g, n_windows), w["o_proj"])
            a = self._drop(a, mode)
            prefix = a if start else h + a
            y = Rms.apply(self._mix(w, "mlp_res", blocks + [prefix]), w["post_norm"], g.eps)
            m = self._moe(y, layer, n_windows, mode) if layer else Linear.apply(
                Situ.apply(Linear.apply(y, w["mlp_in"])), w["mlp_out"])
            h = prefix + self._drop(m, mode)
        z = self._mix(self.w, "output_res", blocks + [h])
        return Rms.apply(z, self.w["norm"], g.eps)

    def _mix(self, w, name, sources):
        return Mix.apply(w[name + "_norm"], w[name + "_proj"], self.g.eps, *sources)

    def _drop(self, x, mode):
        if not mode.dropout:
            return x
        keep = 1 - mode.dropout
        mask = torch.empty_like(x, requires_grad=False).bernoulli_(keep, generator=self.random)
        return x * mask.div_(keep)

    def _mla(self, x, w, n_windows):
        g, heads, t = self.g, self.g.mla_heads, x.shape[0] // n_windows
        qa, kva, kr, gate = torch.split(
            Linear.apply(x, w["mla_in"]), [g.q_rank, g.kv_rank, g.rope, heads * g.v_dim], dim=1)
        q = Linear.apply(Rms.apply(qa, w["q_norm"], g.latent_eps), w["q_b"])
        kv = Linear.apply(Rms.apply(kva, w["kv_norm"], g.latent_eps), w["kv_b"])
        q = q.view(n_windows, t, heads, g.nope + g.rope).transpose(1, 2)
        kn, v = torch.split(kv.view(n_windows, t, heads, g.nope + g.v_dim), [g.nope, g.v_dim], 3)
        kr = kr.view(n_windows, t, 1, g.rope).expand(n_windows, t, heads, g.rope)
        k = torch.cat([kn, kr], 3).permute(0, 2, 3, 1)
        mask = torch.full((t, t), -1e30).triu_(1)
        p = torch.softmax(torch.matmul(q * (g.nope + g.rope) ** -0.5, k) + mask, 3)
        o = torch.matmul(p, v.transpose(1, 2)).transpose(1, 2).reshape(x.shape[0], -1)
        return Linear.apply(o * torch.sigmoid(gate), w["o_proj"])

    def _moe(self, x, layer, n_windows, mode):
        w, g = self.layers[layer], self.g
        load = None if mode.loads is None else mode.loads[layer]
        bias = self.random_bias[layer] if mode.random_picks else None
        agg, shared = Moe.apply(x, w, g, load, bias)
        if mode.shared_keep < 1:
            keep = torch.empty(n_windows).bernoulli_(mode.shared_keep, generator=self.random)
            shared = shared * keep.repeat_interleave(x.shape[0] // n_windows)[:, None]
        shared = Linear.apply(shared, w["shared_out"])
        if mode.without_routed:
            return shared
        routed = Linear.apply(Rms.apply(agg, w["latent_norm"], g.eps), w["routed_up"])
        return routed + shared
