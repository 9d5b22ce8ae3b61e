#include "engine/host/io_counts.h"

#include <string>

#include "engine/host/system_text.h"
#include "io/error.h"

namespace engine {

std::optional<std::uint64_t> storage_read_bytes(const std::filesystem::path& root) {
  const io::Result<std::optional<std::string>> text = read_system_text(root / "proc/self/io");
  if (!text || !*text) return std::nullopt;
  return find_number(**text, "read_bytes:");
}

}  // namespace engine
