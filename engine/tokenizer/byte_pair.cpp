#include "engine/tokenizer/byte_pair.h"

#include <cassert>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

namespace engine {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// The parts a chunk is cut into, as a doubly linked list over their first bytes, and a queue of
// the merges that are possible.  A queued merge is not taken back when a neighbour changes: it is
// recognised as stale by its ends.
class Merger {
 public:
  Merger(const Vocabulary& vocabulary, std::string_view chunk)
      : vocabulary_(vocabulary), chunk_(chunk), parts_(chunk.size()) {
    const auto n = static_cast<std::uint32_t>(chunk.size());
    for (std::uint32_t i = 0; i < n; ++i) parts_[i] = {i + 1, i == 0 ? kNone : i - 1};
    std::vector<Merge> merges;
    merges.reserve(n);
    for (std::uint32_t i = 0; i + 1 < n; ++i) {
      if (const auto rank = vocabulary.rank(chunk.substr(i, 2)))
        merges.push_back({*rank, i, i + 2});
    }
    queue_ = Queue(std::greater<>(), std::move(merges));
  }

  void run() {
    while (!queue_.empty()) {
      const Merge merge = queue_.top();
      queue_.pop();
      if (is_current(merge)) apply(merge);
    }
  }

  void append_ids(std::vector<std::uint32_t>& ids) const {
    for (std::uint32_t i = 0; i < parts_.size(); i = parts_[i].end) {
      const auto rank = vocabulary_.rank(chunk_.substr(i, parts_[i].end - i));
      assert(rank && "single bytes and merged parts are tokens");
      ids.push_back(*rank);
    }
  }

 private:
  // One part, at the index of its first byte.  `end` is where the next part begins, and 0 for a
  // byte that begins no part any more.
  struct Part {
    std::uint32_t end, previous;
  };
  struct Merge {
    std::uint32_t rank, begin, end;
    auto operator<=>(const Merge&) const = default;  // rank first, then the leftmost
  };
  using Queue = std::priority_queue<Merge, std::vector<Merge>, std::greater<>>;

  // Still two whole neighbours: a part begins at `begin`, and the one after it ends at `end`.
  [[nodiscard]] bool is_current(const Merge& merge) const {
    const std::uint32_t middle = parts_[merge.begin].end;
    return middle != 0 && middle < merge.end && parts_[middle].end == merge.end;
  }

  void apply(const Merge& merge) {
    parts_[parts_[merge.begin].end].end = 0;
    parts_[merge.begin].end = merge.end;
    if (merge.end < parts_.size()) {
      parts_[merge.end].previous = merge.begin;
      offer(merge.begin);
    }
    if (merge.begin > 0) offer(parts_[merge.begin].previous);
  }

  // Queues the merge of the part at `begin` with the one after it, if they form a token.
  void offer(std::uint32_t begin) {
    const std::uint32_t end = parts_[parts_[begin].end].end;
    if (const auto rank = vocabulary_.rank(chunk_.substr(begin, end - begin))) {
      queue_.push({*rank, begin, end});
    }
  }

  const Vocabulary& vocabulary_;
  std::string_view chunk_;
  std::vector<Part> parts_;
  Queue queue_;
};

}  // namespace

void append_byte_pair_ids(const Vocabulary& vocabulary, std::string_view chunk,
                          std::vector<std::uint32_t>& ids) {
  assert(!chunk.empty() && chunk.size() < kNone);
  if (const auto rank = vocabulary.rank(chunk)) {
    ids.push_back(*rank);
    return;
  }
  Merger merger(vocabulary, chunk);
  merger.run();
  merger.append_ids(ids);
}

}  // namespace engine
