#include "engine/host/cgroup.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/host/system_text.h"

namespace engine {
namespace {

bool lists(std::string_view commas, std::string_view word) {
  const std::vector<std::string_view> words = split_text(commas, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// mountinfo writes space, tab, newline and backslash as \040 and so on.
std::string unescape(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const bool octal = text.size() >= 4 && text[0] == '\\' &&
                       std::all_of(text.begin() + 1, text.begin() + 4,
                                   [](char c) { return c >= '0' && c <= '7'; });
    if (octal) {
      result.push_back(
          static_cast<char>((text[1] - '0') * 64 + (text[2] - '0') * 8 + text[3] - '0'));
    } else {
      result.push_back(text[0]);
    }
    text.remove_prefix(octal ? 4 : 1);
  }
  return result;
}

struct Mount {
  std::string group;             // the group whose folder the mount point is
  std::filesystem::path folder;  // the mount point
  int version;
};

// "36 35 0:31 /group /mount/point rw,nosuid shared:9 - cgroup2 cgroup2 rw,memory"
std::optional<Mount> parse_mount(std::string_view line, std::string_view controller) {
  const std::size_t dash = line.find(" - ");
  if (dash == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> place = split_text(line.substr(0, dash), ' ');
  const std::vector<std::string_view> kind = split_text(line.substr(dash + 3), ' ');
  if (place.size() < 5 || kind.size() < 3) return std::nullopt;
  const bool v2 = kind[0] == "cgroup2";
  const bool v1 = kind[0] == "cgroup" && lists(kind[2], controller);
  if (!v1 && !v2) return std::nullopt;
  return Mount{unescape(place[3]), unescape(place[4]), v2 ? 2 : 1};
}

// Where `group` lies under the mounted group, "" for that itself; nullopt if it is not visible.
std::optional<std::filesystem::path> below(const std::string& mounted, const std::string& group) {
  const std::filesystem::path relative = std::filesystem::path(group).lexically_relative(mounted);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative == "." ? std::filesystem::path() : relative;
}

// The group at `group` and its parents up to the mounted one.  A group outside what is mounted
// here (seen from inside a container) leaves the mounted one, which is its nearest visible parent.
void append_chain(const std::filesystem::path& root, const Mount& mount, const std::string& group,
                  std::vector<Cgroup>& to) {
  const std::filesystem::path mount_folder = root / mount.folder.relative_path();
  std::filesystem::path at = below(mount.group, group).value_or(std::filesystem::path());
  while (true) {
    const std::filesystem::path group_path(mount.group);
    const std::string name = at.empty() ? mount.group : (group_path / at).string();
    to.push_back({name, at.empty() ? mount_folder : mount_folder / at, mount.version});
    if (at.empty()) return;
    at = at.parent_path();
  }
}

}  // namespace

io::Result<std::vector<Cgroup>> find_cgroups(const std::filesystem::path& root,
                                             std::string_view controller) {
  io::Result<std::optional<std::string>> groups = read_system_text(root / "proc/self/cgroup");
  if (!groups) return std::move(groups.error());
  io::Result<std::optional<std::string>> mounts = read_system_text(root / "proc/self/mountinfo");
  if (!mounts) return std::move(mounts.error());
  std::vector<Cgroup> result;
  if (!*groups || !*mounts) return result;

  // "0::/a/b" for version 2, "7:cpu,cpuacct:/a/b" for a hierarchy of version 1.
  for (const std::string_view line : split_text(**groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !lists(controllers, controller)) continue;
    const int version = controllers.empty() ? 2 : 1;
    for (const std::string_view mount_line : split_text(**mounts, '\n')) {
      const std::optional<Mount> mount = parse_mount(mount_line, controller);
      if (!mount || mount->version != version) continue;
      append_chain(root, *mount, std::string(line.substr(second + 1)), result);
      break;
    }
  }
  return result;
}

}  // namespace engine
