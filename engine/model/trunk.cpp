#include "engine/model/trunk.h"

#include <cassert>

#include "engine/model/parallel.h"

namespace engine {

void Trunk::for_tiles(Weight weight, std::uint32_t layer_idx, const UseTile& use) {
  if (!status_) return;
  const Matrix& matrix = catalogue_.matrices[next_matrix_];
  assert(matrix.weight == weight && matrix.layer_idx == layer_idx &&
         "matrices are consumed in the catalogue's order");
  next_matrix_ += 1;
  for (std::uint32_t i = 0; i < matrix.n_tiles && status_; ++i) {
    const std::uint32_t tile_idx = matrix.first_tile_idx + i;
    io::Result<Loader::Held> held = loader_.take({tile_idx});
    if (!held) {
      status_ = std::move(held.error());
      return;
    }
    use(catalogue_.tiles[tile_idx], held->data());
  }
}

void Trunk::matmul(Weight weight, std::uint32_t layer_idx, const float* x, std::size_t n_tokens,
                   float* y) {
  if (!status_) return;
  const Matrix& matrix = catalogue_.matrices[next_matrix_];
  const std::size_t n_cols = matrix.n_cols;
  for_tiles(weight, layer_idx, [&](const Tile& tile, const std::byte* rows) {
    for_rows(tile.n_rows, 2 * n_cols, n_tokens, [&](std::size_t begin, std::size_t n) {
      kernels_.bf16_matmul(rows + 2 * begin * n_cols, n, n_cols, x, n_tokens,
                           y + tile.row_begin + begin, matrix.n_rows);
    });
  });
}

}  // namespace engine
