#!/usr/bin/env python3
"""A reader of packed containers that shares no code with the program that writes them.

It follows the page `docs/container.md` alone, and so shows that the page suffices. Needs Debian's
python3-xxhash. Exit code 1: something is wrong, with a line for each thing.

    check FOLDER             all that a reader must check, blocks' checksums, zeros between blocks
    compare FOLDER MODEL     all tensors and experts are the safetensors checkpoint's, byte for byte

`--shards DIR` says where the shards are, if they were moved. Offsets and lengths are in bytes; the
names of fields and the numbers of rules are the page's.
"""
import argparse
import itertools
import json
import math
import mmap
import os
import re
import struct
import sys
from collections import namedtuple
from pathlib import Path

from xxhash import xxh3_64_intdigest as xxh3

DATA, SHARD, COPY = range(3)  # kinds of files
SMALL, MATRIX, EMBEDDING, EXPERT = range(4)  # roles of tensors; kinds of blocks (MATRIX: tile)
EXPERTS_IN_DATA, ALIASED = 1, 2  # flags of the header
DTYPES = (("F32", 4), ("BF16", 2))  # by code: name in safetensors, bytes of an element
PREFIX = "language_model."
U32, U64 = 1 << 32, 1 << 64


class Header(namedtuple("Header", "magic version header_bytes index_bytes alignment_bytes "
                        "tile_bytes flags n_files n_tensors n_blocks string_bytes name_offset "
                        "name_length parts expert_bytes reserved")):
    """The header; its name is the shard folder."""
    LAYOUT = struct.Struct("< 8s I I Q I I I I I I Q I I 48s Q Q")
    ALLOWED = {"magic": b"sluiceix", "version": 1, "header_bytes": 128, "flags": range(4),
               "alignment_bytes": tuple(1 << bit for bit in range(9, 21)),
               "tile_bytes": range(1, U32), "reserved": 0}


class FileRecord(namedtuple("FileRecord", "name_offset name_length kind reserved n_bytes "
                            "checksum")):
    """A file that the index names."""
    LAYOUT = struct.Struct("< I I B 7s Q Q")


class TensorRecord(namedtuple("TensorRecord", "name_offset name_length dtype role n_dims reserved "
                              "first_block_idx n_blocks reserved_too dims offset_bytes")):
    """A tensor that is not part of a routed expert."""
    LAYOUT = struct.Struct("< I I B B B B I I I 32s Q")
    ALLOWED = {"dtype": range(2), "role": range(3), "n_dims": range(1, 5), "reserved": 0,
               "n_blocks": range(1, U32), "reserved_too": 0}
    shape = property(lambda self: list(struct.unpack("<4Q", self.dims)[:self.n_dims]))
    n_bytes = property(lambda self: math.prod(self.shape) * DTYPES[self.dtype][1])


class BlockRecord(namedtuple("BlockRecord", "file_idx kind encoding flags offset_bytes "
                             "n_stored_bytes n_bytes checksum owner_idx begin count reserved")):
    """A block: a range of a file."""
    LAYOUT = struct.Struct("< I B B H Q Q Q Q I I I 12s")
    ALLOWED = {"kind": range(4), "encoding": 0, "n_bytes": range(1, (1 << 30) + 1),
               "count": range(1, U32), "reserved": bytes(12)}
    extent = property(lambda self: (self.file_idx, self.offset_bytes,
                                    self.offset_bytes + self.n_stored_bytes, self.checksum))


Index = namedtuple("Index", "header files tensors blocks shard_folder file_names tensor_names")


class Problems(list):
    """Lines that say what is wrong."""

    def expect(self, what, found, allowed):
        """`allowed` is a value, or a range or a tuple of values."""
        several = isinstance(allowed, (range, tuple))
        if not (found in allowed if several else found == allowed):
            self.append(f"{what} is {found!r}, must be {'in ' * several}{allowed!r}")

    def expect_fields(self, what, record, allowed):
        """`allowed` says for each field's name what `expect` is told."""
        for field, values in allowed.items():
            self.expect(f"{what} {field}", getattr(record, field), values)


