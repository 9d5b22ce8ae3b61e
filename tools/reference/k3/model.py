"""The whole model: layers over the residual stream, logits, greedy decoding (page 3)."""

from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

import torch

from . import ops
from .attn_res import AttnRes
from .config import Config
from .kda import Kda
from .mla import Mla
from .moe import Mlp, Moe

TEXT = "language_model."
BASE = TEXT + "model."


@dataclass
class Trace:
    """What a forward pass leaves behind for comparison, if asked."""

    layer_outputs: List[torch.Tensor] = field(default_factory=list)  # per layer [T, d]
    final_mix: Optional[torch.Tensor] = None                         # [T, d]
    picks: List[Tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    # per MoE layer: (layer index, expert ids [T, top_k], weights [T, top_k])


class Model:
    """`weights` is a Checkpoint or anything with its `dtype`, `weight(name)`, `expert(name)`."""

    attn_res_class, kda_class, mla_class, mlp_class, moe_class = AttnRes, Kda, Mla, Mlp, Moe

    def __init__(self, weights, config: Config):
        self.w, self.c = weights, config
        self.attn_res = self.attn_res_class(weights, config.rms_norm_eps)
        self.token_mixers, self.channel_mixers = [], []
        for layer in range(config.n_layers):
            at = f"{BASE}layers.{layer}."
            token = self.mla_class if config.is_mla(layer) else self.kda_class
            self.token_mixers.append(token(weights, config, at + "self_attn."))
            self.channel_mixers.append(
                self.mlp_class(weights, config, at + "mlp.") if config.is_dense(layer)
                else self.moe_class(weights, config, at + "block_sparse_moe."))

    def new_state(self) -> List:
        """State of an empty sequence, one entry per layer."""
        return [mixer.new_state() for mixer in self.token_mixers]

    def forward(self, ids: Sequence[int], state: List,
                trace: Optional[Trace] = None) -> torch.Tensor:
        """Logits [T, vocab] of T further tokens; `state` moves on."""
        h = self.w.weight(BASE + "embed_tokens.weight")[torch.as_tensor(list(ids))]
        blocks: List[torch.Tensor] = []
        for layer in range(self.c.n_layers):
            h = self.run_layer(layer, h, blocks, state[layer], trace)
            if trace is not None:
                trace.layer_outputs.append(h)
        z = self.aggregate(blocks, h)
        if trace is not None:
            trace.final_mix = z
        z = ops.rms_norm(z, self.w.weight(BASE + "norm.weight"), self.c.rms_norm_eps)
        return z @ self.w.weight(TEXT + "lm_head.weight").t()

    def run_layer(self, layer: int, h, blocks: List, state, trace) -> torch.Tensor:
        """h [T, d], the layer's input; `blocks` gets the snapshot if the layer starts a block."""
        at = f"{BASE}layers.{layer}."
        x = self.attn_res.mix(blocks + [h], at + "self_attention_res") if blocks else h
        starts_block = layer % self.c.attn_res_block_size == 0
        if starts_block:
            blocks.append(h)                      # the raw layer input, not the mixture
        a = self.token_mixers[layer].forward(self.norm(x, at + "input_layernorm"), state)
        prefix = a if starts_block else h + a     # the running sum restarts with a block
        y = self.attn_res.mix(blocks + [prefix], at + "mlp_res")
        return prefix + self.mix_channels(layer, self.norm(y, at + "post_attention_layernorm"),
                                          trace)

    def mix_channels(self, layer: int, x, trace) -> torch.Tensor:
        mixer = self.channel_mixers[layer]
        if trace is None or self.c.is_dense(layer):
            return mixer.forward(x)
        picks: List = []
        out = mixer.forward(x, picks)
        trace.picks.append((layer, *picks[0]))
        return out

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return ops.rms_norm(x, self.w.weight(name + ".weight"), self.c.rms_norm_eps)

    def aggregate(self, blocks: List, h: torch.Tensor) -> torch.Tensor:
        """What the final norm sees."""
        return self.attn_res.mix(blocks + [h], BASE + "output_attn_res")

    def greedy(self, prompt: Sequence[int], n_tokens: int) -> Tuple[List[int], torch.Tensor]:
        """(n_tokens ids, logits [prompt + n_tokens - 1, vocab]); one prefill, then one by one.

        The lowest id wins a tie.
        """
        state, out = self.new_state(), []
        logits = [self.forward(prompt, state)]
        while True:
            out.append(int(torch.argmax(logits[-1][-1])))
            if len(out) == n_tokens:
                return out, torch.cat(logits)
            logits.append(self.forward(out[-1:], state))
