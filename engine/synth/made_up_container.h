// Writes a made-up model as a container, without shards in between; of any size on a small disk,
// if blocks may share their bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/pack/container_writer.h"
#include "engine/pack/layout.h"
#include "engine/synth/geometry.h"
#include "io/error.h"

namespace engine {

struct MadeUpContainerOptions {
  LayoutOptions layout{};
  std::optional<std::uint64_t>
      alias_bytes{};  // disk space that all of it may take; none: no sharing
  WriteOptions write{};
};

// Without sharing, the same bytes as `pack` makes of the checkpoint that `write_made_up` writes,
// experts included.  Errors: those of check_geometry, share_blocks and write_container.
io::Result<Written> write_made_up_container(const Geometry& geometry,
                                            const std::filesystem::path& folder,
                                            const MadeUpContainerOptions& options);

}  // namespace engine