def read_at(path, offset, n_bytes):
    """A range of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(n_bytes)


def parse_index(path, problems):
    """Rule 1, and rule 2 for the header; the index, or None if it is not whole."""
    n_bytes = path.stat().st_size
    problems.expect("index length", n_bytes, range(Header.LAYOUT.size + 8, U64))
    if problems:
        return None
    header = Header._make(Header.LAYOUT.unpack(read_at(path, 0, Header.LAYOUT.size)))
    tables = ((FileRecord, header.n_files), (TensorRecord, header.n_tensors),
              (BlockRecord, header.n_blocks))
    problems.expect_fields("header", header, Header.ALLOWED | {"index_bytes": n_bytes})
    problems.expect("sum of the index's parts", Header.LAYOUT.size + header.string_bytes + 8
                    + sum(count * record.LAYOUT.size for record, count in tables), n_bytes)
    if problems:
        return None
    data = path.read_bytes()
    problems.expect("index checksum", int.from_bytes(data[-8:], "little"), xxh3(data[:-8]))
    lists, begin = [], Header.LAYOUT.size
    for record, count in tables:
        end = begin + count * record.LAYOUT.size
        lists.append([record._make(row) for row in record.LAYOUT.iter_unpack(data[begin:end])])
        begin = end
    names = read_strings([header, *lists[0], *lists[1]], data[begin:-8], problems)
    tensors_at = 1 + header.n_files
    return Index(header, *lists, names[0], names[1:tensors_at], names[tensors_at:])


def read_strings(records, strings, problems):
    """Rule 3: the records' names, which lie end to end and fill `strings`."""
    end, names = 0, []
    for idx, record in enumerate(records):
        problems.expect(f"string {idx} offset", record.name_offset, end)
        end = record.name_offset + record.name_length
        names.append(os.fsdecode(strings[record.name_offset:end]))
        problems.expect(f"string {idx} zero bytes", names[-1].count("\0"), 0)
    problems.expect("end of the last string", end, len(strings))
    return names


def check_records(index, problems):
    """Rules 2 to 5."""
    aligned = range(0, U64, index.header.alignment_bytes)
    kinds = (DATA, COPY) if index.header.flags & EXPERTS_IN_DATA else (DATA, SHARD, COPY)
    for idx, (file, name) in enumerate(zip(index.files, index.file_names)):
        more = {"n_bytes": aligned, "checksum": 0} if file.kind == DATA else {}
        problems.expect_fields(f"file {idx}", file, {"kind": kinds, "reserved": bytes(7)} | more)
        problems.expect(f"files named {name!r}", index.file_names.count(name), 1)
        if name in ("", ".", "..", "container.idx") or "/" in name:
            problems.append(f"file {idx} name is {name!r}, which is not allowed")
    for idx, tensor in enumerate(index.tensors):
        check_tensor_record(f"tensor {idx}", index, tensor, problems)
    for idx, block in enumerate(index.blocks):
        check_block_record(f"block {idx}", index, block, aligned, problems)
    has_shards = any(file.kind == SHARD for file in index.files)
    problems.expect(f"first byte of the shard folder {index.shard_folder!r}",
                    index.shard_folder[:1], "/" if has_shards else "")
    order = sorted((block.extent, idx) for idx, block in enumerate(index.blocks))
    for (before, before_idx), (extent, idx) in itertools.pairwise(order):
        alias = index.header.flags & ALIASED and before == extent
        if before[0] == extent[0] and not alias:
            problems.expect(f"block {idx} offset_bytes, behind block {before_idx},", extent[1],
                            range(before[2], U64))


def check_tensor_record(what, index, tensor, problems):
    """Rules 2 and 4."""
    problems.expect_fields(what, tensor, TensorRecord.ALLOWED | (
        {"n_blocks": 1} if tensor.role == SMALL else {"dtype": 1, "offset_bytes": 0}))
    beyond = tensor.dims[8 * tensor.n_dims:]
    problems.expect(f"{what} shape beyond n_dims", beyond, bytes(len(beyond)))
    problems.expect(f"{what} last block", tensor.first_block_idx + tensor.n_blocks - 1,
                    range(index.header.n_blocks))


