"""What `sluice pack` makes, and what it refuses."""

import hashlib
import json
import os
import shutil
import time

from run_harness import Loop, alive, check, contains, equal

IDS = ("--ids", "3,4,5,6,7", "--gen", 9, "--ignore-stop")
WIDE = ("--geometry", "deep25", "--experts", 64, "--expert-width", 256, "--latent", 256)  # 170 MB


def pack(bench, model, out, *flags, prefix=(), code=0, **more):
    result = bench.command([*prefix, bench.sluice, "pack", model, out, *flags], **more)
    assert result.code == code, f"exit code {result.code}, want {code}: {flags}: {result.err}"
    equal(result.out, "", "stdout")
    return result


def tree(folder):
    """Every file and its bytes' hash."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def clean(bench, model, *flags):
    """The container that an undisturbed pack makes of a model of `bench`; kept."""
    name = f"{model.name}-{'-'.join(str(f) for f in flags)}-clean"
    out = bench.folder / name
    if not out.exists():
        pack(bench, model, out, *flags)
    return out


def inspect_fails(bench, folder):
    result = bench.command([bench.sluice, "inspect", folder])
    equal(result.code, 1, f"inspect of {folder}: {result.out}")
    return result.err


@check("a run from shards, from a trunk-only and from a full container gives the same logits")
def _(bench):
    for name in ("tiny", "deep25"):
        model = bench.model(name)
        trunk, full = clean(bench, model), clean(bench, model, "--experts")
        small = clean(bench, model, "--experts", "--tile-size", "4KiB", "--alignment", "16KiB")
        _, want = bench.logits(model, *IDS)
        for container in (trunk, full, small):
            for flags in ((), ("--ram", "floor"), ("--io", "pread", "--buffered")):
                result, got = bench.logits(container, *IDS, *flags)
                assert got == want, f"{container} {flags} differs"
                contains(result.err, "container")


@check("a full container needs the model no more; a trunk-only one says where its shards were")
def _(bench):
    model = bench.path("model")
    shutil.copytree(bench.model("deep25"), model)
    trunk, full = bench.path("trunk"), bench.path("full")
    pack(bench, model, trunk)
    pack(bench, model, full, "--experts")
    _, want = bench.logits(full, "--prompt", "A model", "--gen", 5)
    moved = bench.path("moved")
    model.rename(moved)
    _, got = bench.logits(full, "--prompt", "A model", "--gen", 5)
    assert got == want
    err = bench.run(trunk, "--prompt", "A model", "--gen", 5, code=1).err
    contains(err, str(model), "--shards", "model-00002-of-000026.safetensors")
    _, got = bench.logits(trunk, "--prompt", "A model", "--gen", 5, "--shards", moved)
    assert got == want
    for other in (full, moved):  # which have no use for it
        contains(bench.run(other, *IDS, "--shards", moved, code=1).err, "--shards")
    shard = moved / "model-00003-of-000026.safetensors"
    data = bytearray(shard.read_bytes())
    data[20] ^= 1  # in its header
    shard.write_bytes(data)
    err = bench.run(trunk, *IDS, "--shards", moved, code=1).err
    contains(err, shard.name, "header")


@check("packing a made-up checkpoint gives what synth --container writes")
def _(bench):
    for name in ("tiny", "deep25", "nano"):
        direct = bench.path("direct")
        made = bench.command([bench.sluice, "synth", direct, "--geometry", name, "--container"])
        equal(made.code, 0, made.err)
        equal(tree(direct), tree(clean(bench, bench.model(name), "--experts")), name)


@check("an aliased model costs its disk space, says so, and gives the same logits every time")
def _(bench):
    wide = ("--geometry", "deep25", "--hidden", 256, "--vocab", 4096, "--experts", 64)
    alias = bench.path("alias")
    make = [bench.sluice, "synth", alias, *wide, "--alias", "6MB"]
    equal(bench.command(make).code, 0, "synth")
    du = sum(p.stat().st_blocks * 512 for p in [alias, *alias.iterdir()])
    assert 5_000_000 < du <= 6_000_000, f"{du} bytes"
    result, first = bench.logits(alias, *IDS, "--ram", "floor")
    contains(result.err, "aliased")
    _, second = bench.logits(alias, *IDS)
    assert first == second
    inspect = bench.command([bench.sluice, "inspect", alias])
    contains(inspect.out, "aliased container")
    tight = bench.command([bench.sluice, "synth", bench.path("tight"), *wide, "--alias", "1MB"])
    equal(tight.code, 1, "1 MB")
    contains(tight.err, "1000000")


@check("a finished container is never overwritten")
def _(bench):
    model, out = bench.model("tiny"), bench.path("out")
    pack(bench, model, out, "--experts")
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.iterdir()}
    contains(pack(bench, model, out, "--experts").err, "nothing was done")
    contains(pack(bench, model, out, code=1).err, str(out), "never overwritten")
    contains(pack(bench, bench.model("deep25"), out, "--experts", code=1).err, "never overwritten")
    after = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.iterdir()}
    equal(after, before, "files")


@check("only an absent, an empty or an unfinished folder is packed into")
def _(bench):
    model = bench.model("tiny")
    empty = bench.path("empty")
    empty.mkdir()
    pack(bench, model, str(empty) + "/")
    file, full, link = bench.path("file"), bench.path("full"), bench.path("link")
    file.write_text("mine")
    full.mkdir()
    (full / "mine").write_text("mine")
    link.symlink_to(bench.path("nothing"))
    for out in (file, full, link, file / "below", bench.path("absent") / "below", model):
        result = pack(bench, model, out, code=1)
        contains(result.err, str(out))
        equal(len(result.err.splitlines()), 1, f"lines of {result.err}")
    equal(file.read_text(), "mine", "file")
    equal([p.name for p in full.iterdir()], ["mine"], "folder")
    contains(pack(bench, empty, bench.path("again"), code=1).err, "container already")


@check("flags that make no sense are refused before anything is written")
def _(bench):
    model = bench.model("tiny")
    for flags in (("--tile-size", "0"), ("--tile-size", "-1"), ("--alignment", "5000"),
                  ("--alignment", "512"), ("--jobs", "0"), ("--jobs", "x"), ("--tiles", "4MiB"),
                  ("--tile-size", "2GiB")):
        out = bench.path("out")
        pack(bench, model, out, *flags, code=2)
        assert not out.exists(), f"{flags} left {out}"


@check("a checkpoint that does not open is not packed")
def _(bench):
    model = bench.path("short")
    shutil.copytree(bench.model("tiny"), model)
    shard = sorted(model.glob("*.safetensors"))[2]
    os.truncate(shard, shard.stat().st_size - 4096)
    out = bench.path("out")
    contains(pack(bench, model, out, code=1).err, shard.name)
    assert not out.exists()


@check("space that is short is noticed before anything is written, with both numbers")
def _(bench):
    with Loop(bench) as folder:
        out = folder / "out"
        err = pack(bench, bench.model("wide", *WIDE), out, "--experts", code=1).err
        contains(err, str(out), "are needed", "are available")
        numbers = [int(word) for word in err.split() if word.isdigit()]
        assert numbers[0] > 150_000_000 and numbers[1] < 64 << 20, numbers
        assert not out.exists()


@check("threads and memory stay bounded whatever the size")
def _(bench):
    most = [0]

    def look(child):
        while alive(child):
            try:
                status = open(f"/proc/{child.pid}/status").read()
                most[0] = max(most[0], int(status.split("Threads:")[1].split()[0]))
            except (OSError, IndexError):
                return
            time.sleep(0.001)

    pack(bench, bench.model("wide", *WIDE), bench.path("out"), "--experts", "--jobs", 3,
         during=look)
    assert 1 < most[0] <= 3 + 2, f"{most[0]} threads"
    bench.need_plain_memory()
    result = pack(bench, bench.model("wide", *WIDE), bench.path("out"), "--experts",
                  watch_memory=True)
    assert 1 << 20 < result.peak_rss_bytes < 120 << 20, f"{result.peak_rss_bytes} bytes"


@check("verify names every bad block of a container, and is content with a whole one")
def _(bench):
    model, out = bench.model("tiny"), bench.path("out")
    pack(bench, model, out, "--experts")
    verify = [bench.sluice, "verify", out]
    whole = bench.command([*verify, "--against", model])
    equal((whole.code, whole.err), (0, ""), whole.out)
    contains(whole.out, "whole: every block has its checksum and the bytes of")
    for name, offset in (("trunk.blocks", 20), ("experts-00002.blocks", 4097)):
        data = bytearray((out / name).read_bytes())
        data[offset] ^= 1
        (out / name).write_bytes(data)
    report = bench.path("json")
    bad = bench.command([*verify, "--json", report])
    equal(bad.code, 1, "exit code")
    contains(bad.out, "trunk.blocks: block", "experts-00002.blocks: block", "expert 1 of layer 2",
             "bad: 2 things are wrong")
    report = json.loads(report.read_text())
    equal((report["whole"], len(report["bad"]), report["format"]), (False, 2, "container"), "JSON")
    contains(bench.command([*verify, "--record", bench.path("sums")]).err, "checksums of its own")
    contains(bench.command([bench.sluice, "verify", model, "--against", out]).err, "containers")
    (out / "container.idx").unlink()
    equal(bench.command(verify).code, 1, "without an index")
