#include "engine/pack/block_source.h"

#include <cassert>
#include <cstring>

#include "engine/pack/layout.h"

namespace engine {
namespace {

using Block = ContainerIndex::Block;
using BlockKind = ContainerIndex::BlockKind;

class ShardSource : public BlockSource {
 public:
  ShardSource(const ContainerIndex& index, const Checkpoint& checkpoint, const io::FileSet& files)
      : index_(index),
        catalogue_(checkpoint.catalogue),
        files_(files),
        first_tile_(first_block(index, BlockKind::tile)),
        first_expert_(first_block(index, BlockKind::expert)) {}

  io::Status fill(std::size_t block_idx, std::span<std::byte> to,
                  io::Buffer& scratch) const override {
    const Block& block = index_.blocks[block_idx];
    assert(to.size() == block.n_bytes);
    switch (block.kind) {
      case BlockKind::small:
        return fill_small(block, to, scratch);
      case BlockKind::tile:
        return copy(catalogue_.blocks[block_idx - first_tile_], to, scratch);
      case BlockKind::expert:
        return copy(catalogue_.blocks[catalogue_.n_tiles() + block_idx - first_expert_], to,
                    scratch);
      case BlockKind::embedding:
        break;
    }
    io::ByteRange rows = catalogue_.embedding[0];
    rows.offset_bytes += block.begin * catalogue_.embedding_row_bytes;
    rows.n_bytes = block.n_bytes;
    return copy(rows, to, scratch);
  }

 private:
  io::Status fill_small(const Block& block, std::span<std::byte> to, io::Buffer& scratch) const {
    std::uint32_t n_left = block.count;
    for (std::size_t t = block.begin; n_left > 0; ++t) {
      const ContainerIndex::Tensor& tensor = index_.tensors[t];
      if (tensor.role != Role::small) continue;
      --n_left;
      const io::ByteRange& range = catalogue_.small.find(tensor.name)->second.range;
      if (io::Status done = copy(range, to.subspan(tensor.offset_bytes, range.n_bytes), scratch);
          !done) {
        return done;
      }
    }
    return {};
  }

  io::Status copy(const io::ByteRange& range, std::span<std::byte> to, io::Buffer& scratch) const {
    assert(range.n_bytes == to.size());
    const io::Window window = files_.window(range);
    if (scratch.size() < window.n_bytes) {
      io::Result<io::Buffer> larger = io::Buffer::create(window.n_bytes);
      if (!larger) return std::move(larger.error());
      scratch = std::move(*larger);
    }
    if (io::Status read = io::read_window(files_, window, {scratch.data(), window.n_bytes});
        !read) {
      return read;
    }
    std::memcpy(to.data(), scratch.data() + window.lead_bytes, to.size());
    return {};
  }

  const ContainerIndex& index_;
  const Catalogue& catalogue_;
  const io::FileSet& files_;
  const std::size_t first_tile_;
  const std::size_t first_expert_;
};

}  // namespace

std::unique_ptr<BlockSource> shard_source(const ContainerIndex& index, const Checkpoint& checkpoint,
                                          const io::FileSet& files) {
  return std::make_unique<ShardSource>(index, checkpoint, files);
}

}  // namespace engine
