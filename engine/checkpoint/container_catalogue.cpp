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
  Contents(const ContainerIndex& index, const Config& config)
      : index_(index), config_(config), next_block_(std::size_t{config.n_layers} + 1) {}

  io::Result<ContainerContents> read() {
    catalogue_.n_experts = config_.n_experts;
    catalogue_.vocab_size = config_.vocab_size;
    catalogue_.embedding_row_bytes = 2 * std::uint64_t{config_.hidden_size};
    catalogue_.routed_layer.assign(config_.n_layers, -1);
    list_files();
    if (!index_.tensors.empty() && index_.tensors[0].name.starts_with(kTextPrefix)) {
      prefix_ = kTextPrefix;
    }
    if (io::Status s = check_tensors(); !s) return std::move(s.error());
    if (io::Status s = add_tensors(); !s) return std::move(s.error());
    if (io::Status s = take_layout(); !s) return std::move(s.error());
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

  // What a layer has, or the head, which is layer n_layers here.
  [[nodiscard]] std::vector<TensorSpec> list(std::uint32_t layer_idx) const {
    return layer_idx < config_.n_layers ? layer_tensors(config_, layer_idx) : head_tensors(config_);
  }

  // Every tensor that the config wants, and no other, in this order.
  io::Status check_tensors() {
    std::size_t n_tensors = 0;
    for (std::uint32_t layer_idx = 0; layer_idx <= config_.n_layers; ++layer_idx) {
      const std::string prefix =
          prefix_ + (layer_idx < config_.n_layers ? layer_prefix(layer_idx) : std::string());
      for (const TensorSpec& spec : list(layer_idx)) {
        if (n_tensors >= index_.tensors.size()) {
          return invalid(fmt::format("tensor {}{} is missing", prefix, spec.suffix));
        }
        if (io::Status s = check_tensor(n_tensors++, spec, prefix); !s) return s;
      }
    }
    if (n_tensors == index_.tensors.size()) return {};
    return invalid(
        fmt::format("{} tensors, the config wants {}", index_.tensors.size(), n_tensors));
  }

  [[nodiscard]] io::ByteRange range(const ContainerIndex::Block& block) const {
    return {new_file_idx_[block.file_idx], block.offset_bytes, block.n_stored_bytes};
  }

  // The tensors are as `check_tensors` wants them; here their blocks are looked at.
  io::Status add_tensors() {
    std::uint32_t tensor_idx = 0;
    for (std::uint32_t layer_idx = 0; layer_idx <= config_.n_layers; ++layer_idx) {
      const std::vector<TensorSpec> specs = list(layer_idx);
      const std::uint32_t first_tensor = tensor_idx;
      small_end_bytes_ = 0;
      for (const TensorSpec& spec : specs) {
        io::Status added = spec.role == Role::small       ? add_small(tensor_idx, layer_idx)
                           : spec.role == Role::embedding ? add_embedding(tensor_idx)
                                                          : add_matrix(tensor_idx, spec, layer_idx);
        if (!added) return std::move(added.error()).within(index_.tensors[tensor_idx].name);
        ++tensor_idx;
      }
      if (io::Status s = check_small_block(specs, layer_idx, first_tensor); !s) return s;
    }
    return {};
  }

  io::Status check_tensor(std::size_t tensor_idx, const TensorSpec& spec,
                          const std::string& prefix) {
    const ContainerIndex::Tensor& tensor = index_.tensors[tensor_idx];
    if (tensor.name != prefix + spec.suffix) {
      return invalid(fmt::format("tensor {} is {}, the config wants {}{}", tensor_idx, tensor.name,
                                 prefix, spec.suffix));
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

  // Small tensors follow each other in their block.
  io::Status add_small(std::uint32_t tensor_idx, std::uint32_t layer_idx) {
    const ContainerIndex::Tensor& tensor = index_.tensors[tensor_idx];
    if (tensor.first_block_idx != layer_idx) {
      return invalid(
          fmt::format("lies in block {}, want block {}", tensor.first_block_idx, layer_idx));
    }
    const ContainerIndex::Block& block = index_.blocks[layer_idx];
    const std::uint64_t n = n_bytes(tensor);
    const std::uint64_t at = tensor.offset_bytes;
    if (at < small_end_bytes_ || at % kSmallTensorAlignmentBytes != 0 || at > block.n_bytes ||
        n > block.n_bytes - at) {
      return invalid(fmt::format(
          "{} bytes at {} of block {}, want a multiple of {} from {} on and "
          "an end within {}",
          n, at, layer_idx, kSmallTensorAlignmentBytes, small_end_bytes_, block.n_bytes));
    }
    small_end_bytes_ = at + n;
    io::ByteRange place = range(block);
    place.offset_bytes += at;
    place.n_bytes = n;
    catalogue_.small.emplace(tensor.name, SmallTensor{tensor.is_f32, tensor.shape, place});
    return {};
  }

  // Block i holds the small tensors of layer i, and the one after the last layer's the head's.
  // `add_small` has found them in it, and there are some in every list.
  [[nodiscard]] io::Status check_small_block(const std::vector<TensorSpec>& specs,
                                             std::uint32_t layer_idx,
                                             std::size_t first_tensor) const {
    const auto is_small = [](const TensorSpec& spec) { return spec.role == Role::small; };
    const auto first = std::find_if(specs.begin(), specs.end(), is_small);
    const std::size_t begin = first_tensor + static_cast<std::size_t>(first - specs.begin());
    const auto count = static_cast<std::size_t>(std::count_if(first, specs.end(), is_small));
    const ContainerIndex::Block& block = index_.blocks[layer_idx];
    if (block.kind == BlockKind::small && block.owner_idx == layer_idx && block.begin == begin &&
        block.count == count) {
      return {};
    }
    return invalid(
        fmt::format("block {} is of kind {}, owner {}, begin {} and count {}, want kind 0 "
                    "(small), owner {}, begin {} and count {}",
                    layer_idx, static_cast<int>(block.kind), block.owner_idx, block.begin,
                    block.count, layer_idx, begin, count));
  }

  // Calls use(block) for each block of the tensor, which must be its rows, in order, and follow the
  // blocks of the tensors before it.
  template <typename Use>
  io::Status for_blocks(std::uint32_t tensor_idx, BlockKind kind, Use use) {
    const ContainerIndex::Tensor& tensor = index_.tensors[tensor_idx];
    if (tensor.first_block_idx != next_block_) {
      return invalid(
          fmt::format("its first block is {}, want {}", tensor.first_block_idx, next_block_));
    }
    next_block_ += tensor.n_blocks;
    std::uint64_t next_row = 0;
    for (std::size_t block_idx = tensor.first_block_idx; block_idx < next_block_; ++block_idx) {
      const ContainerIndex::Block& block = index_.blocks[block_idx];
      if (block.kind != kind || block.owner_idx != tensor_idx || block.begin != next_row ||
          block.count == 0 || block.count > tensor.shape[0] - next_row ||
          block.n_bytes != std::uint64_t{2} * block.count * tensor.shape[1]) {
        return invalid(fmt::format(
            "block {} is of kind {}, owner {}, with {} rows from {} on in {} bytes, want kind {}, "
            "owner {}, rows from {} on of {} rows of {} bytes",
            block_idx, static_cast<int>(block.kind), block.owner_idx, block.count, block.begin,
            block.n_bytes, static_cast<int>(kind), tensor_idx, next_row, tensor.shape[0],
            2 * tensor.shape[1]));
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

  // The last blocks: every expert of every routed layer, and nothing behind them.
  io::Status add_experts() {
    std::int32_t n_routed = 0;
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      if (!config_.is_moe(layer_idx)) continue;
      catalogue_.routed_layer[layer_idx] = n_routed++;
      for (std::uint32_t expert_id = 0; expert_id < config_.n_experts; ++expert_id) {
        if (io::Status s = add_expert(layer_idx, expert_id); !s) return s;
      }
    }
    if (next_block_ == index_.blocks.size()) return {};
    return invalid(
        fmt::format("{} blocks, the config wants {}", index_.blocks.size(), next_block_));
  }

  io::Status add_expert(std::uint32_t layer_idx, std::uint32_t expert_id) {
    if (next_block_ >= index_.blocks.size()) {
      return invalid(fmt::format("expert {} of layer {} is missing: {} blocks", expert_id,
                                 layer_idx, index_.blocks.size()));
    }
    const std::size_t block_idx = next_block_++;
    const ContainerIndex::Block& block = index_.blocks[block_idx];
    if (block.kind != BlockKind::expert || block.owner_idx != layer_idx ||
        block.begin != expert_id || block.count != 1 || block.n_bytes != index_.expert_bytes) {
      return invalid(fmt::format(
          "block {} is of kind {}, owner {}, begin {} and count {} in {} bytes, want kind 3 "
          "(expert), owner {}, begin {} and count 1 in {} bytes",
          block_idx, static_cast<int>(block.kind), block.owner_idx, block.begin, block.count,
          block.n_bytes, layer_idx, expert_id, index_.expert_bytes));
    }
    catalogue_.blocks.push_back(range(block));
    return {};
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
  std::size_t next_block_;                   // those of rows and the experts follow the small ones
  std::uint64_t small_end_bytes_ = 0;        // in the block at hand
  std::vector<std::uint32_t> new_file_idx_;  // by file of the index
  ContainerContents contents_;
  Catalogue& catalogue_ = contents_.catalogue;
};

}  // namespace

io::Result<ContainerContents> read_contents(const ContainerIndex& index, const Config& config) {
  return Contents(index, config).read();
}

}  // namespace engine
