#include "engine/checkpoint/census.h"

#include <string_view>

namespace engine {
namespace {

std::uint64_t count_parameters(const TensorEntry& tensor) {
  const std::uint64_t n_bytes = tensor.end_bytes - tensor.begin_bytes;
  const std::string_view name = tensor.name;
  if (name.ends_with(".weight_packed")) return 2 * n_bytes;
  if (name.ends_with(".weight_scale")) return 0;
  return n_bytes / dtype_bytes(tensor.dtype);
}

Census::Count& of_kind(Census& census, Kind kind) {
  switch (kind) {
    case Kind::expert:
      return census.experts;
    case Kind::trunk:
      return census.trunk;
    case Kind::lm_head:
      return census.lm_head;
    case Kind::embedding:
      return census.embedding;
    case Kind::small:
      return census.small;
    case Kind::ignored:
      break;
  }
  return census.ignored;
}

Census::Count& of_dtype(Census& census, Dtype dtype) {
  if (dtype == Dtype::u8) return census.u8;
  if (dtype == Dtype::bf16) return census.bf16;
  if (dtype == Dtype::f32) return census.f32;
  return census.other;
}

}  // namespace

void count_tensor(Census& census, Kind kind, const TensorEntry& tensor, std::uint64_t n) {
  const std::uint64_t n_parameters = count_parameters(tensor);
  for (Census::Count* count :
       {&census.total, &of_kind(census, kind), &of_dtype(census, tensor.dtype)}) {
    count->n_tensors += n;
    count->n_bytes += n * (tensor.end_bytes - tensor.begin_bytes);
    count->n_parameters += n * n_parameters;
  }
}

}  // namespace engine
