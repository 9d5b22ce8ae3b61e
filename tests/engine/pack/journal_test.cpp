#include "engine/pack/journal.h"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using testing::contains;
using testing::TemporaryFolder;

using Entries = std::map<std::uint64_t, std::uint64_t>;
const std::array<Journal::Entry, 3> kThree = {{{5, 50}, {7, 70}, {1ULL << 40, 3}}};

TEST_CASE("journal: what was appended is there when it is opened again") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "journal";
  for (int round = 0; round < 3; ++round) {
    io::Result<Journal> journal = Journal::open(file, "work", 9);
    REQUIRE(journal);
    CHECK(journal->finished().size() == (round == 0 ? 0 : 3 + round - 1));
    if (round == 0) REQUIRE(journal->append(kThree));
    const Journal::Entry more{static_cast<std::uint64_t>(100 + round), 1};
    if (round > 0) REQUIRE(journal->append({&more, 1}));
  }
  const io::Result<Journal> journal = Journal::open(file, "work", 9);
  REQUIRE(journal);
  CHECK(journal->finished() == Entries{{5, 50}, {7, 70}, {101, 1}, {102, 1}, {1ULL << 40, 3}});
}

TEST_CASE("journal: only one has it at a time") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "journal";
  {
    const io::Result<Journal> first = Journal::open(file, "work", 9);
    REQUIRE(first);
    const io::Result<Journal> second = Journal::open(file, "work", 9);
    REQUIRE(!second);
    CHECK(contains(second.error().message, "another process"));
  }
  CHECK(Journal::open(file, "work", 9));
}

TEST_CASE("journal: other work, and the same work on another source, are refused and unharmed") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "journal";
  REQUIRE(Journal::open(file, "pack of a", 9)->append(kThree));
  const std::string before = testing::read_file(file);
  const io::Result<Journal> other = Journal::open(file, "pack of b", 10);
  REQUIRE(!other);
  CHECK(contains(other.error().message, "pack of a"));
  CHECK(contains(other.error().message, "pack of b"));
  const io::Result<Journal> changed = Journal::open(file, "pack of a", 10);
  REQUIRE(!changed);
  CHECK(contains(changed.error().message, "its source has changed"));
  CHECK(testing::read_file(file) == before);
}

TEST_CASE("journal: every length that a crash may leave keeps whole entries and no others") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "journal";
  REQUIRE(Journal::open(file, "work", 9)->append(kThree));
  const std::string whole = testing::read_file(file);
  const std::size_t header = whole.size() - 3 * 24;
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    testing::write_file(file, whole.substr(0, n));
    const io::Result<Journal> journal = Journal::open(file, "work", 9);
    REQUIRE(journal);
    CHECK(journal->finished().size() == (n < header ? 0 : (n - header) / 24));
    const Journal::Entry next{6, 60};
    io::Result<Journal>& writable = const_cast<io::Result<Journal>&>(journal);
    REQUIRE(writable->append({&next, 1}));
  }
}

TEST_CASE("journal: an entry with a changed bit ends it") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "journal";
  REQUIRE(Journal::open(file, "work", 9)->append(kThree));
  const std::string whole = testing::read_file(file);
  for (std::size_t at = whole.size() - 48; at < whole.size() - 24; ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    testing::write_file(file, bytes);
    const io::Result<Journal> journal = Journal::open(file, "work", 9);
    REQUIRE(journal);
    CHECK(journal->finished() == Entries{{5, 50}});
  }
}

}  // namespace
}  // namespace engine
