// Which blocks of a large made-up container share their bytes with an earlier one, so that all of
// it costs a given disk space while every read stays a read of its true size.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint/container_index.h"
#include "io/error.h"

namespace engine {

// For each block of an index that `cut_blocks` has made, the earlier block whose bytes it shares,
// or itself.  Blocks of one matrix in all layers share (rows of one number, values of one scale),
// experts share with experts, rows of the embedding with such rows; small tensors do not share.
// Half of the room goes to the experts, the rest to the trunk and the embedding by their lengths.
// Among blocks that may share, consecutive ones never do, nor do those at the same place in
// neighbouring layers.
//   max_bytes   of the data files
// Errors: no_memory, with the smallest that works.
io::Result<std::vector<std::uint32_t>> share_blocks(const ContainerIndex& index,
                                                    std::uint64_t max_bytes);

}  // namespace engine
