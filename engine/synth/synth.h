// Writes a made-up checkpoint in the released layout: shards, index, config, tokenizer.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "engine/synth/geometry.h"
#include "io/error.h"

namespace engine {

struct SynthOptions {
  // Called now and then with bytes written and bytes in all; may be empty.
  std::function<void(std::uint64_t n_done_bytes, std::uint64_t n_bytes)> progress;
  // Looked at between blocks of about a MiB; true ends the work.  May be null.
  const std::atomic<bool>* interrupted = nullptr;
};

// Errors: invalid, what no model can have.
io::Status check_geometry(const Geometry& geometry);

// Bytes of all shards.
std::uint64_t synth_bytes(const Geometry& geometry);

// Writes into a folder beside `out` and renames it when everything is on disk, so that `out` is
// whole or absent; whatever goes wrong, the unfinished folder is removed.
// Errors: invalid (`out` exists, a geometry that a model cannot have); no_memory (not enough
// space on the device, with both numbers); interrupted; system.
io::Status write_made_up(const Geometry& geometry, const std::filesystem::path& out,
                         const SynthOptions& options = {});

}  // namespace engine
