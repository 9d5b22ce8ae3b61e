#include "engine/checkpoint/container_catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "engine/checkpoint/catalogue_build.h"
#include "engine/checkpoint/census.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/tensor_list.h"

namespace engine {
namespace {

using BlockKind = ContainerIndex::BlockKind;

io::Error invalid(std::string message) { return {io::Errc::invalid, 0, std::move(message)}; }

class Contents {
 public:
  Contents(const ContainerIndex& index, const Config& config) : index_(index), config_(config) {}

  io::Result<ContainerContents> read() {
    catalogue_.n_experts = config_.n_experts;
    catalogue_.vocab_size = config_.vocab_size;
    catalogue_.embedding_row_bytes = 2 * std::uint64_t{config_.hidden_size};
    catalogue_.routed_layer.assign(config_.n_layers, -1);
    list_files();
    if (!index_.tensors.empty() && index_.tensors[0].name.starts_with(kTextPrefix)) {
      prefix_ = kTextPrefix;
    }
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      if (io::Status s = add_list(layer_tensors(config_, layer_idx), layer_idx,
                                  prefix_ + layer_prefix(layer_idx));
          !s) {
        return std::move(s.error());
      }
    }
    if (io::Status s = add_list(head_tensors(config_), config_.n_layers, prefix_); !s) {
      return std::move(s.error());
    }
    if (next_tensor_ != index_.tensors.size()) {
      return invalid(
          fmt::format("{} tensors, the config wants {}", index_.tensors.size(), next_tensor_));
    }
    if (io::Status s = add_experts(); !s) return std::move(s.error());
    const std::uint64_t n_blocks = catalogue_.blocks.size() + std::uint64_t{config_.vocab_size};
    if (n_blocks > std::numeric_limits<std::uint32_t>::max()) {
      return io::Error{io::Errc::unsupported, 0,
                       fmt::format("{} blocks, the limit is {}", n_blocks,
                                   std::numeric_limits<std::uint32_t>::max())};
    }
    return std::move(contents_);
  }

 private:
  void list_files() {
    for (std::uint32_t i = 0; i < index_.files.size(); ++i) {
      new_file_idx_.push_back(static_cast<std::uint32_t>(catalogue_.files.size()));
      if (index_.files[i].kind == ContainerIndex::FileKind::copy) continue;
      catalogue_.files.emplace_back(index_.files[i].name);
      catalogue_.file_bytes.push_back(index_.files[i].n_bytes);
      contents_.file_idx.push_back(i);
    }
  }

  [[nodiscard]] io::ByteRange range(const ContainerIndex::Block& block) const {
    return {new_file_idx_[block.file_idx], block.offset_bytes, block.n_stored_bytes};
  }

  io::Status add_list(const std::vector<TensorSpec>& specs, std::uint32_t layer_idx,
                      const std::string& prefix) {
    for (const TensorSpec& spec : specs) {
      if (next_tensor_ >= index_.tensors.size()) {
        return invalid(fmt::format("tensor {}{} is missing", prefix, spec.suffix));
      }
      const auto tensor_idx = static_cast<std::uint32_t>(next_tensor_++);
      const ContainerIndex::Tensor& tensor = index_.tensors[tensor_idx];
      if (io::Status s = check_tensor(tensor, spec, prefix); !s) return s;
      io::Status added = spec.role == Role::small       ? add_small(tensor)
                         : spec.role == Role::embedding ? add_embedding(tensor_idx)
                                                        : add_matrix(tensor_idx, spec, layer_idx);
      if (!added) return std::move(added.error()).within(tensor.name);
    }
    return {};
  }

