"""Makes everything in tests/fixtures again.

    python3 tools/reference/make_fixtures.py              all of it; reads models/nano
    python3 tools/reference/make_fixtures.py --made-up    without what needs models/nano

The made-up models are written to a temporary folder.  Numbers are computed in float64 and stored as
float32 (logits files) or with nine digits (JSON); the largest relative difference of a float32 run
is stored beside them.

    deep25.json, deep25.f32   prompt, greedy continuation, logits of every position
    nano.json, nano.f32       the same for the trained model
    deep25.sha256             of the made-up shards and index
    heldout.json              bits per byte of tests/data/heldout.txt under the trained model
    tiny.json                 the numbers of the page's Appendix A
    mistakes.json             what the silent mistakes of section 8 do
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from typing import Any, Dict, List, Sequence

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tools", "nano")]
import bits_per_byte  # noqa: E402
import bpe  # noqa: E402
import made_up  # noqa: E402
import mistakes  # noqa: E402
from k3 import Checkpoint, Model, Trace, load_config  # noqa: E402

FIXTURES = os.path.join(ROOT, "tests", "fixtures")
NANO = os.path.join(ROOT, "models", "nano")
TINY_PROMPT = [3, 4, 5, 6, 7]
N_PROMPT, N_CONTINUATION = 12, 24
DEEP25_PROMPT_SEED = 1     # of the ids; chosen so that the checks below hold
NANO_PROMPT = "And Abraham rose up early in the morning,"  # the demo prompt of models/nano
MIN_TOP_GAP = 1e-3         # of the largest logit: best against second best
MIN_PICK_GAP = 1e-6       # of the scores: last chosen against next expert (float32 noise: 1e-7)
AGREEMENT = 1e-5           # of the largest logit: whole against incremental
FLOAT32_AGREEMENT = 2e-5   # of the largest logit: float32 against float64
VISIBLE = 1e-4             # of the largest logit


def digits(x) -> Any:
    """Tensors and floats as JSON values of nine significant digits."""
    if isinstance(x, torch.Tensor):
        return digits(x.tolist())
    if isinstance(x, list):
        return [digits(v) for v in x]
    return float(f"{x:.9g}") if isinstance(x, float) else x


def write_json(file: str, content: Dict[str, Any]) -> None:
    """One top-level key a line; entries of a list of objects one a line."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            body = ",\n  ".join(json.dumps(v, ensure_ascii=False) for v in value)
            lines.append(f"{json.dumps(key)}: [\n  {body}]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    with open(os.path.join(FIXTURES, file), "w", encoding="utf-8") as out:
        out.write("{" + ",\n ".join(lines) + "}\n")


def load(folder: str, dtype=torch.float64) -> Model:
    return Model(Checkpoint(folder, dtype), load_config(folder))


def relative(found: torch.Tensor, want: torch.Tensor) -> float:
    return float((found.double() - want).abs().max() / want.abs().max())


def pick_gap(folder: str, ids: Sequence[int]) -> float:
    """Smallest distance, over layers and positions, of the last chosen to the next expert."""
    smallest = [float("inf")]

    class Watching(Model.moe_class):
        def pick_weights(self, score, biased, chosen):
            top = torch.sort(biased, dim=1, descending=True)[0]
            gap = top[:, self.c.top_k - 1] - top[:, self.c.top_k]
            smallest[0] = min(smallest[0], float(gap.min()))
            return super().pick_weights(score, biased, chosen)

    model_class = mistakes.sub(Model, moe_class=Watching)
    model = model_class(Checkpoint(folder, torch.float64), load_config(folder))
    model.forward(ids, model.new_state())
    return smallest[0]


def continuation(folder: str, prompt: List[int]) -> Dict[str, Any]:
    """Greedy run, checked.  Keys: ids, logits (float64), top_gap, pick_gap, float32_difference.

    Raises AssertionError if a check of the page's kind fails.
    """
    model = load(folder)
    out, logits = model.greedy(prompt, N_CONTINUATION)
    ids = prompt + out
    whole = model.forward(ids, model.new_state())
    assert relative(logits, whole[:-1]) < AGREEMENT, "whole and incremental logits differ"
    assert whole[len(prompt) - 1 : -1].argmax(-1).tolist() == out, "whole and incremental ids differ"
    single = load(folder, torch.float32)
    out32, logits32 = single.greedy(prompt, N_CONTINUATION)
    whole32 = single.forward(ids, single.new_state())
    assert out32 == out, "float32 and float64 ids differ"
    difference = max(relative(whole32, whole), relative(logits32, whole[:-1]))
    assert difference < FLOAT32_AGREEMENT, f"float32 differs by {difference}"
    top = torch.sort(whole[len(prompt) - 1 :], dim=1, descending=True)[0]
    return {"ids": ids, "logits": whole, "float32_difference": difference,
            "top_gap": float((top[:, 0] - top[:, 1]).min() / whole.abs().max()),
            "pick_gap": pick_gap(folder, ids)}


def write_continuation(name: str, folder: str, prompt: List[int], more: Dict[str, Any]) -> List[int]:
    """NAME.json and NAME.f32; the ids."""
    run = continuation(folder, prompt)
    assert run["top_gap"] > MIN_TOP_GAP, f"{name}: top gap {run['top_gap']}"
    assert run["pick_gap"] > MIN_PICK_GAP, f"{name}: pick gap {run['pick_gap']}"
    logits = run["logits"]
    with open(os.path.join(FIXTURES, name + ".f32"), "wb") as out:
        out.write(logits.numpy().astype("<f4").tobytes())
    write_json(name + ".json", {
        "model": name, **more, "ids": run["ids"], "n_prompt": len(prompt),
        "vocab": logits.shape[1], "n_positions": logits.shape[0], "logits_file": name + ".f32",
        "largest_logit": digits(float(logits.abs().max())),
        "top_gap": digits(run["top_gap"]), "pick_gap": digits(run["pick_gap"]),
        "float32_difference": digits(run["float32_difference"])})
    print(f"{name}: top gap {run['top_gap']:.2e}, pick gap {run['pick_gap']:.2e}, "
          f"float32 within {run['float32_difference']:.1e}")
    return run["ids"]


def deep25_prompt(seed: int) -> List[int]:
    """Byte ids, from the generator's stream."""
    return (made_up.stream(made_up.mix(seed), N_PROMPT) & np.uint64(255)).tolist()


def write_sha256(folder: str) -> None:
    """deep25.sha256, as sha256sum prints it: shards and index, not the JSON around them."""
    with open(os.path.join(FIXTURES, "deep25.sha256"), "w", encoding="ascii") as out:
        for file in sorted(os.listdir(folder)):
            if file.startswith("model"):
                with open(os.path.join(folder, file), "rb") as data:
                    out.write(f"{hashlib.sha256(data.read()).hexdigest()}  {file}\n")


def write_tiny(folder: str) -> None:
    """tiny.json: Appendix A, all positions where that is cheap."""
    model, trace = load(folder), Trace()
    config, state = model.c, model.new_state()
    logits = model.forward(TINY_PROMPT, state, trace)
    greedy, _ = model.greedy(TINY_PROMPT, 9)
    mla = [n for n in range(config.n_layers) if config.is_mla(n)]
    kda = [n for n in range(config.n_layers) if not config.is_mla(n)]
    write_json("tiny.json", {
        "model": "tiny", "ids": TINY_PROMPT, "greedy": greedy, "vocab": config.vocab_size,
        "logits": digits(logits), "argmax": logits.argmax(-1).tolist(),
        "layers": [{"layer": n, "l2": digits(float(h[-1].norm())), "sum": digits(float(h[-1].sum())),
                    "last_position": digits(h[-1])} for n, h in enumerate(trace.layer_outputs)],
        "final_mix": digits(trace.final_mix[-1]),
        "routes": [{"layer": n, "experts": ids.tolist(), "weights": digits(weights)}
                   for n, ids, weights in trace.picks],
        "kda": [{"layer": n, "state_sum": digits(float(state[n].s.sum())),
                 "state_sum_of_absolutes": digits(float(state[n].s.abs().sum())),
                 "state_head0_key0": digits(state[n].s[0, 0]),
                 "q_window": digits(state[n].window["q"]), "k_window": digits(state[n].window["k"]),
                 "v_window": digits(state[n].window["v"])} for n in kda],
        "mla": [{"layer": n, "cache_rows": digits(state[n].rows)} for n in mla]})


def write_mistakes(models: Dict[str, tuple]) -> None:
    """mistakes.json over `models`: name -> (folder, ids)."""
    right = {name: load(folder).forward(ids, load(folder).new_state())
             for name, (folder, ids) in models.items()}
    entries = []
    for mistake in mistakes.ALL:
        entry: Dict[str, Any] = {"name": mistake.name, "numbers": list(mistake.numbers)}
        if mistake.row:
            entry["row"] = mistake.row
        if mistake.how:
            entry["how"] = mistake.how
        delta = {}
        for name, (folder, ids) in models.items():
            logits = mistake.logits(folder, load_config(folder), ids)
            delta[name] = digits(relative(logits, right[name]))
            if name == "tiny":
                entry["logits"] = digits(logits[-1])
        entry["delta"] = delta
        entry["visible"] = any(d > VISIBLE for d in delta.values())
        entry["shown_by"] = [name for name, d in delta.items() if d > VISIBLE]
        entries.append(entry)
        print(f"  {mistake.name}: " + " ".join(f"{n} {d:.1e}" for n, d in delta.items()))
    write_json("mistakes.json", {
        "about": "delta: largest difference over all positions, relative to the largest logit; "
                 "logits: tiny, last position",
        "threshold": VISIBLE, "tiny_ids": TINY_PROMPT, "entries": entries,
        "not_in_logits": [{"number": n, "why": why}
                          for n, why in mistakes.NOT_IN_LOGITS.items()]})


def write_heldout(tokens: Sequence[bytes]) -> None:
    """heldout.json: bits per byte of tests/data/heldout.txt under models/nano, in float32."""
    with open(os.path.join(ROOT, "tests", "data", "heldout.txt"), encoding="utf-8", newline="") as f:
        ids = bpe.Tokenizer(tokens).encode(f.read())
    value, n_tokens, n_bytes = bits_per_byte.measure(load(NANO, torch.float32), ids, tokens)
    write_json("heldout.json", {"bits_per_byte": digits(value), "n_tokens": n_tokens,
                                "n_bytes": n_bytes})
    print(f"heldout: {value:.6f} bits per byte")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--made-up", action="store_true", help="leave out what needs models/nano")
    args = parser.parse_args()
    os.makedirs(FIXTURES, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp, torch.no_grad():
        folders = {name: os.path.join(temp, name) for name in ("tiny", "deep25")}
        for name, folder in folders.items():
            made_up.write(folder, made_up.PRESETS[name])
        write_sha256(folders["deep25"])
        write_tiny(folders["tiny"])
        ids = write_continuation("deep25", folders["deep25"], deep25_prompt(DEEP25_PROMPT_SEED), {})
        models = {"tiny": (folders["tiny"], TINY_PROMPT), "deep25": (folders["deep25"], ids)}
        if not args.made_up:
            tokens = bpe.read_tiktoken(os.path.join(NANO, "tiktoken.model"))
            ids = write_continuation("nano", NANO, bpe.Tokenizer(tokens).encode(NANO_PROMPT),
                                     {"prompt": NANO_PROMPT})
            models["nano"] = (NANO, ids)
            write_heldout(tokens)
        write_mistakes(models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
