#include "engine/checkpoint/catalogue_build.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

namespace engine {
namespace {

constexpr std::uint64_t kBf16Bytes = 2;

io::Error unsupported(std::string message) {
  return {io::Errc::unsupported, 0, std::move(message)};
}

class Builder {
 public:
  Builder(const Inventory& inventory, std::uint64_t tile_bytes)
      : inventory_(inventory), config_(inventory.config()), tile_bytes_(tile_bytes) {}

  io::Result<Catalogue> build() {
    catalogue_.n_experts = config_.n_experts;
    catalogue_.vocab_size = config_.vocab_size;
    catalogue_.embedding_row_bytes = config_.hidden_size * kBf16Bytes;
    catalogue_.routed_layer.assign(config_.n_layers, -1);
    set_expert_shapes();
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      add_list(inventory_.layer(layer_idx).tensors, inventory_.layer_specs(layer_idx), layer_idx,
               inventory_.prefix() + layer_prefix(layer_idx));
    }
    add_list(inventory_.head(), inventory_.head_specs(), config_.n_layers, inventory_.prefix());
    std::int32_t n_routed = 0;
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      if (!config_.is_moe(layer_idx)) continue;
      catalogue_.routed_layer[layer_idx] = n_routed++;
      if (io::Status status = add_experts(layer_idx); !status) return std::move(status.error());
    }
    const std::uint64_t n_blocks = catalogue_.blocks.size() + std::uint64_t{config_.vocab_size};
    if (n_blocks > std::numeric_limits<std::uint32_t>::max()) {
      return unsupported(fmt::format("{} blocks, the limit is {}", n_blocks,
                                     std::numeric_limits<std::uint32_t>::max()));
    }
    return std::move(catalogue_);
  }

