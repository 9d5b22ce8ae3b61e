#include "engine/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

#include "engine/checkpoint/json_object.h"

namespace engine {
namespace {

using simdjson::dom::element;

constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 0xFFFF'FFFF - simdjson::SIMDJSON_PADDING;

struct DtypeInfo {
  std::string_view name;
  std::uint64_t n_bytes;
};

constexpr std::array<DtypeInfo, 16> kDtypes{{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E8M0", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"I64", 8},
                                             {"U64", 8},
                                             {"F64", 8}}};

io::Error corrupt(std::string message) { return {io::Errc::corrupt, 0, std::move(message)}; }

std::optional<Dtype> find_dtype(std::string_view name) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const DtypeInfo& info) { return info.name == name; });
  if (found == kDtypes.end()) return std::nullopt;
  return static_cast<Dtype>(found - kDtypes.begin());
}

// Bytes of a tensor, or nothing if the product does not fit in 64 bits.
std::optional<std::uint64_t> shape_bytes(const std::vector<std::uint64_t>& shape, Dtype dtype) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  std::uint64_t n_bytes = dtype_bytes(dtype);
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(n_bytes, dim, &n_bytes)) return std::nullopt;
  }
  return n_bytes;
}

io::Result<std::vector<std::uint64_t>> read_list(std::string_view key, element value) {
  simdjson::dom::array items;
  if (value.get_array().get(items)) {
    return corrupt(fmt::format("{} is {}, want a list", key, describe_json(value)));
  }
  std::vector<std::uint64_t> numbers;
  for (const element item : items) {
    io::Result<std::uint64_t> number =
        json_integer(key, item, 0, std::numeric_limits<std::uint64_t>::max());
    if (!number) return corrupt(std::move(number.error().message));
    numbers.push_back(*number);
  }
  return numbers;
}

// The range of one tensor against its shape and dtype; offsets still count from the data section.
io::Status check_range(const TensorEntry& tensor) {
  if (tensor.begin_bytes > tensor.end_bytes) {
    return corrupt(fmt::format("data_offsets [{}, {}] end before they begin", tensor.begin_bytes,
                               tensor.end_bytes));
  }
  const std::uint64_t n_range = tensor.end_bytes - tensor.begin_bytes;
  const std::optional<std::uint64_t> n_shape = shape_bytes(tensor.shape, tensor.dtype);
  if (n_shape && *n_shape == n_range) return {};
  return corrupt(fmt::format("shape {} of {} takes {} bytes, data_offsets [{}, {}] span {}",
                             describe_shape(tensor.shape), dtype_name(tensor.dtype),
                             n_shape ? std::to_string(*n_shape) : "more than 2^64",
                             tensor.begin_bytes, tensor.end_bytes, n_range));
}

io::Result<TensorEntry> read_entry(std::string_view name, element value) {
  simdjson::dom::object fields;
  if (value.get_object().get(fields)) {
    return corrupt(fmt::format("is {}, want an object", describe_json(value)));
  }
  if (const auto twice = find_duplicate_key(fields)) {
    return corrupt(fmt::format("the key {} occurs twice", *twice));
  }
  element dtype, shape, offsets;
  if (fields["dtype"].get(dtype)) return corrupt("has no dtype");
  if (fields["shape"].get(shape)) return corrupt("has no shape");
  if (fields["data_offsets"].get(offsets)) return corrupt("has no data_offsets");

  const std::optional<Dtype> known =
      dtype.is_string() ? find_dtype(dtype.get_string().value()) : std::nullopt;
  if (!known) {
    return io::Error{io::Errc::unsupported, 0,
                     fmt::format("dtype is {}, which is not known", describe_json(dtype))};
  }
  io::Result<std::vector<std::uint64_t>> dims = read_list("shape", shape);
  if (!dims) return std::move(dims.error());
  io::Result<std::vector<std::uint64_t>> range = read_list("data_offsets", offsets);
  if (!range) return std::move(range.error());
  if (range->size() != 2) {
    return corrupt(fmt::format("data_offsets has {} numbers, want 2", range->size()));
  }
  TensorEntry tensor{std::string(name), *known, std::move(*dims), (*range)[0], (*range)[1]};
  if (io::Status status = check_range(tensor); !status) return std::move(status.error());
  return tensor;
}

// Every byte of the data section belongs to exactly one tensor; `tensors` is sorted by position.
io::Status check_cover(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin_bytes < covered) {
      return corrupt(fmt::format("tensors {} [{}, {}] and {} [{}, {}] overlap", before->name,
                                 before->begin_bytes, before->end_bytes, tensor.name,
                                 tensor.begin_bytes, tensor.end_bytes));
    }
    if (tensor.begin_bytes > covered) {
      return corrupt(fmt::format("{} bytes at data offset {} before tensor {} belong to no tensor",
                                 tensor.begin_bytes - covered, covered, tensor.name));
    }
    covered = tensor.end_bytes;
    before = &tensor;
  }
  if (covered < data_bytes) {
    return corrupt(
        fmt::format("the tensors end after {} bytes of data, the file holds {}: {} extra", covered,
                    data_bytes, data_bytes - covered));
  }
  return {};
}

io::Status check_metadata(element value) {
  simdjson::dom::object fields;
  if (value.get_object().get(fields)) {
    return corrupt(
        fmt::format("__metadata__ is {}, want an object of strings", describe_json(value)));
  }
  for (const simdjson::dom::key_value_pair field : fields) {
    if (field.value.is_string()) continue;
    return corrupt(fmt::format("__metadata__ key {} is {}, want a string", field.key,
                               describe_json(field.value)));
  }
  return {};
}

