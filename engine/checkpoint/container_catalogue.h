// Turns a container's index into a catalogue: does it hold the model that the config describes?
#pragma once

#include <cstdint>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config.h"
#include "engine/checkpoint/container_index.h"
#include "io/error.h"

namespace engine {

struct ContainerContents {
  Catalogue catalogue;  // files[i] is a bare name, of index file `file_idx[i]`
  std::vector<std::uint32_t> file_idx;
  Census census;
};

// `index` is one that `decode_container_index` takes.  What is returned names every block of it,
// and no byte of a file twice unless the index is aliased. Errors: invalid (a tensor, a block or an
// expert that the config does not want, or the lack of one that it does); unsupported (more blocks
// than an id can name).
io::Result<ContainerContents> read_contents(const ContainerIndex& index, const Config& config);

}  // namespace engine
