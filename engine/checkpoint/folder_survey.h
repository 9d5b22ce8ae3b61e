// Compares the files of a checkpoint folder with those its index needs, before any is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/shard_index.h"
#include "io/error.h"

namespace engine {

// For each shard of the index, whether it is absent though nothing of the text model is in it.
// Links are followed.  Files that the index does not know are noted, never read.
// Errors: missing, one list of every absent shard (dangling links with their target).
io::Result<std::vector<bool>> survey_folder(const std::filesystem::path& folder,
                                            const ShardIndex& index,
                                            std::vector<std::string>& notes);

}  // namespace engine
