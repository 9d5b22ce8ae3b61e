// Walks the trunk's tiles in their fixed order and multiplies them as they arrive.
//
// The first error is kept: after it every call does nothing, so that a layer can be written as
// its formulas, and whoever acts on a result asks `status` first.  Threads: the driver's, which
// must be inside the task arena whose workers shall help.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/checkpoint/catalogue.h"
#include "engine/stream/loader.h"
#include "io/error.h"
#include "kernels/table.h"

namespace engine {

class Trunk {
 public:
  Trunk(const Catalogue& catalogue, Loader& loader, const kernels::Table& kernels)
      : catalogue_(catalogue), loader_(loader), kernels_(kernels) {}

  // The next matmul is the first of a token's.
  void begin_sweep() { next_matrix_ = 0; }

  // y[t, r] = W x of this matrix, which must be the next one in the order of consumption.
  //   x fp32 [n_tokens, n_cols];  y fp32 [n_tokens, n_rows]
  void matmul(Weight weight, std::uint32_t layer_idx, const float* x, std::size_t n_tokens,
              float* y);

  // Calls use(tile, rows) for each tile of the matrix in order; rows is bf16 [tile.n_rows, n_cols].
  using UseTile = std::function<void(const Tile& tile, const std::byte* rows)>;
  void for_tiles(Weight weight, std::uint32_t layer_idx, const UseTile& use);

  [[nodiscard]] bool ok() const { return status_.has_value(); }
  [[nodiscard]] io::Status& status() { return status_; }
  void fail(io::Error error) {
    if (status_) status_ = std::move(error);
  }
  [[nodiscard]] Loader& loader() { return loader_; }
  [[nodiscard]] const kernels::Table& kernels() const { return kernels_; }
  [[nodiscard]] const Catalogue& catalogue() const { return catalogue_; }

 private:
  const Catalogue& catalogue_;
  Loader& loader_;
  const kernels::Table& kernels_;
  std::uint32_t next_matrix_ = 0;
  io::Status status_;
};

}  // namespace engine
