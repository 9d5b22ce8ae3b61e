"""Calls that fail, by strace: what is survived, and what ends a run with which words."""

import json
import re
import subprocess

from run_harness import Skip, check, contains, equal
from run_output_checks import TINY_IDS, same

IDS = ("--ids", "3,4,5,6,7", "--print", "ids", "--ignore-stop")


def shard(bench, model, number):
    return sorted(bench.model(model).glob("*.safetensors"))[number - 1]


@check("a read that fails ends the run: file and offset named, no token after it, no dump")
def _(bench):
    tiny, file = bench.model("tiny"), shard(bench, "tiny", 3)
    flags = (*IDS, "--gen", 9, "--io", "pread", "--queue-depth", 1, "--ram", "floor")
    seen = set()
    for when in (1, 2, 3, 8, 20, 60, 120):
        logits, routes, report = (bench.path(name) for name in ("logits", "routes", "json"))
        result = bench.run(tiny, *flags, "--dump-logits", logits, "--dump-routes", routes,
                           "--json", report, code=1,
                           prefix=bench.strace("pread64", "EIO", when, file))
        contains(result.err, file.name, "offset", "Input/output error")
        equal(len(result.notes()), 1, f"messages with when={when} in {result.err}")
        assert (TINY_IDS + ",").startswith(result.out), f"ids {result.out} with when={when}"
        if report.exists():  # a read that fails at start leaves nothing to report
            contains(json.loads(report.read_text())["error"], file.name, "offset")
        seen.add(result.out)
        left = [p for d in (logits, routes) for p in d.parent.glob(d.name + "*")]
        equal(left, [], "files left")
    assert len(seen) > 1, "no read failed in the middle of the run"


@check("a run without io_uring says why, once, and gives the same by pread")
def _(bench):
    bench.need_uring()
    for error in ("EPERM", "ENOSYS"):
        prefix = bench.strace("io_uring_setup", error)
        result = same(bench, bench.model("deep25"), prefix=prefix)
        equal(len(result.notes()), 1, f"notes in {result.err}")
        contains(result.notes()[0], "io_uring", error, "pread")
        demanded = bench.run(bench.model("tiny"), *IDS, "--io", "uring", prefix=prefix, code=1)
        contains(demanded.err, "io_uring", error)
        equal(demanded.out, "", "stdout")
        equal(len(demanded.err.splitlines()), 1, "lines")


@check("what io_uring will not register is read without, with a note")
def _(bench):
    bench.need_uring()
    for error, words in (("ENOMEM", "Cannot allocate memory"), ("EINVAL", "Invalid argument"),
                         ("EOPNOTSUPP", "Operation not supported")):
        result = same(bench, bench.model("deep25"), prefix=bench.strace("io_uring_register", error))
        contains("\n".join(result.notes()), "buffers are not registered", words)
        contains(result.err, "plain buffers")


@check("a ring that is interrupted or busy is asked again")
def _(bench):
    bench.need_uring()
    for error, when in (("EAGAIN", "1"), ("EINTR", "3+5"), ("EBUSY", "4+7")):
        result = same(bench, bench.model("deep25"), "--ram", "floor", timeout=20,
                      prefix=bench.strace("io_uring_enter", error, when))
        equal(result.notes(), [], f"notes with {error}")


def direct_calls(bench):
    """Which open of a shard is the direct one, and which read is the first through it."""
    bench.strace("openat", "EINVAL")  # or a skip
    file, log = shard(bench, "deep25", 2), bench.path("strace")
    bench.run(bench.model("deep25"), *IDS, "--gen", 1, "--io", "pread", prefix=[
        "strace", "-f", "-qq", "-o", log, "-e", "trace=openat,pread64", "-P", file])
    n_opens = n_reads = 0
    direct = None
    for line in log.read_text().splitlines():
        if "openat(" in line:
            n_opens += 1
            if "O_DIRECT" in line and direct is None:
                direct = (n_opens, re.search(r"= (\d+)", line)[1])
        elif "pread64(" in line:
            n_reads += 1
            if direct and f"pread64({direct[1]}," in line:
                return file, direct[0], n_reads
    raise Skip("shards are not opened for direct reads here")


@check("a file system that refuses direct reads, at open or at the first read, is read buffered")
def _(bench):
    file, n_open, n_read = direct_calls(bench)
    for call, when in (("openat", n_open), ("pread64", n_read)):
        prefix = bench.strace(call, "EINVAL", when, file)
        result = same(bench, bench.model("deep25"), prefix=prefix)
        equal(len(result.notes()), 1, f"notes in {result.err}")
        contains(result.notes()[0], "direct", file.name, "Invalid argument", "page cache")
        contains(result.err, "buffered")
        demanded = bench.run(bench.model("deep25"), *IDS, "--direct", prefix=prefix, code=1)
        contains(demanded.err, "direct", file.name)
        equal(demanded.out, "", "stdout")


@check("stdout that is closed early ends the run with one message")
def _(bench):
    argv = [bench.sluice, "run", bench.model("deep25"), *IDS, "--gen", "2000"]
    with subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as child:
        child.stdout.read(1)
        child.stdout.close()
        err = child.stderr.read().decode()
        equal(child.wait(timeout=20), 1, "exit code")
    equal(len(err.splitlines()), 1, f"lines in {err!r}")
    contains(err, "Broken pipe")


@check("a full device under the dump ends the run with one message")
def _(bench):
    result = bench.run(bench.model("tiny"), *IDS, "--gen", 9, "--dump-logits", "/dev/full", code=1)
    equal(len(result.notes()), 1, f"messages in {result.err}")
    contains(result.err, "/dev/full", "No space left")
