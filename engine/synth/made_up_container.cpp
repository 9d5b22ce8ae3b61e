#include "engine/synth/made_up_container.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/tensor_list.h"
#include "engine/synth/released_json.h"
#include "engine/synth/shard_layout.h"
#include "engine/synth/sharing.h"
#include "engine/synth/synth.h"
#include "engine/synth/weight_formula.h"

namespace engine {
namespace {

using Block = ContainerIndex::Block;

constexpr std::uint64_t kFolderBytes = 64 << 10;  // the folder itself and the ends of small files

// The six parts of an expert as the release has them: side by side.
ExpertLayout released_expert_layout(const Config& config) {
  ExpertLayout layout;
  std::uint64_t at = 0;
  const auto specs = expert_tensors(config);
  ExpertPart* const parts[] = {&layout.w1, &layout.w2, &layout.w3};
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i]->packed_offset_bytes = at;
    parts[i]->scale_offset_bytes = at + specs[2 * i].n_bytes();
    at += specs[2 * i].n_bytes() + specs[2 * i + 1].n_bytes();
  }
  return layout;
}

class MadeUpSource : public BlockSource {
 public:
  MadeUpSource(const Geometry& geometry, const ContainerIndex& index)
      : geometry_(geometry), index_(index), expert_specs_(expert_tensors(geometry.config)) {}

  io::Status fill(std::size_t block_idx, std::span<std::byte> to, io::Buffer&) const override {
    const Block& block = index_.blocks[block_idx];
    switch (block.kind) {
      case ContainerIndex::BlockKind::small:
        fill_small(block, to);
        break;
      case ContainerIndex::BlockKind::expert:
        fill_expert(block, to);
        break;
      case ContainerIndex::BlockKind::tile:
      case ContainerIndex::BlockKind::embedding: {
        const ContainerIndex::Tensor& tensor = index_.tensors[block.owner_idx];
        fill_tensor(tensor, block.begin * tensor.shape[1], to);
        break;
      }
    }
    return {};
  }

 private:
  void fill_tensor(const ContainerIndex::Tensor& tensor, std::uint64_t first,
                   std::span<std::byte> to) const {
    WeightFormula(geometry_, {tensor.name, tensor.is_f32 ? Dtype::f32 : Dtype::bf16, tensor.shape})
        .fill(first, to);
  }

  void fill_small(const Block& block, std::span<std::byte> to) const {
    std::uint32_t n_left = block.count;
    for (std::size_t t = block.begin; n_left > 0; ++t) {
      const ContainerIndex::Tensor& tensor = index_.tensors[t];
      if (tensor.role != Role::small) continue;
      --n_left;
      std::uint64_t n_bytes = tensor.is_f32 ? 4 : 2;
      for (const std::uint64_t dim : tensor.shape) n_bytes *= dim;
      fill_tensor(tensor, 0, to.subspan(tensor.offset_bytes, n_bytes));
    }
  }

  void fill_expert(const Block& block, std::span<std::byte> to) const {
    const std::string prefix = fmt::format("{}{}{}{}.", kTextPrefix, layer_prefix(block.owner_idx),
                                           kExpertsPrefix, block.begin);
    for (std::size_t part = 0; part < expert_specs_.size(); ++part) {
      const ExpertTensorSpec& spec = expert_specs_[part];
      WeightFormula(geometry_,
                    {prefix + std::string(spec.suffix), Dtype::u8, {spec.n_rows, spec.n_cols}})
          .fill(0, to.subspan(index_.expert_part_offset_bytes[part], spec.n_bytes()));
    }
  }

  const Geometry& geometry_;
  const ContainerIndex& index_;
  const std::array<ExpertTensorSpec, 6> expert_specs_;
};

ContainerIndex cut(const Geometry& geometry, const LayoutOptions& layout) {
  std::map<std::string, SmallTensor, std::less<>> small;
  for (std::uint32_t shard_idx = 0; shard_idx < count_shards(geometry); ++shard_idx) {
    for (const ShardTensor& tensor : trunk_tensors(geometry, shard_idx)) {
      small[tensor.name] = {tensor.dtype == Dtype::f32, tensor.shape, {}};
    }
  }
  ContainerIndex index =
      cut_blocks(geometry.config,
                 {.prefix = std::string(kTextPrefix),
                  .small = [&small](std::string_view name) { return small.find(name)->second; },
                  .expert_layout = released_expert_layout(geometry.config)},
                 layout);
  index.has_experts = true;
  return index;
}

// The disk space of what is no block.
std::uint64_t other_bytes(const ContainerIndex& index) {
  std::uint64_t n_bytes = kFolderBytes + encode_container_index(index).size();
  for (const ContainerIndex::File& file : index.files) n_bytes += file.n_bytes;
  return n_bytes;
}

}  // namespace

io::Result<Written> write_made_up_container(const Geometry& geometry,
                                            const std::filesystem::path& folder,
                                            const MadeUpContainerOptions& options) {
  if (io::Status good = check_geometry(geometry); !good) return std::move(good.error());
  ContainerPlan plan;
  for (auto& [name, text] : released_texts(geometry.config)) {
    plan.copies.push_back({name, std::move(text)});
  }
  plan.index = cut(geometry, options.layout);
  std::vector<std::uint32_t> same_as;
  if (options.alias_bytes) {
    ContainerIndex with_copies = plan.index;
    add_copies(with_copies, plan.copies);
    const std::uint64_t n_other = std::min(*options.alias_bytes, other_bytes(with_copies));
    io::Result<std::vector<std::uint32_t>> shared =
        share_blocks(plan.index, *options.alias_bytes - n_other);
    if (!shared) {
      return std::move(shared.error())
          .within(fmt::format("{} bytes, {} of them for index and tokenizer", *options.alias_bytes,
                              n_other));
    }
    same_as = std::move(*shared);
  }
  place_blocks(plan.index, same_as);
  add_copies(plan.index, plan.copies);
  const std::vector<std::byte> bytes = encode_container_index(plan.index);
  const std::uint64_t values = mix64(geometry.seed) + (geometry.gain == Gain::page ? 1 : 0);
  plan.work_id = XXH3_64bits_withSeed(bytes.data(), bytes.size(), values);
  plan.work = fmt::format(
      "made-up model of seed {}, {} layers, in {}", geometry.seed, geometry.config.n_layers,
      options.alias_bytes ? fmt::format("{} bytes", *options.alias_bytes) : "full length");
  const MadeUpSource source(geometry, plan.index);
  return write_container(plan, source, folder, options.write);
}

}  // namespace engine