  io::Status check_tensor(const ContainerIndex::Tensor& tensor, const TensorSpec& spec,
                          const std::string& prefix) {
    if (tensor.name != prefix + spec.suffix) {
      return invalid(fmt::format("tensor {} is {}, the config wants {}{}", next_tensor_ - 1,
                                 tensor.name, prefix, spec.suffix));
    }
    const bool longer = spec.may_be_longer && tensor.shape.size() == 1 &&
                        tensor.shape[0] >= spec.shape[0] && tensor.shape[0] <= kMaxPadding;
    if (tensor.role != spec.role || (tensor.shape != spec.shape && !longer) ||
        (tensor.is_f32 && spec.role != Role::small)) {
      return invalid(fmt::format(
          "tensor {} has role {}, dtype {} and shape {}, the config wants "
          "role {} and shape {}",
          tensor.name, static_cast<int>(tensor.role), tensor.is_f32 ? "F32" : "BF16",
          describe_shape(tensor.shape), static_cast<int>(spec.role), describe_shape(spec.shape)));
    }
    const Kind kind = spec.role == Role::small         ? Kind::small
                      : spec.role == Role::embedding   ? Kind::embedding
                      : spec.weight == Weight::lm_head ? Kind::lm_head
                                                       : Kind::trunk;
    TensorEntry entry{tensor.name, tensor.is_f32 ? Dtype::f32 : Dtype::bf16, tensor.shape, 0,
                      n_bytes(tensor)};
    count_tensor(contents_.census, kind, entry);
    return {};
  }

  // Shapes are the config's here, whose products fit.
  static std::uint64_t n_bytes(const ContainerIndex::Tensor& tensor) {
    std::uint64_t n = tensor.is_f32 ? 4 : 2;
    for (const std::uint64_t dim : tensor.shape) n *= dim;
    return n;
  }

  io::Status add_small(const ContainerIndex::Tensor& tensor) {
    const ContainerIndex::Block& block = index_.blocks[tensor.first_block_idx];
    const std::uint64_t n = n_bytes(tensor);
    if (block.kind != BlockKind::small || tensor.n_blocks != 1 ||
        tensor.offset_bytes > block.n_bytes || n > block.n_bytes - tensor.offset_bytes) {
      return invalid(fmt::format("{} bytes at {} of block {}, which has {}", n, tensor.offset_bytes,
                                 tensor.first_block_idx, block.n_bytes));
    }
    io::ByteRange place = range(block);
    place.offset_bytes += tensor.offset_bytes;
    place.n_bytes = n;
    catalogue_.small.emplace(tensor.name, SmallTensor{tensor.is_f32, tensor.shape, place});
    return {};
  }

  // Calls use(block) for each block of the tensor, which must be its rows, in order.
  template <typename Use>
  io::Status for_blocks(std::uint32_t tensor_idx, BlockKind kind, Use use) {
    const ContainerIndex::Tensor& tensor = index_.tensors[tensor_idx];
    std::uint64_t next_row = 0;
    for (std::uint32_t i = 0; i < tensor.n_blocks; ++i) {
      const std::uint32_t block_idx = tensor.first_block_idx + i;
      const ContainerIndex::Block& block = index_.blocks[block_idx];
      if (block.kind != kind || block.owner_idx != tensor_idx || block.begin != next_row ||
          block.count == 0 || block.count > tensor.shape[0] - next_row ||
          block.n_bytes != std::uint64_t{2} * block.count * tensor.shape[1]) {
        return invalid(
            fmt::format("block {} has rows {} and {} more in {} bytes, want rows from "
                        "{} of {} of {} bytes each",
                        block_idx, block.begin, block.count, block.n_bytes, next_row,
                        tensor.shape[0], 2 * tensor.shape[1]));
      }
      next_row += block.count;
      if (io::Status used = use(block); !used) return used;
    }
    if (next_row == tensor.shape[0]) return {};
    return invalid(fmt::format("its blocks have {} rows of {}", next_row, tensor.shape[0]));
  }

  io::Status add_matrix(std::uint32_t tensor_idx, const TensorSpec& spec, std::uint32_t layer_idx) {
    const ContainerIndex::Tensor& tensor = index_.tensors[tensor_idx];
    const auto matrix_idx = static_cast<std::uint32_t>(catalogue_.matrices.size());
    const std::uint32_t unit = rows_per_unit(config_, spec.weight);
    catalogue_.matrices.push_back(
        {spec.weight, layer_idx, static_cast<std::uint32_t>(tensor.shape[0]),
         static_cast<std::uint32_t>(tensor.shape[1]), catalogue_.n_tiles(), tensor.n_blocks});
    return for_blocks(
        tensor_idx, BlockKind::tile, [&](const ContainerIndex::Block& block) -> io::Status {
          if (block.count % unit != 0) {
            return invalid(
                fmt::format("a tile of {} rows, want whole heads of {}", block.count, unit));
          }
          catalogue_.tiles.push_back({matrix_idx, block.begin, block.count});
          catalogue_.blocks.push_back(range(block));
          return {};
        });
  }

