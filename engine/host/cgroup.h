// The control groups this process is in: where the limits of a container or a service are.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

struct Cgroup {
  std::string name;              // its path in the hierarchy, "/a/b"
  std::filesystem::path folder;  // of its files
  int version = 2;               // 1 or 2: their names differ
};

// The groups of this process that `controller` ("memory", "cpu") may limit, each followed by its
// parents as far as they are mounted here.  Every one of them binds: a group without a limit is
// still under its parents'.  Both versions are listed where both are mounted.
//
//   root   holds proc/self/cgroup, proc/self/mountinfo and the mount points they name
//
// None if those files are absent.  Errors: system.
io::Result<std::vector<Cgroup>> find_cgroups(const std::filesystem::path& root,
                                             std::string_view controller);

}  // namespace engine
