"""A pack that is killed, interrupted or runs out of space: nothing opens, and the same command
finds the clean result without doing finished work again."""

import os
import random
import signal
import time

from pack_checks import WIDE, clean, inspect_fails, pack, tree
from run_harness import Loop, alive, check, contains, equal

SEED = 20261201
UNFINISHED = ("pack.journal", "container.idx.partial")


def kill_at(bench, calls, when):
    """A prefix that kills the process just before its call number `when`."""
    bench.strace(calls, "EIO")  # or a skip
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}",
            "-e", f"inject={calls}:signal=KILL:when={when}"]


def finished(out):
    """The data files that have their names, which a later pack must leave as they are."""
    if not out.exists():
        return {}
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.glob("*.blocks")}


def resume(bench, model, out, want, *flags):
    """After a kill: what is there does not open unless it is whole, and is finished by a rerun."""
    if (out / "container.idx").exists():
        equal({k: v for k, v in tree(out).items() if k not in UNFINISHED}, want, "published")
    elif out.exists():
        inspect_fails(bench, out)
    before = finished(out)
    result = pack(bench, model, out, "--experts", *flags)
    equal(tree(out), want, "the resumed container")
    after = finished(out)
    equal({name: after[name] for name in before}, before, "files that were finished")
    return result


@check("killed at each rename, fsync and fdatasync, a pack leaves what a rerun completes")
def _(bench):
    model = bench.model("tiny")
    want = tree(clean(bench, model, "--experts"))
    for calls, at_least in (("rename,renameat,renameat2", 11), ("fsync", 15), ("fdatasync", 15)):
        when = 1
        while True:
            out = bench.path("out")
            # One job, so that calls are counted in one thread.
            run = bench.command([*kill_at(bench, calls, when), bench.sluice, "pack", model, out,
                                 "--experts", "--jobs", 1])
            if run.code == 0:
                break
            equal(run.code, -signal.SIGKILL, f"{calls} {when}: {run.err}")
            resume(bench, model, out, want)
            when += 1
        assert when > at_least, f"only {when - 1} calls of {calls}"
        equal(tree(out), want, "undisturbed under strace")


@check("killed at ten moments, a pack leaves what a rerun completes")
def _(bench):
    model = bench.model("medium", *WIDE[:2], "--experts", 32, *WIDE[4:])
    want = tree(clean(bench, model, "--experts"))
    seconds = min(pack(bench, model, bench.path("timed"), "--experts").seconds for _ in range(2))
    rng = random.Random(SEED)
    n_killed = n_resumed = 0
    for _ in range(10):
        out, moment = bench.path("out"), rng.uniform(0, seconds)

        def kill(child, moment=moment):
            time.sleep(moment)
            os.kill(child.pid, signal.SIGKILL)

        run = bench.command([bench.sluice, "pack", model, out, "--experts"], during=kill)
        n_killed += run.code == -signal.SIGKILL
        n_resumed += "finished before" in resume(bench, model, out, want).err
        for file in out.iterdir():
            file.unlink()
    assert n_killed >= 3, f"{n_killed} of 10 were killed"


@check("a kill loses little: what is in the journal is not done again, even twice")
def _(bench):
    model = bench.model("tiny")
    want = tree(clean(bench, model, "--experts"))
    out = bench.path("out")
    # A kill at every third sync of the journal and the data, until it is through.
    for _ in range(40):
        run = bench.command([*kill_at(bench, "fdatasync", 5), bench.sluice, "pack", model, out,
                             "--experts", "--jobs", 1])
        if run.code == 0:
            break
    equal(run.code, 0, "in the end")
    equal(tree(out), want, "the container")


@check("a torn journal costs work, never truth")
def _(bench):
    model = bench.model("tiny")
    want = tree(clean(bench, model, "--experts"))
    for keep in (0, 1, 20, 200, -1, -10, -24, -40):
        out = bench.path("out")
        bench.command([*kill_at(bench, "rename", 7), bench.sluice, "pack", model, out, "--experts",
                       "--jobs", 1])
        journal = out / "pack.journal"
        data = journal.read_bytes()
        journal.write_bytes(data[:keep] if keep >= 0 else data[:keep] + b"x" * -keep)
        pack(bench, model, out, "--experts")
        equal(tree(out), want, f"{keep} bytes of the journal")