io::Status check_duplicates(const std::vector<TensorEntry>& tensors) {
  std::vector<const TensorEntry*> by_name;
  by_name.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) by_name.push_back(&tensor);
  std::sort(by_name.begin(), by_name.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->name < b->name; });
  for (std::size_t i = 1; i < by_name.size(); ++i) {
    if (by_name[i - 1]->name != by_name[i]->name) continue;
    return corrupt(fmt::format("the tensor name {} occurs twice, at data offsets {} and {}",
                               by_name[i]->name, by_name[i - 1]->begin_bytes,
                               by_name[i]->begin_bytes));
  }
  return {};
}

io::Result<std::vector<TensorEntry>> parse_entries(std::string_view json) {
  simdjson::dom::parser parser;
  io::Result<element> root = parse_json(parser, json);
  if (!root) return std::move(root.error());
  simdjson::dom::object fields;
  if (root->get_object().get(fields)) {
    return corrupt(fmt::format("is {}, want an object", describe_json(*root)));
  }
  std::vector<TensorEntry> tensors;
  tensors.reserve(fields.size());
  bool seen_metadata = false;
  for (const simdjson::dom::key_value_pair field : fields) {
    if (field.key == "__metadata__") {
      if (seen_metadata) return corrupt("the key __metadata__ occurs twice");
      seen_metadata = true;
      if (io::Status status = check_metadata(field.value); !status) {
        return std::move(status.error());
      }
      continue;
    }
    io::Result<TensorEntry> tensor = read_entry(field.key, field.value);
    if (!tensor) return std::move(tensor.error()).within(fmt::format("tensor {}", field.key));
    tensors.push_back(std::move(*tensor));
  }
  if (io::Status status = check_duplicates(tensors); !status) return std::move(status.error());
  return tensors;
}

// What a file is whose first bytes are no header length, in words for whoever downloaded it.
io::Error not_safetensors(std::string_view start, std::uint64_t file_bytes) {
  if (start.starts_with("version https://git-lfs")) {
    return corrupt(
        fmt::format("is a Git LFS pointer of {} bytes instead of the data: the "
                    "repository was cloned without git-lfs",
                    file_bytes));
  }
  return corrupt(fmt::format("is text, not safetensors data, beginning with \"{}\"", start));
}

bool is_text(std::string_view start) {
  return start.size() == 1 + kPrefixBytes && std::all_of(start.begin(), start.end(), [](char c) {
           return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t';
         });
}

// The header length, once the first bytes look like one.
io::Result<std::uint64_t> read_header_length(const io::Fd& file, std::uint64_t file_bytes) {
  std::array<char, 32> start{};
  const std::size_t n_start = std::min<std::uint64_t>(start.size(), file_bytes);
  const std::span<char> head(start.data(), n_start);
  if (io::Status status = file.read_exact(0, std::as_writable_bytes(head)); !status) {
    return std::move(status.error());
  }
  const std::string_view text(start.data(), n_start);
  if (text.starts_with("version https://git-lfs") || is_text(text.substr(0, 1 + kPrefixBytes))) {
    return not_safetensors(text, file_bytes);
  }
  std::uint64_t length = 0;
  for (std::size_t i = kPrefixBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(start[i]);
  }
  if (n_start > kPrefixBytes && length > 0 && start[kPrefixBytes] != '{') {
    return corrupt(
        fmt::format("the header, said to be {} bytes long, begins with byte 0x{:02x}, "
                    "want '{{'",
                    length, static_cast<unsigned char>(start[8])));
  }
  return length;
}

}  // namespace

std::uint64_t dtype_bytes(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].n_bytes; }

std::string_view dtype_name(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }

std::string describe_shape(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

io::Result<ShardHeader> read_shard_header(const io::Fd& file, std::string_view name) {
  const auto within = [&](io::Error& error) { return std::move(error).within(name); };
  io::Result<std::uint64_t> size = file.size_bytes();
  if (!size) return within(size.error());
  ShardHeader header{{}, *size, 0};
  if (*size < kPrefixBytes) {
    header.n_missing_bytes = kPrefixBytes - *size;
    return header;
  }
  io::Result<std::uint64_t> length = read_header_length(file, *size);
  if (!length) return within(length.error());
  const std::uint64_t room = *size - kPrefixBytes;
  if (*length > kMaxHeaderBytes) {
    return corrupt(
        fmt::format("{}: the header is said to be {} bytes long, the file has {} and "
                    "the limit is {}",
                    name, *length, *size, kMaxHeaderBytes));
  }
  if (*length > room) {
    header.n_missing_bytes = *length - room;
    return header;
  }

  std::string json(*length, '\0');
  if (io::Status status = file.read_exact(kPrefixBytes, std::as_writable_bytes(std::span(json)));
      !status) {
    return within(status.error());
  }
  io::Result<std::vector<TensorEntry>> tensors = parse_entries(json);
  if (!tensors) return std::move(tensors.error()).within(fmt::format("{}: header", name));
  header.tensors = std::move(*tensors);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::pair(a.begin_bytes, a.end_bytes) < std::pair(b.begin_bytes, b.end_bytes);
            });

  const std::uint64_t data_bytes = room - *length;
  if (io::Status status = check_cover(header.tensors, data_bytes); !status) {
    return within(status.error());
  }
  const std::uint64_t n_needed = header.tensors.empty() ? 0 : header.tensors.back().end_bytes;
  if (n_needed > data_bytes) header.n_missing_bytes = n_needed - data_bytes;
  for (TensorEntry& tensor : header.tensors) {
    // Cannot wrap for a whole file, whose last end is its size; a short one is never read.
    tensor.begin_bytes += kPrefixBytes + *length;
    tensor.end_bytes += kPrefixBytes + *length;
  }
  return header;
}

}  // namespace engine