def check_block_record(what, index, block, aligned, problems):
    """Rules 2 and 4."""
    in_shard = block.kind == EXPERT and not index.header.flags & EXPERTS_IN_DATA
    problems.expect_fields(what, block, BlockRecord.ALLOWED | {
        "file_idx": range(len(index.files)), "n_stored_bytes": block.n_bytes} | (
        {"flags": 0, "checksum": 0} if in_shard else {"flags": 1, "offset_bytes": aligned}))
    for file in index.files[block.file_idx:block.file_idx + 1]:
        problems.expect(f"{what} kind of file", file.kind, SHARD if in_shard else DATA)
        problems.expect(f"{what} end", block.extent[2], range(file.n_bytes + 1))


# By role: names, and behind them their shape; `.weight` is added to names that do not end in `=`.
FULL_ATTENTION = {MATRIX: """q_a_proj [q_lora_rank d] kv_a_proj_with_mqa [kv_rope d]
    q_b_proj [q_heads q_lora_rank] kv_b_proj [kv_heads kv_lora_rank] g_proj [v_heads d]
    o_proj [d v_heads]""", SMALL: "q_a_layernorm [q_lora_rank] kv_a_layernorm [kv_lora_rank]"}
LINEAR_ATTENTION = {MATRIX: """q_proj k_proj v_proj [K d] f_a_proj [w d] f_b_proj [K w]
    b_proj [h d] g_proj [K d] o_proj [d K]""", SMALL: """q_conv1d k_conv1d v_conv1d
    [K 1 short_conv_kernel_size] A_log= [h] dt_bias= [K] o_norm [w]"""}
ROUTED_MLP = {MATRIX: """gate [num_experts d] routed_expert_down_proj [l d]
    shared_experts.gate_proj shared_experts.up_proj [S d] shared_experts.down_proj [d S]
    routed_expert_up_proj [d l]""", SMALL: """gate.e_score_correction_bias= [num_experts]
    routed_expert_norm [l]"""}
DENSE_MLP = {MATRIX: "gate_proj up_proj [intermediate_size d] down_proj [d intermediate_size]"}
NORMS = {SMALL: """input_layernorm post_attention_layernorm self_attention_res_norm mlp_res_norm [d]
    self_attention_res_proj mlp_res_proj [1 d]"""}
HEAD = {MATRIX: "lm_head [vocab_size d]", EMBEDDING: "model.embed_tokens [vocab_size d]",
        SMALL: "model.norm model.output_attn_res_norm [d] model.output_attn_res_proj [1 d]"}
Wanted = namedtuple("Wanted", "layer name role shape")


def read_widths(config):
    """All numbers of the text model, by the names of config.json and of the tables above."""
    text = config.get("text_config", config)
    linear, heads, inner = (text[key] for key in ("linear_attn_config", "num_attention_heads",
                                                  "moe_intermediate_size"))
    nope, rope, v_dim = (text[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim",
                                               "v_head_dim"))
    h, w = linear["num_heads"], linear["head_dim"]
    return text | linear | {
        "1": 1, "d": text["hidden_size"], "h": h, "w": w, "K": h * w, "i": inner,
        "S": text["num_shared_experts"] * inner, "l": text["routed_expert_hidden_size"],
        "kv_rope": text["kv_lora_rank"] + rope, "q_heads": heads * (nope + rope),
        "kv_heads": heads * (nope + v_dim), "v_heads": heads * v_dim,
        "kv_head_rows": nope + v_dim}


def is_routed(widths, layer):
    """Whether a layer, counted from 0, has routed experts."""
    return layer >= widths["first_k_dense_replace"] and layer % widths["moe_layer_freq"] == 0


