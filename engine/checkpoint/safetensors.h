// The header of one safetensors file: which tensors it holds and where.
//
// A file is 8 bytes little-endian header length N, N bytes of JSON, then the data section that
// the tensors cover exactly: no byte belongs to two of them or to none.  Only the header is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"
#include "io/fd.h"

namespace engine {

enum class Dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64
};

std::uint64_t dtype_bytes(Dtype dtype);
std::string_view dtype_name(Dtype dtype);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin_bytes = 0;  // from the start of the file, as is the end
  std::uint64_t end_bytes = 0;
};

struct ShardHeader {
  std::vector<TensorEntry> tensors;  // by position in the file
  std::uint64_t file_bytes = 0;
  std::uint64_t n_missing_bytes = 0;  // the file ends that much too early: a download cut short
};

// Reads and checks the header of `file`, which is named `name` in messages.  There is no limit
// on its length but that of the file and the JSON parser's 4 GiB.  A file that is too short for
// its header or its tensors is not an error here: see `n_missing_bytes`, so that a caller can
// list every such file at once; when the header itself is cut there are no tensors.
// Errors: system; corrupt (text instead of data, not JSON, overlap, gap, trailing bytes, shape
// that contradicts the range, duplicate name); unsupported (unknown dtype).
io::Result<ShardHeader> read_shard_header(const io::Fd& file, std::string_view name);

// "[96, 1, 4]", for messages.
std::string describe_shape(const std::vector<std::uint64_t>& shape);

}  // namespace engine
