#!/usr/bin/env python3
"""Reads packed containers by their page alone, and lets the reader meet damaged ones.

    container_reader_test.py SLUICE

Exits with 77 if this Python has no xxhash (Debian's python3-xxhash).
"""
import itertools
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from container_reader import (SHARD, SMALL, U64, Header, Problems, check, check_all, compare,
                                  xxh3)
except ModuleNotFoundError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def with_checksum(data):
    """An index whose last eight bytes are the checksum of the others."""
    return data[:-8] + xxh3(data[:-8]).to_bytes(8, "little")


def build(index, **changes):
    """The bytes of a changed index, its counts, lengths, references and checksum made right."""
    index = index._replace(**changes)
    names = [os.fsencode(name) for name in (index.shard_folder, *index.file_names,
                                            *index.tensor_names)]
    begins = itertools.accumulate(map(len, names), initial=0)
    header, *records = [record._replace(name_offset=begin, name_length=len(name))
                        for record, name, begin in zip((index.header, *index.files, *index.tensors),
                                                       names, begins)]
    body = b"".join(record.LAYOUT.pack(*record) for record in records + index.blocks)
    strings = b"".join(names)
    header = header._replace(
        n_files=len(index.files), n_tensors=len(index.tensors), n_blocks=len(index.blocks),
        string_bytes=len(strings), index_bytes=Header.LAYOUT.size + len(body + strings) + 8)
    return with_checksum(Header.LAYOUT.pack(*header) + body + strings + bytes(8))


def refused_values(record, field, byte):
    """Other values of one byte of a field that a reader must refuse."""
    in_shard = getattr(record, "flags", None) == 0  # then the index cannot prove the offset
    if field == "tile_bytes" or (field == "offset_bytes" and in_shard):
        return set()
    either = {0, 1} if field == "dtype" and record.role == SMALL else set()
    return {0, byte ^ 1, 255} - {byte} - either


def field_damages(index, data):
    """(what, damaged index) for all bytes of the header and the first record of each kind."""
    begin = 0
    for records, kind in (([index.header], "magic"), (index.files, "kind"),
                          (index.tensors, "role"), (index.blocks, "kind")):
        kinds = [getattr(record, kind) for record in records]
        for record in [records[kinds.index(kind)] for kind in sorted(set(kinds))]:
            at = begin + records.index(record) * record.LAYOUT.size
            for field, letter in zip(record._fields, record.LAYOUT.format.split()[1:]):
                for byte_at in range(at, at := at + struct.calcsize(letter)):
                    for value in refused_values(record, field, data[byte_at]):
                        yield (f"{type(record).__name__} {field}, byte {byte_at}: {value}",
                               with_checksum(data[:byte_at] + bytes([value]) + data[byte_at + 1:]))
        begin += len(records) * records[0].LAYOUT.size


def list_damages(index):
    """(what, damaged index): names, records and their order."""
    files, tensors, blocks = index.file_names, index.tensor_names, index.blocks
    for name in ("", ".", "..", "container.idx", "a/b", "a\0b", files[1]):
        yield f"file named {name!r}", build(index, file_names=[name, *files[1:]])
    yield "shard folder", build(index, shard_folder="relative")
    yield "tensor's name", build(index, tensor_names=[*tensors[:-1], "model.norm"])
    yield "tensor missing", build(index, tensors=index.tensors[:-1], tensor_names=tensors[:-1])
    yield "tensor too many", build(index, tensors=index.tensors + index.tensors[-1:],
                                   tensor_names=tensors + ["model.bias"])
    yield "tensors' order", build(index, tensors=index.tensors[1::-1] + index.tensors[2:],
                                  tensor_names=tensors[1::-1] + tensors[2:])
    yield "block missing", build(index, blocks=blocks[:-1])
    yield "block too many", build(index, blocks=blocks + blocks[-1:])
    yield "blocks' order", build(index, blocks=blocks[:-2] + blocks[:-3:-1])
    for change in ({"offset_bytes": U64 - 64}, {"n_bytes": 1 << 31, "n_stored_bytes": 1 << 31}):
        yield f"block with {change}", build(index, blocks=[*blocks[:-1],
                                                           blocks[-1]._replace(**change)])
    yield "shard not allowed or not there", build(
        index, files=[*index.files, index.files[0]._replace(kind=SHARD)],
        file_names=[*files, "other.safetensors"])
    yield "tile_bytes 0", build(index, header=index.header._replace(tile_bytes=0))


