"""Flags, prompts and contexts that are refused, and with which words."""

from run_harness import check, contains, equal

IDS = ("--ids", "3,4,5")
WRONG = [
    "--ram 0", "--ram -1", "--ram abc", "--ram 5XB", "--ram 99999999999999999999",
    "--ram 99999999TB", "--ram ", "--queue-depth 0", "--queue-depth many", "--request-size 5000",
    "--request-size 0", "--request-size word", "--request-size -4096", "--ring -1", "--isa x",
    "--io telepathy", "--gen -1", "--gen 1.5", "--threads 0", "--prefill-chunk 0", "--context 0",
    "--print poems", "--buffered --direct", "--direct --io mmap", "--nonsense"]


@check("a wrong flag ends with 2 and is named")
def _(bench):
    for flags in WRONG:
        words = flags.split(" ")
        result = bench.run(bench.model("tiny"), *IDS, *words, code=2)
        contains(result.err, words[0])
        equal(result.out, "", f"stdout with {flags}")


@check("no prompt, two prompts, and ids that are none end with 2")
def _(bench):
    tiny = bench.model("tiny")
    contains(bench.run(tiny, "--gen", 1, code=2).err, "--prompt", "--ids")
    contains(bench.run(tiny, *IDS, "--prompt", "a", code=2).err, "--prompt", "--ids")
    for ids in ("3,four,5", "3,-4", "4294967296", "3,,4", "3,", ""):
        contains(bench.run(tiny, "--ids", ids, "--print", "ids", code=2).err, "--ids")
    contains(bench.run(tiny, "--prompt-file", bench.path("none"), code=2).err, "--prompt-file")


@check("a model that is not there ends with 1 and is named")
def _(bench):
    nowhere = bench.path("nowhere")
    result = bench.run(nowhere, *IDS, code=1)
    contains(result.err, str(nowhere))
    equal(len(result.err.splitlines()), 1, "lines")


@check("a budget below the floor is refused with both numbers")
def _(bench):
    result = bench.run(bench.model("tiny"), *IDS, "--print", "ids", "--ram", "1MB", code=1)
    contains(result.err, "1000000")
    numbers = [int(word) for word in result.err.replace(",", " ").split() if word.isdigit()]
    assert any(n > 4_000_000 for n in numbers), f"no floor in {result.err!r}"
    equal(len(result.err.splitlines()), 1, "lines")
    equal(result.out, "", "stdout")


@check("a prompt longer than the context is refused, and generation stops where it is full")
def _(bench):
    tiny = bench.model("tiny")
    ids = [str(i % 60) for i in range(100)]
    flags = ("--print", "ids", "--context", 64, "--gen", 20, "--ignore-stop")
    refused = bench.run(tiny, "--ids", ",".join(ids), *flags, code=1)
    contains(refused.err, "100", "64")
    equal(refused.out, "", "stdout")
    full = bench.run(tiny, "--ids", ",".join(ids[:60]), *flags)
    equal(len(full.out.split(",")), 4, "generated tokens")
    contains(full.err, "context full")
    exact, logits = bench.logits(tiny, "--ids", ",".join(ids[:60]), *flags[2:])
    equal(exact.out, full.out, "ids while logits are dumped")
    equal(len(logits), 64 * 64 * 4, "bytes of logits")


@check("an id beyond the vocabulary is refused with both numbers")
def _(bench):
    result = bench.run(bench.model("tiny"), "--ids", "3,77", "--print", "ids", code=1)
    contains(result.err, "77", "64")
    equal(result.out, "", "stdout")


@check("an empty prompt is refused")
def _(bench):
    empty = bench.path("empty.txt")
    empty.write_bytes(b"")
    for flags in (["--prompt-file", empty], ["--prompt", ""]):
        result = bench.run(bench.model("deep25"), *flags, code=1)
        contains(result.err, "prompt", "empty")
        equal(result.out, "", "stdout")


@check("a prompt file that is not UTF-8 runs with one note")
def _(bench):
    file = bench.path("odd.txt")
    file.write_bytes(b"a\xff\xfe\0b")
    result = bench.run(bench.model("deep25"), "--prompt-file", file, "--gen", 1)
    equal(len(result.notes()), 1, f"notes in {result.err}")
    contains(result.notes()[0], "UTF-8", "2 places", "byte 1")


@check("a vocabulary that is missing is no matter to ids, and named for text")
def _(bench):
    bench.run(bench.model("tiny"), *IDS, "--print", "ids", "--gen", 1)
    result = bench.run(bench.model("tiny"), *IDS, "--gen", 1, code=1)
    contains(result.err, "tiktoken", "--print ids")
