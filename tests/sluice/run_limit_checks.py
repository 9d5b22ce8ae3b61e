"""Memory, descriptors, signals and file systems: the bounds of the machine and of the user."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from run_harness import Loop, Skip, check, contains, equal
from run_output_checks import BASE, expected, same

LONG = ("--ids", "3,4,5,6,7", "--gen", 4000, "--ignore-stop", "--print", "ids")
O_DIRECT = 0o40000


def until_tokens(bench, child, n_bytes=20):
    """Waits until the child has printed some."""
    out = bench.folder / f"{bench.n_files - 1}-out"
    deadline = time.monotonic() + 20
    while out.stat().st_size < n_bytes and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


@check("the process stays within --ram, from the floor up, and so does its plan")
def _(bench):
    bench.need_plain_memory()
    model = bench.model("deep25")
    for flags in (BASE, (*BASE, "--prefill-chunk", 3, "--io", "pread", "--queue-depth", 64),
                  ("--ids", "3,4,5", "--gen", 300, "--ignore-stop")):
        _, report = bench.report(model, *flags, "--ram", "floor")
        floor = report["memory"]["floor_bytes"]
        # What is planned for the process itself differs by some pages from run to run.
        for budget in (floor + (512 << 10), floor + (2 << 20), 2 * floor, 64_000_000):
            result, report = bench.report(model, *flags, "--ram", budget, watch_memory=True)
            memory = report["memory"]
            assert memory["planned_bytes"] <= budget, f"{memory} over {budget}"
            peak = max(result.peak_rss_bytes, memory["peak_rss_bytes"])
            assert result.peak_rss_bytes > 0 and peak <= 1.02 * budget, f"{peak} over {budget}"


@check("what a run says it asked for is what the kernel read, within 1 %")
def _(bench):
    model = bench.model("deep25")
    # Between two lengths, so that what is read at start is in neither.
    ends = []
    for n in (5, 60):
        result, report = bench.report(model, "--ids", "3,4,5", "--gen", n, "--ignore-stop", "--ram",
                                      "floor")
        ends.append((report["bytes"]["total"]["asked"], 512 * result.rusage.ru_inblock))
    if not report["path"]["direct"] or "memory" in report["path"]["filesystem"]:
        raise Skip(f"no direct reads from {report['path']['filesystem']}")
    if ends[1][1] == 0:
        raise Skip("this kernel does not count what a process reads")
    asked, counted = (ends[1][i] - ends[0][i] for i in (0, 1))
    assert abs(asked - counted) <= 0.01 * asked, f"asked {asked}, the kernel counts {counted}"


@check("direct means direct: the descriptors of the shards have the flag during a run")
def _(bench):
    flags = []

    def look(child):
        until_tokens(bench, child)
        for fd in Path(f"/proc/{child.pid}/fd").iterdir():
            if os.readlink(fd).endswith(".safetensors"):
                info = Path(f"/proc/{child.pid}/fdinfo/{fd.name}").read_text()
                flags.append(int(info.split("flags:")[1].split()[0], 8))
        child.send_signal(signal.SIGINT)

    file = bench.path("json")
    bench.run(bench.model("deep25"), *LONG, "--json", file, during=look, code=130)
    direct = json.loads(file.read_text())["path"]["direct"]
    equal(len(flags), 26, "shards open")
    equal({bool(f & O_DIRECT) for f in flags}, {direct}, "O_DIRECT")


@check("an interrupt ends a run within a second, with the summary and no half-written dump")
def _(bench):
    for ram in ("floor", "2GB"):
        dump, sent = bench.path("logits"), []

        def interrupt(child):
            until_tokens(bench, child)
            sent.append(time.monotonic())
            child.send_signal(signal.SIGINT)

        result = bench.run(bench.model("deep25"), *LONG, "--ram", ram, "--dump-logits", dump,
                           during=interrupt, code=130)
        took = time.monotonic() - sent[0]
        assert took < 1, f"took {took:.2f} s with --ram {ram}"
        contains(result.err, "interrupted", "generated, stop:", "peak RSS")
        equal(list(dump.parent.glob(dump.name + "*")), [], "files left")


@check("a killed run leaves nothing under a final name")
def _(bench):
    names = [bench.path(name) for name in ("logits", "routes", "json")]

    def kill(child):
        until_tokens(bench, child)
        child.kill()

    bench.run(bench.model("deep25"), *LONG, "--dump-logits", names[0], "--dump-routes", names[1],
              "--json", names[2], during=kill, code=-9)
    equal([name.name for name in names if name.exists()], [], "files")


def limited(limits, prefix=()):
    return [*prefix, "bash", "-c", f'{limits} && exec "$@"', "bash"]


@check("an ordinary user whose locked memory is limited reads into plain memory, with a note")
def _(bench):
    bench.need("bash")
    bench.need_uring()
    anyone = bench.path("anyone")
    anyone.mkdir()
    anyone.chmod(0o777)
    dump = anyone / "logits"
    result = bench.run(bench.model("deep25"), *BASE, "--print", "ids", "--dump-logits", dump,
                       prefix=limited("ulimit -l 64", bench.as_nobody()))
    assert dump.read_bytes() == expected(bench)[1], "logits differ"
    equal(len(result.notes()), 1, f"notes in {result.err}")
    contains(result.notes()[0], "buffers are not registered", "65536", "they need")


@check("more shards than the soft limit of descriptors run, and a hard limit is named")
def _(bench):
    bench.need("bash")
    model = bench.model("deep70", "--geometry", "tiny", "--layers", "70")
    flags = ("--ids", "3,4,5", "--gen", 2, "--print", "ids")
    plain = bench.run(model, *flags)
    soft = bench.run(model, *flags, prefix=limited("ulimit -S -n 64"))
    equal((soft.out, soft.notes()), (plain.out, []), "ids and notes")
    hard = bench.run(model, *flags, prefix=limited("ulimit -n 64"), code=1)
    contains(hard.err, "64")
    equal(len(hard.err.splitlines()), 1, "lines")


@check("address space that is limited is refused at start or makes no difference")
def _(bench):
    bench.need_plain_memory()
    bench.need("bash")
    flags = (*BASE, "--print", "ids")
    result = bench.command([*limited("ulimit -v 40000"), bench.sluice, "run",
                            bench.model("deep25"), *flags])
    if result.code == 0:
        return
    equal(result.code, 1, f"exit code, {result.err}")
    equal(len(result.err.splitlines()), 1, f"lines in {result.err!r}")
    equal(result.out, "", "stdout")


@check("a disk with blocks of 4096 bytes is read directly")
def _(bench):
    with Loop(bench) as folder:
        model = folder / "deep25"
        shutil.copytree(bench.model("deep25"), model)
        os.sync()
        result = same(bench, model, "--direct")
        equal(result.notes(), [], "notes")
        _, report = bench.report(model, *BASE)
        path = report["path"]
        equal((path["direct"], path["alignment_bytes"], path["filesystem"]), (True, 4096, "ext4"),
              "path taken")


@check("a model in memory runs, and its file system is said to be memory")
def _(bench):
    if not os.access("/dev/shm", os.W_OK):
        raise Skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sluice-run-") as folder:
        model = Path(folder) / "deep25"
        shutil.copytree(bench.model("deep25"), model)
        same(bench, model)
        _, report = bench.report(model, *BASE)
        contains(report["path"]["filesystem"], "memory")


@check("a shard that shrinks during the run ends it: named, no crash")
def _(bench):
    for io in ("auto", "pread", "mmap"):
        model = bench.path("shrinking")
        shutil.copytree(bench.model("deep25"), model)
        file = sorted(model.glob("*.safetensors"))[4]

        def shrink(child, file=file):
            until_tokens(bench, child)
            os.truncate(file, 8192)

        result = bench.run(model, *LONG, "--ram", "floor", "--io", io, during=shrink, code=1)
        contains(result.err, file.name, "offset")
        assert "Success" not in result.err, result.err
