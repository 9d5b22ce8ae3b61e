#include "engine/synth/sharing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "io/block.h"

namespace engine {
namespace {

using Block = ContainerIndex::Block;
using BlockKind = ContainerIndex::BlockKind;

// Blocks that may share: alike in length and in the scale of their values.
struct Group {
  std::vector<std::uint32_t> blocks;  // in the order of the index
  std::uint64_t block_bytes = 0;      // on disk, the rest of the last page included
  std::uint64_t n_in_layer = 0;       // of these, in the first layer that has any
  std::uint64_t n_slots = 0;          // that are stored
  bool is_expert = false;

  [[nodiscard]] std::uint64_t n_bytes() const { return blocks.size() * block_bytes; }
};

// "self_attn.q_proj.weight" of any layer.
std::string_view name_in_layer(std::string_view name) {
  const std::size_t at = name.find(".layers.");
  if (at == std::string_view::npos) return name;
  return name.substr(name.find('.', at + 8) + 1);
}

std::vector<Group> group_blocks(const ContainerIndex& index) {
  std::map<std::pair<std::string, std::uint32_t>, Group> by_key;
  for (std::uint32_t b = 0; b < index.blocks.size(); ++b) {
    const Block& block = index.blocks[b];
    if (block.kind == BlockKind::small) continue;
    const bool is_expert = block.kind == BlockKind::expert;
    const std::string name(is_expert ? "expert"
                                     : name_in_layer(index.tensors[block.owner_idx].name));
    Group& group = by_key[{name, block.count}];
    group.is_expert = is_expert;
    group.block_bytes = io::round_up(block.n_stored_bytes, index.alignment_bytes);
    if (group.blocks.empty() || index.blocks[group.blocks[0]].owner_idx == block.owner_idx) {
      ++group.n_in_layer;
    }
    group.blocks.push_back(b);
  }
  std::vector<Group> groups;
  for (auto& [key, group] : by_key) groups.push_back(std::move(group));
  return groups;
}

std::uint64_t small_bytes(const ContainerIndex& index) {
  std::uint64_t n_bytes = 0;
  for (const Block& block : index.blocks) {
    if (block.kind != BlockKind::small) continue;
    n_bytes += io::round_up(block.n_stored_bytes, index.alignment_bytes);
  }
  return n_bytes;
}

// Whether block i of a layer falls on block i of the next.
bool collides(const Group& group, std::uint64_t n_slots) { return group.n_in_layer % n_slots == 0; }

std::uint64_t min_slots(const Group& group) {
  std::uint64_t n_slots = 2;
  while (collides(group, n_slots)) ++n_slots;
  return std::min<std::uint64_t>(n_slots, group.blocks.size());
}

// As many as `share` of the group's length allows, or somewhat fewer where layers would collide.
void set_slots(Group& group, double share) {
  const std::size_t n_blocks = group.blocks.size();
  const std::uint64_t least = min_slots(group);
  group.n_slots = std::clamp<std::uint64_t>(
      static_cast<std::uint64_t>(share * static_cast<double>(n_blocks)), least, n_blocks);
  while (group.n_slots > least && group.n_slots < n_blocks && collides(group, group.n_slots)) {
    --group.n_slots;
  }
}

// The largest equal share of every group's length, for experts and for the rest, that fits.
void fill(std::vector<Group>& groups, bool experts, std::uint64_t room_bytes) {
  double low = 0;
  double high = 1;
  const auto try_share = [&](double share) {
    std::uint64_t n_bytes = 0;
    for (Group& group : groups) {
      if (group.is_expert != experts) continue;
      set_slots(group, share);
      n_bytes += group.n_slots * group.block_bytes;
    }
    return n_bytes <= room_bytes;
  };
  if (try_share(high)) return;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (try_share(middle) ? low : high) = middle;
  }
  try_share(low);
}

}  // namespace

io::Result<std::vector<std::uint32_t>> share_blocks(const ContainerIndex& index,
                                                    std::uint64_t max_bytes) {
  struct Bounds {
    std::uint64_t least_bytes = 0;
    std::uint64_t most_bytes = 0;
  };
  std::vector<Group> groups = group_blocks(index);
  Bounds experts;
  Bounds others;
  for (Group& group : groups) {
    set_slots(group, 0);
    Bounds& bounds = group.is_expert ? experts : others;
    bounds.least_bytes += group.n_slots * group.block_bytes;
    bounds.most_bytes += group.n_bytes();
  }
  const std::uint64_t least_bytes = small_bytes(index) + experts.least_bytes + others.least_bytes;
  if (least_bytes > max_bytes) {
    return io::Error{io::Errc::no_memory, 0,
                     fmt::format("{} bytes of blocks are too few: sharing all that may be shared "
                                 "leaves {}",
                                 max_bytes, least_bytes)};
  }
  // Half of what is not spoken for goes to each; what one of the two does not need the other gets.
  const std::uint64_t room_bytes = max_bytes - small_bytes(index);
  const std::uint64_t half_bytes = (max_bytes - least_bytes) / 2;
  std::uint64_t expert_room = std::min(experts.most_bytes, experts.least_bytes + half_bytes);
  const std::uint64_t other_room = std::min(others.most_bytes, room_bytes - expert_room);
  expert_room = std::min(experts.most_bytes, room_bytes - other_room);
  fill(groups, true, expert_room);
  fill(groups, false, other_room);

  std::vector<std::uint32_t> same_as(index.blocks.size());
  for (std::uint32_t b = 0; b < same_as.size(); ++b) same_as[b] = b;
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < group.blocks.size(); ++i) {
      same_as[group.blocks[i]] = group.blocks[i % group.n_slots];
    }
  }
  return same_as;
}

}  // namespace engine
