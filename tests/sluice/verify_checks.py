"""What `sluice verify` says, where, and with which exit code."""

import json
import os
import shutil
import signal
import subprocess
import time

from run_harness import Skip, check, contains, equal

SCOPE = "structure, sizes and extents are as they should be"


def verify(bench, model, *flags, code=0, prefix=(), **more):
    result = bench.command([*prefix, bench.sluice, "verify", model, *flags], **more)
    equal(result.code, code, f"exit code of {flags}: {result.out}{result.err}")
    return result


def report(bench, model, *flags, code=0, **more):
    """The parsed --json of a verification."""
    return json.loads(verify(bench, model, *flags, "--json", "-", code=code, **more).out)


def shard(model, number):
    return sorted(model.glob("*.safetensors"))[number - 1]


def cut(file, n_bytes):
    os.truncate(file, file.stat().st_size - n_bytes)


def flip_last(file):
    with open(file, "r+b") as data:
        data.seek(-1, os.SEEK_END)
        byte = data.read(1)[0]
        data.seek(-1, os.SEEK_END)
        data.write(bytes([byte ^ 1]))


def copy(bench, name="tiny"):
    """A copy of a model, to be damaged."""
    folder = bench.path(name)
    shutil.copytree(bench.model(name), folder)
    return folder


def recorded(bench, model):
    sums = bench.path("sums")
    verify(bench, model, "--record", sums)
    return sums


@check("a whole model: exit 0, the report on stdout, and no claim about bytes that were not read")
def _(bench):
    result = verify(bench, bench.model("tiny"))
    equal(result.err, "", "stderr")
    last = result.out.splitlines()[-1]
    contains(last, "whole: ", SCOPE, "the weights' bytes were not compared", "--record", "--check")
    for word in ("verified", " ok"):
        assert word not in result.out.lower(), f"{word} in {result.out}"


@check("the JSON has the report, on stdout alone or in a file beside the text")
def _(bench):
    tiny, file = bench.model("tiny"), bench.path("json")
    alone = report(bench, tiny)
    text = verify(bench, tiny, "--json", file).out
    contains(text, SCOPE)
    for found in (alone, json.loads(file.read_text())):
        equal(list(found), ["sluice_version", "model", "format", "whole", "interrupted", "scope",
                            "bad", "notes", "checked", "read_bytes", "seconds"], "keys")
        equal((found["model"], found["format"]), (str(tiny), "safetensors"), "model")
        equal((found["whole"], found["bad"], found["checked"]), (True, [], 7), "result")
        assert found["read_bytes"] > 0 and found["seconds"] > 0, found


@check("two short shards, one hole and a flipped byte are all named, and the exit code is 1")
def _(bench):
    model = copy(bench)
    sums = recorded(bench, model)
    names = [shard(model, number).name for number in range(1, 8)]
    cut(shard(model, 2), 4096)
    cut(shard(model, 6), 1)
    flip_last(shard(model, 5))
    size = shard(model, 3).stat().st_size
    os.truncate(shard(model, 3), size - 8192)
    os.truncate(shard(model, 3), size)
    result = verify(bench, model, "--check", sums, code=1)
    equal(result.err, "", "stderr")
    contains(result.out, f"{names[1]}: too short", "lacks 4096", f"{names[5]}: too short",
             f"{names[4]}: its bytes differ", f"{names[2]}: its bytes differ", "\nbad: ")
    assert SCOPE not in result.out, result.out
    found = report(bench, model, "--check", sums, code=1)
    equal(found["whole"], False, "whole")
    for number in (2, 3, 5, 6):
        assert any(names[number - 1] in bad for bad in found["bad"]), f"{number} in {found}"
    for number in (1, 4, 7):
        assert not any(names[number - 1] in bad for bad in found["bad"]), f"{number} in {found}"
    if shard(model, 3).stat().st_blocks * 512 >= size:
        raise Skip("this filesystem knows no holes")
    contains(result.out, f"to {size} were never written (a hole)")


