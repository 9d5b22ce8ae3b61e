// Reads every #include of the project and holds the rule of the rooms: an arrow points down only.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

using Names = std::set<std::string>;

// What each room may include of the project, by the longest prefix of the path; tests and
// benchmarks may include everything.
const std::map<std::string, Names> kRooms = {
    {"io", {"io"}},
    {"kernels", {"kernels"}},
    {"scheduler", {"scheduler", "io/block.h", "io/error.h"}},
    {"engine", {"engine", "scheduler", "kernels", "io"}},
    {"tools", {"tools", "engine", "scheduler", "kernels", "io"}},
};

// Libraries that belong to some rooms only.
const std::map<std::string, Names> kLibraries = {
    {"liburing.h", {"io"}},
    {"tbb/", {"engine"}},
    {"CLI/", {"tools"}},
    {"immintrin.h", {"kernels"}},
    {"simdjson.h", {"engine"}},
    {"pcre2.h", {"engine"}},
    {"thread", {"io", "engine"}},
    {"mutex", {"io", "engine"}},
    {"condition_variable", {"io", "engine"}},
};

std::string room_of(const std::string& path) { return path.substr(0, path.find('/')); }

bool allowed(const Names& names, const std::string& header) {
  for (const std::string& name : names) {
    if (header == name || header.starts_with(name + "/")) return true;
  }
  return false;
}

struct Include {
  std::string file, header;
  bool quoted;
};

std::vector<Include> all_includes() {
  const std::filesystem::path root = SLUICE_SOURCE_FOLDER;
  std::vector<Include> includes;
  for (const char* room : {"io", "kernels", "scheduler", "engine", "tools"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / room)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        constexpr std::string_view kInclude = "#include ";
        if (!line.starts_with(kInclude)) continue;
        const char open = line.at(kInclude.size());
        const std::size_t begin = kInclude.size() + 1;
        const std::size_t end = line.find(open == '<' ? '>' : open, begin);
        includes.push_back({std::filesystem::relative(entry.path(), root).string(),
                            line.substr(begin, end - begin), open == '"'});
      }
    }
  }
  return includes;
}

}  // namespace

TEST_CASE("layers: every include of the project points down") {
  const auto includes = all_includes();
  REQUIRE(includes.size() > 300);
  for (const Include& include : includes) {
    if (!include.quoted) continue;
    CAPTURE(include.file);
    CAPTURE(include.header);
    CHECK(kRooms.contains(room_of(include.header)));  // written from the root
    CHECK(allowed(kRooms.at(room_of(include.file)), include.header));
  }
}

TEST_CASE("layers: libraries stay in their rooms") {
  for (const Include& include : all_includes()) {
    if (include.quoted) continue;
    for (const auto& [library, rooms] : kLibraries) {
      const bool is_it =
          library.ends_with('/') ? include.header.starts_with(library) : include.header == library;
      if (!is_it) continue;
      CAPTURE(include.file);
      CAPTURE(include.header);
      CHECK(rooms.contains(room_of(include.file)));
    }
  }
}

TEST_CASE("layers: only the instruction sets' own files hold intrinsics") {
  for (const Include& include : all_includes()) {
    if (include.header != "immintrin.h") continue;
    CAPTURE(include.file);
    CHECK(include.file.starts_with("kernels/avx"));
  }
}