@check("an unfinished pack is resumed with its options only, and from its source only")
def _(bench):
    model, out = bench.model("tiny"), bench.path("out")
    bench.command([*kill_at(bench, "rename", 8), bench.sluice, "pack", model, out, "--experts",
                   "--jobs", 1])
    contains(inspect_fails(bench, out), "unfinished")
    before = tree(out)
    for other, flags in ((model, ()), (model, ("--experts", "--tile-size", "8KiB")),
                         (bench.model("deep25"), ("--experts",))):
        contains(pack(bench, other, out, *flags, code=1).err, str(out), "unfinished")
    same_sizes = bench.model("tiny2", "--geometry", "tiny", "--seed", 5)
    contains(pack(bench, same_sizes, out, "--experts", code=1).err, "unfinished")
    equal(tree(out), before, "the folder")
    pack(bench, model, out, "--experts", "--jobs", 2)
    equal(tree(out), tree(clean(bench, model, "--experts")), "resumed")


@check("two packs into one place at once: the second is refused, the first is not disturbed")
def _(bench):
    model, out = bench.model("tiny"), bench.path("out")
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync",
            "-e", "inject=fdatasync:delay_enter=100000"]
    bench.strace("fdatasync", "EIO")  # or a skip

    def second(child):
        while not (out / "pack.journal").exists() and alive(child):
            time.sleep(0.01)
        time.sleep(0.1)
        contains(pack(bench, model, out, "--experts", code=1).err, str(out), "another process")

    pack(bench, model, out, "--experts", prefix=slow, during=second)
    equal(tree(out), tree(clean(bench, model, "--experts")), "the first")


@check("a full disk ends a pack with one message; with room again it goes on")
def _(bench):
    model = bench.model("half", *WIDE[:2], "--experts", 16, *WIDE[4:])
    want = tree(clean(bench, model, "--experts"))
    with Loop(bench) as folder:
        out, filler = folder / "out", folder / "filler"
        # Room cannot be set aside, and is gone when it is needed.
        prefix = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fallocate,pwrite64",
                  "-e", "inject=fallocate:error=EOPNOTSUPP",
                  "-e", "inject=pwrite64:delay_enter=20000:when=2+1"]
        bench.strace("fallocate", "EIO")  # or a skip

        def fill(child):
            while not list(out.glob("*.partial")) and alive(child):
                time.sleep(0.001)
            with open(filler, "wb") as file:
                try:
                    while True:
                        file.write(b"x" * (1 << 20))
                        file.flush()
                except OSError:
                    pass

        err = pack(bench, model, out, "--experts", prefix=prefix, during=fill, code=1).err
        contains(err, "No space left")
        equal(len(err.splitlines()), 1, f"lines of {err}")
        contains(inspect_fails(bench, out), "unfinished")
        filler.unlink()
        pack(bench, model, out, "--experts")
        equal(tree(out), want, "the container")


@check("errors of reading and writing end a pack with one message and are made good by a rerun")
def _(bench):
    model = bench.model("tiny")
    want = tree(clean(bench, model, "--experts"))
    shard = sorted(model.glob("*.safetensors"))[3]
    for prefix, words in ((bench.strace("pread64", "EIO", "6+", shard), (shard.name, "offset")),
                          (bench.strace("pwrite64", "ENOSPC", "9"), ("No space left",)),
                          (bench.strace("pwrite64", "EIO", "12"), ("Input/output error",)),
                          (bench.strace("fdatasync", "EIO", "4"), ("Input/output error",)),
                          (bench.strace("rename", "EACCES", "5"), ("Permission denied",)),
                          (bench.strace("fallocate", "ENOSPC", "3"), ("No space left",))):
        out = bench.path("out")
        err = pack(bench, model, out, "--experts", "--jobs", 1, prefix=prefix, code=1).err
        contains(err, *words)
        equal(len(err.splitlines()), 1, f"lines of {err}")
        resume(bench, model, out, want)


@check("Ctrl-C ends a pack within a second with 130, and a rerun goes on")
def _(bench):
    model, out = bench.model("wide", *WIDE), bench.path("out")

    def interrupt(child):
        while not list(out.glob("*.partial")) and alive(child):
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGINT)

    start = time.monotonic()
    run = bench.command([bench.sluice, "pack", model, out, "--experts"], during=interrupt)
    assert run.code in (0, 130), run.err
    if run.code == 130:
        contains(run.err, "interrupted", "goes on")
        inspect_fails(bench, out)
    assert time.monotonic() - start < 10
    pack(bench, model, out, "--experts")
    equal(tree(out), tree(clean(bench, model, "--experts")), "the container")


@check("a limit on the size of files is an error like any other")
def _(bench):
    model, out = bench.model("tiny"), bench.path("out")
    limited = ["bash", "-c", 'ulimit -f 60; exec "$@"', "bash"]
    err = pack(bench, model, out, "--experts", prefix=limited, code=1).err
    contains(err, "File too large")
    resume(bench, model, out, tree(clean(bench, model, "--experts")))