@check("a range that was preallocated and never written is named, unless zeros are allowed")
def _(bench):
    bench.need("fallocate")
    model = copy(bench)
    for flags in (["-p"], ["-n"]):  # punched out, then allocated again
        if subprocess.run(["fallocate", *flags, "-o", "32768", "-l", "8192", shard(model, 4)],
                          capture_output=True).returncode:
            raise Skip("this filesystem cannot preallocate")
    result = verify(bench, model, code=1)
    contains(result.out, f"{shard(model, 4).name}: bytes 32768 to 40960 were preallocated",
             "unwritten extent", "in tensor ")
    contains(verify(bench, model, "--allow-holes").out, "holes and unwritten extents were allowed")


@check("what --record writes xxh128sum checks, and what xxh128sum writes --check reads")
def _(bench):
    bench.need("xxh128sum")
    model = copy(bench, "deep25")
    sums = recorded(bench, model)
    done = subprocess.run(["xxh128sum", "-c", sums], cwd=model, capture_output=True, text=True)
    equal(done.returncode, 0, done.stdout + done.stderr)
    equal(done.stdout.count(": OK"), len(list(model.iterdir())), "files")
    names = sorted(file.name for file in model.iterdir())
    theirs = subprocess.run(["xxh128sum", *names], cwd=model, capture_output=True).stdout
    equal(sums.read_bytes(), theirs, "the file")
    flip_last(shard(model, 9))
    contains(verify(bench, model, "--check", sums, code=1).out, shard(model, 9).name)
    equal(subprocess.run(["xxh128sum", "-c", sums], cwd=model, capture_output=True).returncode, 1,
          "xxh128sum's exit code")


@check("a record never replaces a file, and is refused before anything is read")
def _(bench):
    sums = bench.path("sums")
    sums.write_text("mine")
    result = verify(bench, bench.model("tiny"), "--record", sums, code=1)
    equal(result.out, "", "stdout")
    contains(result.err, "exists already")
    equal(sums.read_text(), "mine", "the file")
    equal(list(sums.parent.glob(sums.name + "?*")), [], "files left")


@check("a report never takes the place of the checksums, under whatever name")
def _(bench):
    tiny = bench.model("tiny")
    sums = recorded(bench, tiny)
    was, link = sums.read_bytes(), bench.path("link")
    link.symlink_to(sums)
    for name in (sums, link):
        contains(verify(bench, tiny, "--check", sums, "--json", name, code=1).err, str(sums))
    equal(sums.read_bytes(), was, "the checksums")
    fresh = bench.path("fresh")
    verify(bench, tiny, "--record", fresh, "--json", fresh, code=1)
    equal(list(fresh.parent.glob(fresh.name + "*")), [], "files left")


@check("a damaged checksum file is refused with the number of its line")
def _(bench):
    sums = recorded(bench, bench.model("tiny"))
    lines = sums.read_text().splitlines(keepends=True)
    for damaged in (lines[2][1:], lines[2].replace("  ", " "), lines[0]):
        sums.write_text("".join([*lines[:2], damaged, *lines[3:]]))
        result = verify(bench, bench.model("tiny"), "--check", sums, code=1)
        equal((result.out, len(result.err.splitlines())), ("", 1), "streams")
        contains(result.err, f"{sums}: line 3: ")


@check("wrong flags: exit 2 and nothing on stdout")
def _(bench):
    tiny = bench.model("tiny")
    for flags in (["--jobs", "0"], ["--jobs", "257"], ["--jobs", "x"], ["--no-such-flag"],
                  ["--record", "a", "--check", "b"]):
        equal(verify(bench, tiny, *flags, code=2).out, "", f"stdout of {flags}")
    equal(bench.command([bench.sluice, "verify"]).code, 2, "exit code without a model")


@check("a model that is not there: exit 1, one message, nothing on stdout")
def _(bench):
    result = verify(bench, bench.path("absent"), code=1)
    equal((result.out, len(result.err.splitlines())), ("", 1), "streams")
    contains(result.err, "absent", "No such file")


@check("shards that a user may not read are named, and the others compared")
def _(bench):
    prefix = bench.as_nobody()
    model = copy(bench)
    sums = recorded(bench, model)
    for number in (2, 5):
        shard(model, number).chmod(0)
    flip_last(shard(model, 7))
    found = report(bench, model, "--check", sums, code=1, prefix=prefix)
    for number in (2, 5):
        text = f"{shard(model, number).name}: Permission denied"
        assert any(text in bad for bad in found["bad"]), f"{text} in {found}"
    assert any(shard(model, 7).name in bad for bad in found["bad"]), found


