"""What a run prints and writes, and that no setting changes a bit of it."""

import base64
import json
import os
import re
import shutil
from pathlib import Path

from run_harness import check, contains, equal

TINY_IDS = "41,55,3,27,53,56,47,46,43"
PROMPT = [(37 * i + 11) % 500 for i in range(20)]
N_GENERATE = 5
BASE = ("--ids", ",".join(map(str, PROMPT)), "--gen", N_GENERATE, "--ignore-stop")
VARIANTS = [
    ("--ram", "floor"), ("--ram", "200MB"), ("--ram", "2GB"),
    ("--io", "uring"), ("--io", "pread"), ("--io", "mmap"), ("--buffered",),
    ("--buffered", "--io", "pread"), ("--queue-depth", 1), ("--queue-depth", 8),
    ("--queue-depth", 64), ("--request-size", "4KiB"), ("--request-size", "64KiB"),
    ("--request-size", "4MiB"), ("--threads", 1), ("--threads", 2), ("--isa", "scalar"),
    ("--prefill-chunk", 1), ("--prefill-chunk", 3), ("--prefill-chunk", 16),
    ("--prefill-chunk", 100),
    ("--ram", "floor", "--io", "pread", "--queue-depth", 1, "--prefill-chunk", 3, "--threads", 1)]


def expected(bench):
    """Ids and logits of deep25 with everything as it comes."""
    if not hasattr(bench, "expected"):
        result, logits = bench.logits(bench.model("deep25"), *BASE)
        bench.expected = (result.out, logits)
    return bench.expected


def same(bench, model, *flags, **more):
    """A run that must give what every other gives; returns its result."""
    if "--io" in flags and "uring" in flags:
        bench.need_uring()
    result, logits = bench.logits(model, *BASE, *flags, **more)
    want_out, want_logits = expected(bench)
    equal(result.out, want_out, f"ids with {flags}")
    assert logits == want_logits, f"logits differ with {flags}"
    return result


@check("stdout carries one line of ids, stderr the rest, and tiny says what is published")
def _(bench):
    result = bench.run(bench.model("tiny"), "--ids", "3,4,5,6,7", "--gen", 9, "--print", "ids")
    equal(result.out, TINY_IDS + "\n", "stdout")
    contains(result.err, "5 prompt, 9 generated, stop: length", "peak RSS")


@check("stdout carries the text alone, which is the bytes of the ids")
def _(bench):
    model, prompt = bench.model("deep25"), b"In the beginning"
    flags = ("--prompt", prompt.decode(), "--gen", 24, "--ignore-stop")
    text = bench.run(model, *flags)
    _, report = bench.report(model, *flags)
    ranks = dict(line.split() for line in (model / "tiktoken.model").read_bytes().splitlines())
    bytes_of = {int(rank): base64.b64decode(token) for token, rank in ranks.items()}
    equal(b"".join(bytes_of[i] for i in report["prompt_ids"]), prompt, "bytes of the prompt")
    # The ids from 256 on are special tokens, shown by name.
    plain = b"".join(bytes_of.get(i, b"<|special|>") for i in report["generated_ids"])
    shown = re.sub(r"<\|\w+\|>|\[\w+\]", "<|special|>", text.out)
    equal(shown, plain.decode(errors="replace"), "stdout")


@check("--gen 0 gives the logits of the prompt and no token")
def _(bench):
    result, logits = bench.logits(bench.model("tiny"), "--ids", "3,4,5", "--gen", 0)
    equal(result.out, "\n", "stdout")
    equal(len(logits), 3 * 64 * 4, "bytes of logits")


@check("logits have a row for each token of the prompt and each generated one")
def _(bench):
    _, logits = expected(bench)
    equal(len(logits), (len(PROMPT) + N_GENERATE) * 512 * 4, "bytes of logits")


for variant in VARIANTS:
    @check("same logits with " + " ".join(map(str, variant)))
    def _(bench, variant=variant):
        same(bench, bench.model("deep25"), *variant)


@check("same logits with --isa avx2, or this CPU is said not to have it")
def _(bench):
    flags = Path("/proc/cpuinfo").read_text().split()
    if "avx2" in flags and "fma" in flags:
        same(bench, bench.model("deep25"), "--isa", "avx2")
    else:
        contains(bench.run(bench.model("deep25"), *BASE, "--isa", "avx2", code=1).err, "avx2")


