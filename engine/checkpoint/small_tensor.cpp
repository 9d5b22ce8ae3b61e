#include "engine/checkpoint/small_tensor.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>

namespace engine {
namespace {

std::vector<float> widen(std::span<const std::byte> bytes, bool is_f32) {
  std::vector<float> values(bytes.size() / (is_f32 ? 4 : 2));
  if (is_f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, &bytes[2 * i], sizeof bits);
    values[i] = std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  return values;
}

}  // namespace

io::Result<std::vector<float>> read_small(const Catalogue& catalogue, const io::FileSet& files,
                                          std::string_view name) {
  const auto found = catalogue.small.find(name);
  if (found == catalogue.small.end()) {
    return io::Error{io::Errc::missing, 0, fmt::format("there is no tensor {}", name)};
  }
  const SmallTensor& tensor = found->second;
  std::vector<std::byte> bytes(tensor.range.n_bytes);
  if (io::Status read = io::read_range(files, tensor.range, bytes); !read) {
    return std::move(read.error()).within(name);
  }
  std::vector<float> values = widen(bytes, tensor.is_f32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("{}: {}: value {} is {}",
                                 files.path(tensor.range.file_idx).string(), name, i, values[i])};
  }
  return values;
}

}  // namespace engine
