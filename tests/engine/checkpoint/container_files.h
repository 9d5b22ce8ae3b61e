// Containers for tests: cut, placed and filled by the rules of docs/container.md, written out here
// once more so that the tests do not take the engine's word for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container_index.h"
#include "engine/synth/geometry.h"
#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine::testing {

struct ContainerLayout {
  std::uint32_t tile_bytes = 4096;
  std::uint32_t alignment_bytes = 4096;
  bool has_experts = true;
};

// The made-up tiny model.
Geometry tiny_geometry();

// All tensors, blocks and data files; checksums 0, no copies.  Without experts, their blocks lie in
// one made-up shard per routed layer, at odd offsets.
ContainerIndex lay_out(const Geometry& geometry, const ContainerLayout& layout = {});

// The bytes of a block, from the formula of the made-up weights.
std::vector<std::byte> block_bytes(const Geometry& geometry, const ContainerIndex& index,
                                   std::size_t block_idx);

// A whole container of the tiny model in a folder of its own, to be damaged.
class MadeUpContainer {
 public:
  // Without experts they lie in the shards of `shards`, a made-up tiny model that must outlive it.
  explicit MadeUpContainer(const ContainerLayout& layout = {}, const MadeUp* shards = nullptr);

  [[nodiscard]] std::filesystem::path path() const { return folder_.path(); }
  [[nodiscard]] std::filesystem::path file(std::string_view name) const { return path() / name; }
  [[nodiscard]] const ContainerIndex& index() const { return index_; }

  // Lets `edit` change the index and writes it.
  void edit_index(const std::function<void(ContainerIndex&)>& edit);

  [[nodiscard]] io::Result<Checkpoint> open(const OpenOptions& options = {}) const {
    return open_checkpoint(path(), options);
  }
  // The error of opening, or an empty one if it opened.
  [[nodiscard]] io::Error open_error(const OpenOptions& options = {}) const;

 private:
  void refer_to(const MadeUp& shards);
  void write_data();
  void add_copy(const std::string& name, const std::string& bytes);

  TemporaryFolder folder_;
  ContainerIndex index_;
};

}  // namespace engine::testing