def flat_config(nested):
    """The form with every key at the top, and the names that differ there."""
    text = dict(nested["text_config"])
    linear = text.pop("linear_attn_config")
    text.pop("model_type", None)
    flat = {k: v for k, v in nested.items() if k not in ("text_config", "vision_config")}
    flat.update({k: v for k, v in text.items() if k not in flat})
    for name, flat_name in (("activation_situ_beta", "situ_beta"),
                            ("activation_situ_linear_beta", "situ_linear_beta")):
        flat[flat_name] = flat.pop(name)
    flat["kda_num_heads"] = linear["num_heads"]
    flat["kda_head_dim"] = linear["head_dim"]
    for name in ("short_conv_kernel_size", "gate_lower_bound", "full_attn_layers"):
        flat[name] = linear[name]
    return flat


@check("same logits with a flat config.json")
def _(bench):
    nested, flat = bench.model("deep25"), bench.path("flat")
    flat.mkdir()
    for file in nested.iterdir():
        if file.name != "config.json":
            (flat / file.name).symlink_to(file)
    config = flat_config(json.loads((nested / "config.json").read_text()))
    assert "text_config" not in config and "linear_attn_config" not in config
    (flat / "config.json").write_text(json.dumps(config))
    same(bench, flat)


@check("same logits from a snapshot of links into a blob folder")
def _(bench):
    root = bench.path("hub")
    snapshot = root / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for i, file in enumerate(sorted(bench.model("deep25").iterdir())):
        blob = f"{0xabc0000 + i:064x}"
        shutil.copy(file, root / "blobs" / blob)
        (snapshot / file.name).symlink_to(f"../../blobs/{blob}")
    same(bench, snapshot)


@check("same logits from a tree that may not be written, and nothing appears in it")
def _(bench):
    tree = bench.path("readonly")
    shutil.copytree(bench.model("deep25"), tree)
    for file in tree.iterdir():
        file.chmod(0o444)
    tree.chmod(0o555)
    before = sorted(os.listdir(tree))
    # The output goes where the other user may write.
    writable = bench.path("anyone")
    writable.mkdir()
    writable.chmod(0o777)
    dump = writable / "logits"
    bench.run(tree, *BASE, "--print", "ids", "--dump-logits", dump, prefix=bench.as_nobody())
    assert dump.read_bytes() == expected(bench)[1], "logits differ"
    equal(sorted(os.listdir(tree)), before, "files of the model")
    tree.chmod(0o755)


@check("--dump-routes has a line a position: the experts of each routed layer, ascending")
def _(bench):
    texts = []
    for chunk in (1, 16):
        dump = bench.path("routes")
        bench.logits(bench.model("deep25"), *BASE, "--prefill-chunk", chunk, "--dump-routes", dump)
        texts.append(dump.read_text())
    equal(texts[0], texts[1], "routes with another chunk")
    lines = [json.loads(line) for line in texts[0].splitlines()]
    equal([line["tok"] for line in lines], list(range(len(PROMPT) + N_GENERATE)), "positions")
    for line in lines:
        equal(list(line), ["tok", "layers"], "keys")
        equal(len(line["layers"]), 24, "routed layers")
        for ids in line["layers"]:
            assert len(ids) == 4 and ids == sorted(set(ids)) and 0 <= ids[0] <= ids[-1] < 16, ids


@check("--json: asked = used + alignment + unused for each kind, and the kinds make the total")
def _(bench):
    for ram in ("floor", "2GB"):
        _, report = bench.report(bench.model("deep25"), *BASE, "--ram", ram)
        kinds = {k: v for k, v in report["bytes"].items() if k != "total"}
        equal(sorted(kinds), ["embedding", "experts", "trunk"], "kinds")
        for name, kind in kinds.items():
            equal(kind["asked"], kind["used"] + kind["alignment"] + kind["unused"], name)
            equal(kind["unused"], 0, f"unused {name} of a run that went to its end")
        for key, sum_of_kinds in report["bytes"]["total"].items():
            if key != "delivered":
                equal(sum(kind[key] for kind in kinds.values()), sum_of_kinds, f"total {key}")
        equal(len(report["tokens"]), N_GENERATE, "tokens")
        equal(report["stop"], "length", "stop")
        equal(report["error"], None, "error")
