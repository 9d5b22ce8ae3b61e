// The sizes that the shards of a published model have, to the byte.
// Source: the file list of Kimi K3's release.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/config.h"

namespace engine {

struct PublishedShard {
  std::string file_name;
  std::uint64_t n_bytes = 0;
};

// The 96 shards of Kimi K3 in order, if the config has all of its sizes; else none: nothing is
// known about that model.
std::vector<PublishedShard> published_shards(const Config& config);

}  // namespace engine