  io::Status add_embedding(std::uint32_t tensor_idx) {
    catalogue_.n_embedding_piece_rows =
        index_.blocks[index_.tensors[tensor_idx].first_block_idx].count;
    return for_blocks(
        tensor_idx, BlockKind::embedding, [&](const ContainerIndex::Block& block) -> io::Status {
          const bool last = block.begin + block.count == config_.vocab_size;
          if (block.count != catalogue_.n_embedding_piece_rows &&
              !(last && block.count < catalogue_.n_embedding_piece_rows)) {
            return invalid(fmt::format("a block of {} rows, the first has {}", block.count,
                                       catalogue_.n_embedding_piece_rows));
          }
          catalogue_.embedding.push_back(range(block));
          return {};
        });
  }

  io::Status add_experts() {
    if (io::Status s = take_layout(); !s) return s;
    std::size_t at = 0;
    const auto next_expert = [&] {
      while (at < index_.blocks.size() && index_.blocks[at].kind != BlockKind::expert) ++at;
      return at < index_.blocks.size();
    };
    std::int32_t n_routed = 0;
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      if (!config_.is_moe(layer_idx)) continue;
      catalogue_.routed_layer[layer_idx] = n_routed++;
      for (std::uint32_t expert_id = 0; expert_id < config_.n_experts; ++expert_id, ++at) {
        if (!next_expert() || index_.blocks[at].owner_idx != layer_idx ||
            index_.blocks[at].begin != expert_id ||
            index_.blocks[at].n_bytes != index_.expert_bytes) {
          return invalid(fmt::format("expert {} of layer {} is not at its place, block {} of {}",
                                     expert_id, layer_idx, at, index_.blocks.size()));
        }
        catalogue_.blocks.push_back(range(index_.blocks[at]));
      }
    }
    if (!next_expert()) return {};
    return invalid(fmt::format("block {} is one expert too many", at));
  }

  // The six parts lie side by side in some order.
  io::Status take_layout() {
    const std::array<ExpertTensorSpec, 6> specs = expert_tensors(config_);
    const std::array<std::uint64_t, 6>& offsets = index_.expert_part_offset_bytes;
    std::array<std::size_t, 6> order{0, 1, 2, 3, 4, 5};
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; });
    std::uint64_t end = 0;
    for (const std::size_t part : order) {
      if (offsets[part] != end) {
        return invalid(fmt::format("{} is {} bytes into an expert, want {}", specs[part].suffix,
                                   offsets[part], end));
      }
      end += specs[part].n_bytes();
    }
    if (end != index_.expert_bytes) {
      return invalid(
          fmt::format("an expert has {} bytes, the config wants {}", index_.expert_bytes, end));
    }
    const auto latent = config_.latent_size;
    const auto wide = config_.moe_intermediate_size;
    catalogue_.expert_layout = {{wide, latent, offsets[0], offsets[1]},
                                {latent, wide, offsets[2], offsets[3]},
                                {wide, latent, offsets[4], offsets[5]}};
    count_experts(specs);
    return {};
  }

  void count_experts(const std::array<ExpertTensorSpec, 6>& specs) {
    std::uint64_t n = 0;
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      n += config_.is_moe(layer_idx) ? config_.n_experts : 0;
    }
    for (const ExpertTensorSpec& spec : specs) {
      const TensorEntry entry{
          std::string(spec.suffix), Dtype::u8, {spec.n_rows, spec.n_cols}, 0, spec.n_bytes()};
      count_tensor(contents_.census, Kind::expert, entry, n);
    }
  }

  static constexpr std::uint64_t kMaxPadding = 1 << 20;  // entries of A_log

  const ContainerIndex& index_;
  const Config& config_;
  std::string prefix_;
  std::size_t next_tensor_ = 0;
  std::vector<std::uint32_t> new_file_idx_;  // by file of the index
  ContainerContents contents_;
  Catalogue& catalogue_ = contents_.catalogue;
};

}  // namespace

io::Result<ContainerContents> read_contents(const ContainerIndex& index, const Config& config) {
  return Contents(index, config).read();
}

}  // namespace engine
