// The folder that a container is to be made in: what is there already, and is there room.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/checkpoint/container_index.h"
#include "io/error.h"

namespace engine {

enum class PlaceState : std::uint8_t {
  fresh,       // nothing there, or an empty folder
  unfinished,  // has a journal, perhaps of the same work
  complete,    // a container of this very layout
};

// Errors: invalid (something else is there, a container of another layout among it); system.
io::Result<PlaceState> look_at_place(const std::filesystem::path& folder,
                                     const ContainerIndex& index);

// Compares the free space with what must still be written.
// Errors: no_memory, with both numbers; system.
io::Status check_space(const std::filesystem::path& folder, const ContainerIndex& index);

}  // namespace engine
