#include "engine/checkpoint/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/checkpoint/coverage.h"

namespace engine {
namespace {

// Takes "12." off the front of `text`.  Numbers are written without leading zeros.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto n = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || n == text.size() || *end != '.') return std::nullopt;
  if (n > 1 && text.front() == '0') return std::nullopt;
  text.remove_prefix(n + 1);
  return number;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool shape_fits(const TensorSpec& spec, const std::vector<std::uint64_t>& shape) {
  if (!spec.may_be_longer) return shape == spec.shape;
  return shape.size() == 1 && shape[0] >= spec.shape[0];
}

io::Error wrong_dtype(const TensorEntry& tensor, std::string_view want) {
  return {io::Errc::unsupported, 0,
          fmt::format("tensor {} is {}, want {}", tensor.name, dtype_name(tensor.dtype), want)};
}

io::Error wrong_shape(const TensorEntry& tensor, const std::vector<std::uint64_t>& want,
                      std::string_view or_longer = "") {
  return {io::Errc::invalid, 0,
          fmt::format("tensor {} has shape {}, the config wants {}{}", tensor.name,
                      describe_shape(tensor.shape), describe_shape(want), or_longer)};
}

Kind kind_of(const TensorSpec& spec) {
  if (spec.role == Role::embedding) return Kind::embedding;
  if (spec.role == Role::small) return Kind::small;
  return spec.weight == Weight::lm_head ? Kind::lm_head : Kind::trunk;
}

}  // namespace

Inventory::Inventory(const Config& config, std::string prefix)
    : config_(config),
      prefix_(std::move(prefix)),
      head_specs_(head_tensors(config)),
      expert_specs_(expert_tensors(config)),
      layers_(config.n_layers) {
  for (std::uint32_t layer_idx = 0; layer_idx < config.n_layers; ++layer_idx) {
    std::vector<TensorSpec>& specs = layer_specs_[spec_idx(layer_idx)];
    if (specs.empty()) specs = layer_tensors(config, layer_idx);
  }
}

io::Result<Kind> Inventory::add(const TensorEntry& tensor, std::uint32_t file_idx) {
  std::string_view name = tensor.name;
  if (!take_prefix(name, prefix_)) return Kind::ignored;
  if (!take_prefix(name, "model.layers.")) {
    return add_to(head_, head_specs_, name, tensor, file_idx);
  }
  const std::optional<std::uint32_t> layer_idx = take_number(name);
  if (!layer_idx || *layer_idx >= config_.n_layers) return Kind::ignored;
  FoundLayer& layer = layers_[*layer_idx];
  if (config_.is_moe(*layer_idx) && take_prefix(name, kExpertsPrefix)) {
    return add_expert(layer, name, tensor, file_idx);
  }
  return add_to(layer.tensors, layer_specs_[spec_idx(*layer_idx)], name, tensor, file_idx);
}

io::Result<Kind> Inventory::add_to(FoundList& found, const std::vector<TensorSpec>& specs,
                                   std::string_view suffix, const TensorEntry& tensor,
                                   std::uint32_t file_idx) {
  const auto spec = std::find_if(specs.begin(), specs.end(),
                                 [&](const TensorSpec& s) { return s.suffix == suffix; });
  if (spec == specs.end()) return Kind::ignored;
  const bool is_f32 = tensor.dtype == Dtype::f32;
  if (spec->role == Role::small ? !is_f32 && tensor.dtype != Dtype::bf16
                                : tensor.dtype != Dtype::bf16) {
    return wrong_dtype(tensor, spec->role == Role::small ? "BF16 or F32" : "BF16");
  }
  if (!shape_fits(*spec, tensor.shape)) {
    return wrong_shape(tensor, spec->shape, spec->may_be_longer ? " or longer" : "");
  }
  if (found.empty()) found.resize(specs.size());
  FoundTensor& place = found[static_cast<std::size_t>(spec - specs.begin())];
  place = {true,
           {is_f32,
            tensor.shape,
            {file_idx, tensor.begin_bytes, tensor.end_bytes - tensor.begin_bytes}}};
  return kind_of(*spec);
}

io::Result<Kind> Inventory::add_expert(FoundLayer& layer, std::string_view suffix,
                                       const TensorEntry& tensor, std::uint32_t file_idx) {
  const std::optional<std::uint32_t> expert_id = take_number(suffix);
  if (!expert_id || *expert_id >= config_.n_experts) return Kind::ignored;
  const auto spec = std::find_if(expert_specs_.begin(), expert_specs_.end(),
                                 [&](const ExpertTensorSpec& s) { return s.suffix == suffix; });
  if (spec == expert_specs_.end()) return Kind::ignored;
  const bool is_scale = suffix.ends_with("scale");
  // The same bytes under either label: the dtype changes no value.
  if (tensor.dtype != Dtype::u8 && !(is_scale && tensor.dtype == Dtype::f8_e8m0)) {
    return wrong_dtype(tensor, is_scale ? "U8 or F8_E8M0" : "U8");
  }
  const std::vector<std::uint64_t> want{spec->n_rows, spec->n_cols};
  if (tensor.shape != want) return wrong_shape(tensor, want);
  if (layer.experts.empty()) layer.experts.resize(config_.n_experts);
  FoundExpert& expert = layer.experts[*expert_id];
  const auto part = static_cast<std::size_t>(spec - expert_specs_.begin());
  expert.begin_bytes[part] = tensor.begin_bytes;
  expert.file_idx[part] = file_idx;
  return Kind::expert;
}

io::Status Inventory::check_complete() const { return report_coverage(*this); }

}  // namespace engine
