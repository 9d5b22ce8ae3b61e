#include "engine/verify/shard_sums.h"

#include <doctest/doctest.h>

#include <cctype>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::TemporaryFolder;

const std::string kEmpty = "99aa06d3014798d86001c324468d497f";  // XXH3-128 of nothing

std::string refusal(const std::string& text) {
  const io::Result<ShardSums> sums = parse_sums(text);
  REQUIRE_FALSE(sums);
  CHECK(sums.error().code == io::Errc::corrupt);
  return sums.error().message;
}

std::size_t count_files(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("shard sums: what is published is sorted, two spaces apart, and reads back") {
  const TemporaryFolder folder;
  const Digest nothing = parse_sums(kEmpty + "  x\n")->at("x");
  CHECK(digest_text(nothing) == kEmpty);
  ShardSums sums = {{"b.safetensors", nothing}, {"a b", Digest{}}};
  io::Result<NewSumsFile> file = NewSumsFile::create(folder.path() / "sums");
  REQUIRE(file);
  CHECK_FALSE(fs::exists(folder.path() / "sums"));
  REQUIRE(file->publish(sums));
  CHECK(testing::read_file(folder.path() / "sums") ==
        std::string(32, '0') + "  a b\n" + kEmpty + "  b.safetensors\n");
  CHECK(*read_sums(folder.path() / "sums") == sums);
  CHECK(count_files(folder.path()) == 1);
}

TEST_CASE("shard sums: digits may be capitals") {
  std::string digits = kEmpty;
  for (char& digit : digits) digit = static_cast<char>(std::toupper(digit));
  CHECK(digest_text(parse_sums(digits + "  x\n")->at("x")) == kEmpty);
}

TEST_CASE("shard sums: a damaged line is refused with its number") {
  struct Case {
    const char* what;
    std::string line, message;
  };
  const std::string good = kEmpty + "  ok\n";
  for (const Case& c : {
           Case{"a digit lost", kEmpty.substr(1) + "  x\n", "want 32 hexadecimal digits"},
           Case{"one space", kEmpty + " x\n", "want 32 hexadecimal digits"},
           Case{"a binary marker", kEmpty + " *x\n", "want 32 hexadecimal digits"},
           Case{"no digit", kEmpty.substr(1) + "g  x\n", "not hexadecimal digits"},
           Case{"a minus", kEmpty.substr(1) + "-  x\n", "not hexadecimal digits"},
           Case{"no name", kEmpty + "  \n", "want 32 hexadecimal digits"},
           Case{"an empty line", "\n", "want 32 hexadecimal digits"},
           Case{"the other format", "XXH128 (x) = " + kEmpty + "\n", "want 32 hexadecimal"},
           Case{"a path", kEmpty + "  a/b\n", "\"a/b\" is not the name of a file"},
           Case{"the parent", kEmpty + "  ..\n", "is not the name of a file"},
           Case{"a DOS line end", kEmpty + "  x\r\n", "is not the name of a file"},
           Case{"a zero byte", kEmpty + "  x" + std::string(1, '\0') + "\n", "not the name"},
           Case{"a name twice", kEmpty + "  ok\n", "ok is there twice"},
           Case{"no line end", kEmpty + "  x", "cut short"},
       }) {
    CAPTURE(c.what);
    const std::string message = refusal(good + c.line);
    CHECK(contains(message, "line 2: "));
    CHECK(contains(message, c.message));
  }
  CHECK(contains(refusal(""), "no line"));
}

TEST_CASE("shard sums: every prefix of a file is refused or lacks whole lines only") {
  const std::string text = kEmpty + "  a\n" + kEmpty + "  b\n";
  for (std::size_t n = 0; n < text.size(); ++n) {
    CAPTURE(n);
    const io::Result<ShardSums> sums = parse_sums(std::string_view(text).substr(0, n));
    CHECK(sums.has_value() == (n == text.size() / 2));
  }
}

TEST_CASE("shard sums: errors of a file name it") {
  const TemporaryFolder folder;
  testing::write_file(folder.path() / "sums", "x\n");
  CHECK(contains(read_sums(folder.path() / "sums").error().message,
                 (folder.path() / "sums").string() + ": line 1: "));
  CHECK(read_sums(folder.path() / "absent").error().sys == ENOENT);
}

TEST_CASE("shard sums: a file that exists is refused before it is written, a link too") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "sums";
  testing::write_file(path, "mine");
  fs::create_symlink("nowhere", folder.path() / "link");
  for (const fs::path& taken : {path, folder.path() / "link"}) {
    const io::Result<NewSumsFile> file = NewSumsFile::create(taken);
    REQUIRE_FALSE(file);
    CHECK(file.error().code == io::Errc::invalid);
    CHECK(contains(file.error().message, taken.string() + ": exists already"));
  }
  CHECK(testing::read_file(path) == "mine");
  CHECK(count_files(folder.path()) == 2);
  CHECK(NewSumsFile::create(folder.path() / "no" / "folder").error().sys == ENOENT);
}

TEST_CASE("shard sums: one that is not published leaves nothing, nor does one that cannot be") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "sums";
  { REQUIRE(NewSumsFile::create(path)); }
  CHECK(count_files(folder.path()) == 0);
  {
    io::Result<NewSumsFile> file = NewSumsFile::create(path);
    REQUIRE(file);
    const io::Status published = file->publish({{"two\nlines", Digest{}}});
    REQUIRE_FALSE(published);
    CHECK(published.error().code == io::Errc::invalid);
  }
  CHECK(count_files(folder.path()) == 0);
  {
    io::Result<NewSumsFile> file = NewSumsFile::create(path);
    REQUIRE(file);
    testing::write_file(path, "somebody else's");
    const io::Status published = file->publish({{"x", Digest{}}});
    REQUIRE_FALSE(published);
    CHECK(published.error().sys == EEXIST);
  }
  CHECK(testing::read_file(path) == "somebody else's");
  CHECK(count_files(folder.path()) == 1);
}

}  // namespace
}  // namespace engine