@check("a shard that cannot be read is named with its offset, and the others are compared")
def _(bench):
    model = copy(bench)
    sums = recorded(bench, model)
    broken = shard(model, 3)
    flip_last(shard(model, 6))
    for when in ("1+", "3+"):  # at its header; behind what the structure takes
        found = report(bench, model, "--check", sums, code=1,
                       prefix=bench.strace("pread64", "EIO", when, broken))
        named = [bad for bad in found["bad"] if broken.name in bad]
        assert any("offset" in bad and "Input/output error" in bad for bad in named), found
        assert any(shard(model, 6).name + ": its bytes differ" in bad for bad in found["bad"]), found
        assert not any(shard(model, 2).name in bad for bad in found["bad"]), found


@check("any number of reads in flight gives the same checksums, by no more threads than that and two")
def _(bench):
    model = bench.model("deep25")
    want = recorded(bench, model).read_bytes()
    for jobs in (1, 3, 64):
        sums = bench.path("sums")
        log = bench.path("strace")
        bench.strace("pread64", "EIO")  # or a skip
        verify(bench, model, "--record", sums, "--jobs", jobs, prefix=[
            "strace", "-f", "-qq", "-o", log, "-e", "trace=clone,clone3"])
        equal(sums.read_bytes(), want, f"checksums with --jobs {jobs}")
        n_threads = sum("CLONE_THREAD" in line and "resumed" not in line
                        for line in log.read_text().splitlines())
        assert 0 < n_threads <= jobs + 2, f"{n_threads} threads with --jobs {jobs}"


@check("a file that is only hashed and cannot be read is named, and nothing is recorded")
def _(bench):
    model = copy(bench)
    sums, record = recorded(bench, model), bench.path("record")
    file = model / "generation_config.json"
    prefix = bench.strace("pread64", "EIO", "1+", file)
    found = report(bench, model, "--check", sums, code=1, prefix=prefix)
    equal(len(found["bad"]), 1, f"findings in {found}")
    contains(found["bad"][0], str(file), "offset 0", "Input/output error")
    result = verify(bench, model, "--record", record, code=1, prefix=prefix)
    contains(result.out, f"{record} was not written")
    equal(list(record.parent.glob(record.name + "*")), [], "files left")


@check("where direct reads are refused the page cache is read, and the report says so")
def _(bench):
    model = copy(bench)
    sums = recorded(bench, model)
    file = model / "generation_config.json"
    found = report(bench, model, "--check", sums,
                   prefix=bench.strace("openat", "EINVAL", "1", file))
    equal(found["whole"], True, "whole")
    notes = [note for note in found["notes"] if "direct reads are refused" in note]
    equal(len(notes), 1, f"notes in {found}")
    contains(notes[0], file.name, "page cache", "1 of 10 files")


def big_model(bench):
    """A model with one shard so large that reading it takes a while."""
    if "big" not in bench.models:
        folder = bench.folder / "big"
        folder.mkdir()
        shutil.copy(bench.model("tiny") / "config.json", folder)
        with open(folder / "model.safetensors", "wb") as file:
            header = json.dumps({"x": {"dtype": "U8", "shape": [1 << 36],
                                       "data_offsets": [0, 1 << 36]}}).encode()
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + (1 << 36))
        bench.models["big"] = folder
    return bench.models["big"]


@check("Ctrl-C ends it within a second: exit 130, what was found so far, nothing recorded")
def _(bench):
    model, sums = big_model(bench), bench.path("sums")
    sums.write_text("0" * 32 + "  model.safetensors\n")
    start = []

    def interrupt(child):
        time.sleep(0.5)
        start.append(time.monotonic())
        child.send_signal(signal.SIGINT)

    out = bench.path("json")
    result = verify(bench, model, "--check", sums, "--allow-holes", "--json", out, code=130,
                    during=interrupt)
    seconds = time.monotonic() - start[0]
    assert seconds < 1, f"{seconds} s"
    contains(result.out, "interrupted")
    assert SCOPE not in result.out, result.out
    found = json.loads(out.read_text())
    equal((found["whole"], found["interrupted"]), (False, True), "result")
