#include "engine/host/system_text.h"

#include <doctest/doctest.h>

#include "tests/temp_folder.h"

namespace engine {
namespace {

TEST_CASE("system_text: a file without a stated length is read to its end") {
  const io::Result<std::optional<std::string>> status = read_system_text("/proc/self/status");
  REQUIRE(status.has_value());
  REQUIRE(status->has_value());
  CHECK((*status)->ends_with('\n'));
  CHECK(find_number(**status, "VmRSS:").value_or(0) > 0);
}

TEST_CASE("system_text: an absent file is none, an unreadable one an error") {
  const tests::TempFolder folder;
  const io::Result<std::optional<std::string>> absent = read_system_text(folder.path() / "a/b");
  REQUIRE(absent.has_value());
  CHECK(!absent->has_value());
  const io::Result<std::optional<std::string>> unreadable = read_system_text(folder.path());
  REQUIRE(!unreadable.has_value());
  CHECK(unreadable.error().message.find(folder.path().string()) != std::string::npos);
}

TEST_CASE("system_text: numbers, whole or not at all") {
  CHECK(parse_number(" 12\n") == 12);
  CHECK(parse_number("18446744073709551615") == UINT64_MAX);
  for (const char* text : {"", "\n", "-1", "1x", "1 2", "max", "18446744073709551616"}) {
    CHECK(!parse_number(text));
  }
  const std::string_view lines = "file_dirty 1\nfile 4096\nMemTotal:   16 kB\nempty\n";
  CHECK(find_number(lines, "file") == 4096);
  CHECK(find_number(lines, "MemTotal:") == 16);
  CHECK(!find_number(lines, "empty"));
  CHECK(!find_number(lines, "Mem"));
  CHECK(!find_number("", "file"));
}

}  // namespace
}  // namespace engine