def wanted_tensors(widths):
    """All tensors that the index must hold, in its order."""
    tables = []
    for layer in range(widths["num_hidden_layers"]):
        full, name = layer + 1 in widths["full_attn_layers"], f"model.layers.{layer}."
        tables += [(layer, f"{name}self_attn.", FULL_ATTENTION if full else LINEAR_ATTENTION),
                   (layer, f"{name}block_sparse_moe.", ROUTED_MLP) if is_routed(widths, layer)
                   else (layer, f"{name}mlp.", DENSE_MLP), (layer, name, NORMS)]
    wanted = []
    for layer, prefix, table in [*tables, (widths["num_hidden_layers"], "", HEAD)]:
        for role, text in table.items():
            for names, shape in re.findall(r"([^\[\]]+)\[(.+?)\]", text):
                shape = [widths[width] for width in shape.split()]
                wanted += [Wanted(layer, prefix + (name + ".weight").replace("=.weight", ""), role,
                                  shape) for name in names.split()]
    return wanted


def expert_parts(header, widths):
    """The six parts of an expert: offset, name in the checkpoint, [rows, bytes of a row]."""
    shapes = {"w1": (widths["i"], widths["l"]), "w2": (widths["l"], widths["i"]),
              "w3": (widths["i"], widths["l"])}
    parts = [(f"{name}.weight_{kind}", [rows, columns // per_byte])
             for name, (rows, columns) in shapes.items()
             for kind, per_byte in (("packed", 2), ("scale", 32))]
    return [(at, *part) for at, part in zip(struct.unpack("<6Q", header.parts), parts)]


def name_prefix(index):
    """What this container's tensors have before their names."""
    return PREFIX if index.tensor_names[0].startswith(PREFIX) else ""


def check_model(index, widths, wanted, problems):
    """Rules 6 to 9."""
    check_tensors(index, wanted, problems)
    if problems:
        return
    blocks = wanted_blocks(index, widths, wanted, problems)
    problems.expect("n_blocks", len(index.blocks), len(blocks))
    fields = ("kind", "owner_idx", "begin", "count", "n_bytes")
    for idx, (block, values) in enumerate(zip(index.blocks, blocks)):
        problems.expect_fields(f"block {idx}", block, dict(zip(fields, values)))
    end = 0
    for offset, name, shape in sorted(expert_parts(index.header, widths)):
        problems.expect(f"offset of part {name}", offset, end)
        end += math.prod(shape)
    problems.expect("expert_bytes", index.header.expert_bytes, end)


def check_tensors(index, wanted, problems):
    """Rule 6, but for the dtype, which rule 2 knows."""
    problems.expect("n_tensors", len(index.tensors), len(wanted))
    for idx, (tensor, want) in enumerate(zip(index.tensors, wanted)):
        name, shape = name_prefix(index) + want.name, want.shape
        problems.expect(f"tensor {idx} name", index.tensor_names[idx], name)
        if name.endswith(".A_log") and tensor.n_dims == 1:
            shape = [min(max(tensor.shape[0], shape[0]), 1 << 20)]  # h or more
        problems.expect_fields(f"tensor {idx}", tensor, {"role": want.role, "shape": shape})


def wanted_blocks(index, widths, wanted, problems):
    """Rules 7 and 8: the five fields that check_model knows of all blocks, in order."""
    layers = range(widths["num_hidden_layers"])
    blocks = [wanted_small_block(index, wanted, layer, problems)
              for layer in range(len(layers) + 1)]
    for role, (idx, tensor) in itertools.product((MATRIX, EMBEDDING), enumerate(index.tensors)):
        if tensor.role == role:
            problems.expect(f"tensor {idx} first_block_idx", tensor.first_block_idx, len(blocks))
            blocks += wanted_row_blocks(index, widths, idx, tensor, problems)
    return blocks + [(EXPERT, layer, expert, 1, index.header.expert_bytes) for layer in layers
                     if is_routed(widths, layer) for expert in range(widths["num_experts"])]


def wanted_small_block(index, wanted, layer, problems):
    """The small block of a layer or the head; its tensors lie in it, none in another."""
    members = [idx for idx, want in enumerate(wanted) if want[:3:2] == (layer, SMALL)]
    end = padded_end = 0
    for idx in sorted(members, key=lambda idx: index.tensors[idx].offset_bytes):
        tensor = index.tensors[idx]
        problems.expect_fields(f"tensor {idx}", tensor, {
            "first_block_idx": layer, "offset_bytes": range(padded_end, U64, 64)})
        end = tensor.offset_bytes + tensor.n_bytes
        padded_end = -(-end // 64) * 64
    return SMALL, layer, members[0], len(members), (end, padded_end)


def wanted_row_blocks(index, widths, tensor_idx, tensor, problems):
    """The blocks of a matrix or the embedding, whose numbers of rows the index may choose."""
    (n_rows, n_columns), row, wanted = tensor.shape, 0, []
    blocks = index.blocks[tensor.first_block_idx:][:tensor.n_blocks]
    for idx, count in enumerate([block.count for block in blocks], tensor.first_block_idx):
        wanted.append((tensor.role, tensor_idx, row, count, 2 * n_columns * count))
        row += count
        if tensor.role == EMBEDDING:
            fewest = 1 if row == n_rows else blocks[0].count
            problems.expect(f"block {idx} count", count, range(fewest, blocks[0].count + 1))
        if index.tensor_names[tensor_idx].endswith(".kv_b_proj.weight"):
            problems.expect(f"block {idx} count", count, range(0, U32, widths["kv_head_rows"]))
    problems.expect(f"tensor {tensor_idx} rows in blocks", row, n_rows)
    return wanted


def check_file(path, file, blocks, problems):
    """The length of a file, and its checksum, or those of its header or of its blocks."""
    n_bytes = path.stat().st_size if os.path.isfile(path) else "missing"
    problems.expect(f"{path.name!r} length", n_bytes, file.n_bytes)
    if n_bytes != file.n_bytes:
        return
    with path.open("rb") as data:
        view = mmap.mmap(data.fileno(), 0, access=mmap.ACCESS_READ) if n_bytes else b""
        if file.kind == DATA:
            check_data(path.name, data, view, blocks, problems)
            return
        header_end = 8 + int.from_bytes(view[:8], "little")
        checked_bytes = header_end if file.kind == SHARD else n_bytes
        problems.expect(f"{path.name!r} end of header", checked_bytes, range(n_bytes + 1))
        problems.expect(f"{path.name!r} checksum", xxh3(view[:checked_bytes]), file.checksum)


def check_data(name, data, view, blocks, problems):
    """A data file's blocks have their checksums and no holes; the bytes between them are zeros."""
    gap_begin, extents = 0, sorted({block.extent for block in blocks})
    for _, begin, end, checksum in extents + [(None, len(view), 0, None)]:
        zeros = view[gap_begin:begin].count(0)
        problems.expect(f"{name!r} zeros from {gap_begin} on", zeros, begin - gap_begin)
        if begin < end:
            hole = os.lseek(data.fileno(), begin, os.SEEK_HOLE)
            problems.expect(f"{name!r} hole behind {begin}", hole, range(end, U64))
            problems.expect(f"{name!r} checksum of the block at {begin}", xxh3(view[begin:end]),
                            checksum)
        gap_begin = end


def file_path(folder, shards, index, file_idx):
    """Where a file lies: shards in `shards`, or else where the index says."""
    is_shard = index.files[file_idx].kind == SHARD
    return (Path(shards or index.shard_folder) if is_shard else folder) / index.file_names[file_idx]


def check_all(folder, shards):
    """The index, the numbers of config.json (None where unreadable), and what is wrong."""
    problems, widths = Problems(), None
    if not os.path.isfile(folder / "container.idx"):
        return None, None, [f"{folder} is no container: it has no container.idx"]
    index = parse_index(folder / "container.idx", problems)
    if not problems:
        check_records(index, problems)
    if problems:
        return index, None, problems
    copies = [name for name, file in zip(index.file_names, index.files) if file.kind == COPY]
    problems.expect("the copies", "config.json", tuple(copies))
    try:
        widths = read_widths(json.loads((folder / "config.json").read_bytes()))
        wanted = wanted_tensors(widths)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        problems.append(f"config.json cannot be used: {error!r}")
    else:
        check_model(index, widths, wanted, problems)
    for idx, file in enumerate(index.files):
        blocks = [block for block in index.blocks if block.file_idx == idx]
        check_file(file_path(folder, shards, index, idx), file, blocks, problems)
    return index, widths, problems


def check(folder, shards):
    """The command: what is wrong, and a summary."""
    index, _, problems = check_all(folder, shards)
    counts = [f"{len(records)} {what}" for records, what in
              zip(index[1:4] if index else (), ("files", "tensors", "blocks"))]
    return problems, ", ".join([f"{folder}: {len(problems)} problems", *counts])


def pieces(index, widths):
    """(name, dtype, shape, begin in the tensor, length, block, begin in the block) of all."""
    for name, tensor in zip(index.tensor_names, index.tensors):
        what = (name, DTYPES[tensor.dtype][0], tensor.shape)
        for block in index.blocks[tensor.first_block_idx:][:tensor.n_blocks]:
            if tensor.role == SMALL:
                yield *what, 0, tensor.n_bytes, block, tensor.offset_bytes
            else:
                yield *what, 2 * tensor.shape[1] * block.begin, block.n_bytes, block, 0
    for block in (block for block in index.blocks if block.kind == EXPERT):
        layer = f"{name_prefix(index)}model.layers.{block.owner_idx}."
        for offset, part, shape in expert_parts(index.header, widths):
            name = f"{layer}block_sparse_moe.experts.{block.begin}.{part}"
            yield name, "U8", shape, 0, math.prod(shape), block, offset


def read_checkpoint(folder, prefix):
    """(dtype, shape, file, offset in the file) of each tensor whose name begins with `prefix`."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        n_bytes = int.from_bytes(read_at(path, 0, 8), "little")
        for name, tensor in json.loads(read_at(path, 8, n_bytes)).items():
            if name.startswith(prefix) and name != "__metadata__":
                begin = 8 + n_bytes + tensor["data_offsets"][0]
                tensors[name] = (tensor["dtype"], tensor["shape"], path, begin)
    return tensors


def compare(folder, model_folder, shards):
    """The command; of the checkpoint, only names with the container's prefix count."""
    index, widths, problems = check_all(folder, shards)
    if problems:
        return problems, f"{folder}: not compared"
    checkpoint, seen = read_checkpoint(model_folder, name_prefix(index)), set()
    different = {}
    for name, dtype, shape, begin, n_bytes, block, at in pieces(index, widths):
        seen.add(name)
        if name not in checkpoint:
            different[name] = "is not in the checkpoint"
            continue
        *theirs, path, offset = checkpoint[name]
        container_path = file_path(folder, shards, index, block.file_idx)
        if [dtype, shape] != theirs:
            different[name] = f"is {[dtype, shape]}, must be {theirs}"
        elif (read_at(container_path, block.offset_bytes + at, n_bytes)
              != read_at(path, offset + begin, n_bytes)):
            different[name] = f"differs in the {n_bytes} bytes from {begin} on"
    different |= {name: "is not in the container" for name in checkpoint.keys() - seen}
    return ([f"{name} {what}" for name, what in sorted(different.items())],
            f"{folder}: {len(seen - different.keys())} tensors equal, {len(different)} not")


def main():
    """Runs a command; prints what is wrong, then the summary."""
    commands = {"check": check, "compare": compare}
    parser = argparse.ArgumentParser(description="Reads packed containers.")
    parser.add_argument("command", choices=commands)
    parser.add_argument("paths", nargs="+", type=Path, help="see the top of the script")
    parser.add_argument("--shards", type=Path, help="where the shards are, if they were moved")
    args = parser.parse_args()
    if len(args.paths) != (2 if args.command == "compare" else 1):
        parser.error(f"{args.command} does not take {len(args.paths)} paths")
    problems, summary = commands[args.command](*args.paths, args.shards)
    print(*problems, summary, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