def byte_damages(data):
    """(what, damaged index): flipped bits without a right checksum, and lengths."""
    for at in range(0, len(data), len(data) // 200):
        changed = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1:]
        yield f"bit {at % 8} of byte {at} flipped", changed
    for n_bytes in (0, 1, 127, 128, 135, 136, len(data) // 2, len(data) - 8, len(data) - 1):
        yield f"first {n_bytes} bytes", data[:n_bytes]
    for n_bytes in (1, 8, 64):
        yield f"{n_bytes} bytes appended", data + bytes(n_bytes)
        yield f"{n_bytes} bytes appended, checksum right", with_checksum(data + bytes(n_bytes))


def file_damages(index, folder):
    """(what, file's name, its bytes or None) of the files beside the index."""
    for name, file in zip(index.file_names, index.files):
        content = (folder / name).read_bytes() if file.kind != SHARD else b""
        if content:
            yield f"{name} missing", name, None
            yield f"{name} short", name, content[:-1]
            yield f"{name} long", name, content + bytes(index.header.alignment_bytes)
            for at in (0, len(content) - 1):  # in a block, and behind one
                changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1:]
                yield f"{name} with a flipped bit at {at}", name, changed


def meet_damages(folder):
    """Damages one file at a time of a folder of links to the container's files."""
    with tempfile.TemporaryDirectory() as scratch:
        links = {path.name: Path(scratch) / path.name for path in folder.iterdir()}
        for name, link in links.items():
            link.symlink_to((folder / name).resolve())
        index, _, problems = check_all(Path(scratch), None)
        if problems:
            return problems, f"{folder}: wrong before it is damaged"
        data = (folder / "container.idx").read_bytes()
        problems = Problems()
        problems.expect("checksum of the index built again", xxh3(build(index)), xxh3(data))
        damages = [(what, "container.idx", changed) for what, changed in itertools.chain(
            field_damages(index, data), list_damages(index), byte_damages(data))]
        damages += file_damages(index, folder)
        for what, name, changed in damages:
            links[name].unlink()
            if changed is not None:
                links[name].write_bytes(changed)
            if not check_all(Path(scratch), None)[2]:
                problems.append(f"not reported: {what}")
            links[name].unlink(missing_ok=True)
            links[name].symlink_to((folder / name).resolve())
    return problems, f"{folder}: {len(damages)} damages, {len(problems)} problems"


def main():
    """Packs made-up models in several ways; the reader must be content, and equal to the source."""
    sluice, n_failed = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def command(*arguments):
            subprocess.run([sluice, *map(str, arguments)], check=True, stderr=subprocess.DEVNULL)

        def report(problems, summary):
            nonlocal n_failed
            n_failed += bool(problems)
            print(*problems, summary, sep="\n", flush=True)

        for model in ("tiny", "deep25"):
            command("synth", folder / model, "--geometry", model)
            for name, *flags in (("full", "--experts"), ("trunk",), (
                    "cut", "--experts", "--tile-size", "4KiB", "--alignment", "8KiB")):
                packed = folder / f"{model}-{name}"
                command("pack", folder / model, packed, *flags)
                report(*check(packed, None))
                report(*compare(packed, folder / model, None))
        command("synth", folder / "alias", "--geometry", "deep25", "--experts", 64, "--alias",
                "4MB")
        report(*check(folder / "alias", None))
        for name in ("tiny-full", "tiny-trunk", "tiny-cut"):
            report(*meet_damages(folder / name))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