 private:
  void add_list(const FoundList& found, const std::vector<TensorSpec>& specs,
                std::uint32_t layer_idx, const std::string& prefix) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const SmallTensor& tensor = found[i].tensor;
      switch (specs[i].role) {
        case Role::matrix:
          add_matrix(specs[i].weight, layer_idx, tensor);
          break;
        case Role::small:
          catalogue_.small.emplace(prefix + specs[i].suffix, tensor);
          break;
        case Role::embedding:
          catalogue_.embedding = {tensor.range};
          catalogue_.n_embedding_piece_rows = config_.vocab_size;
          break;
      }
    }
  }

  void add_matrix(Weight weight, std::uint32_t layer_idx, const SmallTensor& tensor) {
    Matrix matrix{weight,
                  layer_idx,
                  static_cast<std::uint32_t>(tensor.shape[0]),
                  static_cast<std::uint32_t>(tensor.shape[1]),
                  catalogue_.n_tiles(),
                  0};
    const std::uint64_t row_bytes = matrix.n_cols * kBf16Bytes;
    const std::uint64_t n_tile_rows = std::min<std::uint64_t>(
        rows_per_tile(config_, weight, matrix.n_cols, tile_bytes_), matrix.n_rows);
    const auto matrix_idx = static_cast<std::uint32_t>(catalogue_.matrices.size());
    for (std::uint64_t row = 0; row < matrix.n_rows; row += n_tile_rows) {
      const std::uint64_t n_rows = std::min<std::uint64_t>(n_tile_rows, matrix.n_rows - row);
      catalogue_.tiles.push_back(
          {matrix_idx, static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(n_rows)});
      catalogue_.blocks.push_back(
          {tensor.range.file_idx, tensor.range.offset_bytes + row * row_bytes, n_rows * row_bytes});
    }
    matrix.n_tiles = catalogue_.n_tiles() - matrix.first_tile_idx;
    catalogue_.matrices.push_back(matrix);
  }

  void set_expert_shapes() {
    for (ExpertPart* part : {&catalogue_.expert_layout.w1, &catalogue_.expert_layout.w3}) {
      part->n_rows = config_.moe_intermediate_size;
      part->n_cols = config_.latent_size;
    }
    catalogue_.expert_layout.w2.n_rows = config_.latent_size;
    catalogue_.expert_layout.w2.n_cols = config_.moe_intermediate_size;
    for (const ExpertTensorSpec& spec : inventory_.expert_specs()) {
      expert_bytes_ += spec.n_bytes();
    }
  }

  io::Status add_experts(std::uint32_t layer_idx) {
    const std::vector<FoundExpert>& experts = inventory_.layer(layer_idx).experts;
    for (std::uint32_t expert_id = 0; expert_id < config_.n_experts; ++expert_id) {
      const FoundExpert& expert = experts[expert_id];
      if (io::Status status = check_contiguous(expert, layer_idx, expert_id); !status) {
        return status;
      }
      const std::uint64_t begin =
          *std::min_element(expert.begin_bytes.begin(), expert.begin_bytes.end());
      if (io::Status status = check_layout(expert, begin, layer_idx, expert_id); !status) {
        return status;
      }
      catalogue_.blocks.push_back({expert.file_idx[0], begin, expert_bytes_});
    }
    return {};
  }

  [[nodiscard]] std::string part_name(std::uint32_t layer_idx, std::uint32_t expert_id,
                                      std::size_t part) const {
    return fmt::format("{}{}{}{}.{}", inventory_.prefix(), layer_prefix(layer_idx), kExpertsPrefix,
                       expert_id, inventory_.expert_specs()[part].suffix);
  }

  [[nodiscard]] io::Status check_contiguous(const FoundExpert& expert, std::uint32_t layer_idx,
                                            std::uint32_t expert_id) const {
    std::array<std::size_t, 6> order{};
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(expert.file_idx[a], expert.begin_bytes[a]) <
             std::pair(expert.file_idx[b], expert.begin_bytes[b]);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const std::size_t before = order[i - 1];
      const std::size_t after = order[i];
      const std::uint64_t want =
          expert.begin_bytes[before] + inventory_.expert_specs()[before].n_bytes();
      if (expert.file_idx[before] != expert.file_idx[after]) {
        return unsupported(fmt::format("an expert must lie in one file: {} and {} do not",
                                       part_name(layer_idx, expert_id, before),
                                       part_name(layer_idx, expert_id, after)));
      }
      if (expert.begin_bytes[after] != want) {
        return unsupported(fmt::format(
            "an expert's tensors must follow each other: {} is at file offset {}, {} ends at {}",
            part_name(layer_idx, expert_id, after), expert.begin_bytes[after],
            part_name(layer_idx, expert_id, before), want));
      }
    }
    return {};
  }

  // All experts have their parts at the same offsets, so that one layout describes them.
  io::Status check_layout(const FoundExpert& expert, std::uint64_t begin, std::uint32_t layer_idx,
                          std::uint32_t expert_id) {
    ExpertLayout& layout = catalogue_.expert_layout;
    const std::array<std::uint64_t*, 6> wanted = {
        &layout.w1.packed_offset_bytes, &layout.w1.scale_offset_bytes,
        &layout.w2.packed_offset_bytes, &layout.w2.scale_offset_bytes,
        &layout.w3.packed_offset_bytes, &layout.w3.scale_offset_bytes};
    for (std::size_t part = 0; part < wanted.size(); ++part) {
      const std::uint64_t offset = expert.begin_bytes[part] - begin;
      if (!have_layout_) *wanted[part] = offset;
      if (*wanted[part] == offset) continue;
      return unsupported(fmt::format(
          "experts must be laid out alike: {} is {} bytes into its expert, in the first expert {}",
          part_name(layer_idx, expert_id, part), offset, *wanted[part]));
    }
    have_layout_ = true;
    return {};
  }

  const Inventory& inventory_;
  const Config& config_;
  std::uint64_t tile_bytes_;
  std::uint64_t expert_bytes_ = 0;
  bool have_layout_ = false;
  Catalogue catalogue_;
};

}  // namespace

std::uint32_t rows_per_unit(const Config& config, Weight weight) {
  return weight == Weight::mla_kv_b ? config.qk_nope_head_dim + config.v_head_dim : 1;
}

std::uint64_t rows_per_tile(const Config& config, Weight weight, std::uint64_t n_cols,
                            std::uint64_t tile_bytes) {
  const std::uint64_t unit = rows_per_unit(config, weight);
  return unit * std::max<std::uint64_t>(1, tile_bytes / (n_cols * kBf16Bytes * unit));
}

io::Result<Catalogue> build_catalogue(const Inventory& inventory, std::uint64_t tile_bytes) {
  assert(tile_bytes > 0);
  return Builder(inventory, tile_bytes).build();
}

}  // namespace engine
