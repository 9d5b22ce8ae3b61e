#include "engine/verify/verify_released.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/synth/geometry.h"
#include "engine/synth/released_json.h"
#include "engine/verify/shard_sums.h"
#include "tests/engine/checkpoint/checkpoint_files.h"
#include "tests/engine/verify/damage.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::Json;
using testing::MadeUp;
using testing::TemporaryFolder;

constexpr std::string_view kIndex = "model.safetensors.index.json";
const std::string kNorm = "language_model.model.layers.1.input_layernorm.weight";

VerifyReport verify(const fs::path& folder, const VerifyOptions& options = {}) {
  io::Result<VerifyReport> report = verify_released(folder, options);
  REQUIRE(report);
  return std::move(*report);
}

bool any_has(const std::vector<std::string>& messages, std::string_view part) {
  return std::any_of(messages.begin(), messages.end(),
                     [&](const std::string& message) { return contains(message, part); });
}

// How many findings name the file.
std::ptrdiff_t count_naming(const VerifyReport& report, std::string_view name) {
  return std::count_if(report.bad.begin(), report.bad.end(),
                       [&](const std::string& message) { return contains(message, name); });
}

// The checksums of `model` as it is, in a folder of their own.
struct Recorded {
  TemporaryFolder folder;
  fs::path file = folder.path() / "sums";
  VerifyOptions check;

  explicit Recorded(const MadeUp& model) {
    VerifyOptions record;
    record.record_file = file;
    REQUIRE(verify(model.path(), record).whole());
    check.check_file = file;
  }
  void edit(const std::function<void(ShardSums&)>& edit) const {
    ShardSums sums = *read_sums(file);
    edit(sums);
    fs::remove(file);
    REQUIRE(NewSumsFile::create(file)->publish(sums));
  }
};

TEST_CASE("verify released: a whole model is whole, and no comparison is claimed") {
  const MadeUp model;
  const VerifyReport report = verify(model.path());
  CHECK(report.bad.empty());
  CHECK(report.whole());
  CHECK(report.n_checked == 7);
  CHECK(any_has(report.notes, "no published sizes are known"));
  CHECK(contains(report.scope, "structure, sizes and extents are as they should be"));
  CHECK(contains(report.scope, "bytes were not compared (see --record and --check)"));
  CHECK(report.n_read_bytes == model.open()->census.small.n_bytes);
}

TEST_CASE("verify released: a recorded model is compared whole, tokenizer and all") {
  const MadeUp model("deep25");
  const Recorded recorded(model);
  const ShardSums sums = *read_sums(recorded.file);
  CHECK(sums.size() == 26 + 5);
  for (const char* name : {"config.json", "generation_config.json", "tiktoken.model",
                           "tokenizer_config.json", "model.safetensors.index.json"}) {
    CHECK(sums.contains(name));
  }
  const VerifyReport report = verify(model.path(), recorded.check);
  CHECK(report.whole());
  CHECK(contains(report.scope, "every byte of 31 files was read"));
}

TEST_CASE("verify released: recording says that nothing was compared") {
  const MadeUp model;
  const TemporaryFolder folder;
  VerifyOptions options;
  options.record_file = folder.path() / "sums";
  CHECK(contains(verify(model.path(), options).scope, "their bytes were compared with nothing"));
}

TEST_CASE("verify released: a flipped byte in a shard, or in a file beside it, is named") {
  const MadeUp model;
  const Recorded recorded(model);
  const std::string was = digest_text(read_sums(recorded.file)->at(model.shard_name(4)));
  testing::flip_byte(model.shard(4), fs::file_size(model.shard(4)) - 1);
  testing::flip_byte(model.file("generation_config.json"), 0);
  CHECK(verify(model.path()).whole());  // nothing else can see it
  const VerifyReport report = verify(model.path(), recorded.check);
  REQUIRE(report.bad.size() == 2);
  CHECK(count_naming(report, "generation_config.json: its bytes differ") == 1);
  CHECK(count_naming(report, model.shard_name(4) + ": its bytes differ") == 1);
  CHECK(any_has(report.bad, was));
  CHECK_FALSE(contains(report.scope, "as they should be"));
}

TEST_CASE("verify released: what the checksum file lacks, and what only it has, is named") {
  const MadeUp model;
  const Recorded recorded(model);
  testing::write_file(model.file("LICENSE"), "text");
  recorded.edit([&](ShardSums& sums) {
    sums.erase(model.shard_name(3));
    sums["gone.safetensors"] = Digest{};
    sums["LICENSE"] = Digest{};  // there, though no run needs it: compared, too
  });
  const VerifyReport report = verify(model.path(), recorded.check);
  REQUIRE(report.bad.size() == 3);
  CHECK(count_naming(report, "LICENSE: its bytes differ") == 1);
  CHECK(count_naming(report, model.shard_name(3) + ": there is no checksum for it") == 1);
  CHECK(count_naming(report, "gone.safetensors: ") == 1);
  CHECK(any_has(report.bad, "it is not there"));
}

TEST_CASE("verify released: short shards, a hole, an extent, a flipped byte, all at once") {
  const MadeUp model;
  const Recorded recorded(model);
  const bool sparse = testing::knows_extents(model.path());
  fs::resize_file(model.shard(2), fs::file_size(model.shard(2)) - 4096);
  fs::resize_file(model.shard(6), fs::file_size(model.shard(6)) - 1);
  testing::flip_byte(model.shard(5), fs::file_size(model.shard(5)) - 1);
  const std::uint64_t n_bytes = fs::file_size(model.shard(3));
  if (sparse) {
    fs::resize_file(model.shard(3), 8 * 4096);
    fs::resize_file(model.shard(3), n_bytes);
    testing::unwrite(model.shard(4), 4 * 4096, 6 * 4096);
  }
  const VerifyReport report = verify(model.path(), recorded.check);
  CHECK(any_has(report.bad, model.shard_name(2) + ": too short"));
  CHECK(any_has(report.bad, "lacks 4096"));
  CHECK(any_has(report.bad, model.shard_name(6) + ": too short"));
  CHECK(any_has(report.bad, model.shard_name(5) + ": its bytes differ"));
  // Each short one by its length and its bytes; nothing a third time.
  CHECK(count_naming(report, model.shard_name(2)) == 2);
  CHECK(count_naming(report, model.shard_name(6)) == 2);
  CHECK(any_has(report.notes, "shards are too short"));
  if (!sparse) return;
  CHECK(any_has(report.bad, fmt::format("{}: bytes {} to {} were never written (a hole)",
                                        model.shard_name(3), 8 * 4096, n_bytes)));
  CHECK(any_has(report.bad, model.shard_name(4) + ": bytes 16384 to 24576 were preallocated"));
  CHECK(report.bad.size() == 3 * 2 + 1 + 2);
  CHECK(contains(report.scope, "9 things are wrong"));
}

TEST_CASE("verify released: missing shards are named one by one, once") {
  const MadeUp model;
  const Recorded recorded(model);
  fs::remove(model.shard(3));
  fs::remove(model.shard(7));
  testing::flip_byte(model.shard(1), fs::file_size(model.shard(1)) - 1);
  const VerifyReport report = verify(model.path(), recorded.check);
  CHECK(report.n_checked == 5);
  REQUIRE(report.bad.size() == 3);
  CHECK(any_has(report.bad, model.shard_name(3) + ": missing"));
  CHECK(any_has(report.bad, model.shard_name(7) + ": missing"));
  CHECK(any_has(report.bad, model.shard_name(1) + ": its bytes differ"));
  CHECK(any_has(report.notes, "shards are missing"));
}

TEST_CASE("verify released: more short shards than a message lists are all named") {
  const MadeUp model("deep25");
  for (std::uint32_t number = 1; number <= 26; ++number) {
    fs::resize_file(model.shard(number), fs::file_size(model.shard(number)) - 1);
  }
  const VerifyReport report = verify(model.path());
  CHECK(report.bad.size() == 26);
  for (std::uint32_t number = 1; number <= 26; ++number) {
    CHECK(count_naming(report, model.shard_name(number)) == 1);
  }
}

TEST_CASE("verify released: a file that is no shard does not hide a short one or a wrong shape") {
  const MadeUp model;
  testing::write_file(model.shard(1), "version https://git-lfs.github.com/spec/v1\n");
  fs::resize_file(model.shard(2), fs::file_size(model.shard(2)) - 1);
  const VerifyReport report = verify(model.path());
  CHECK(report.bad.size() == 2);
  CHECK(count_naming(report, model.shard_name(1)) == 1);
  CHECK(count_naming(report, model.shard_name(2)) == 1);

  const MadeUp other;
  fs::resize_file(other.shard(6), fs::file_size(other.shard(6)) - 1);
  other.edit_header(2, [](Json& header) { header[kNorm]["shape"] = {48, 2}; });
  const VerifyReport both = verify(other.path());
  CHECK(both.bad.size() == 2);
  CHECK(count_naming(both, other.shard_name(6)) == 1);
  CHECK(any_has(both.bad, kNorm));
}

TEST_CASE("verify released: tensors that the configuration wants and no shard has") {
  const MadeUp model;
  model.edit_config([](Json&, Json& text) { text["num_hidden_layers"] = 7; });
  const VerifyReport report = verify(model.path());
  REQUIRE(report.bad.size() == 1);
  CHECK_FALSE(report.whole());
}

TEST_CASE("verify released: a broken index, a broken configuration and a short shard at once") {
  const MadeUp model;
  testing::write_file(model.file(kIndex), "{");
  testing::write_file(model.file("config.json"), "[]");
  fs::resize_file(model.shard(2), fs::file_size(model.shard(2)) - 1);
  const VerifyReport report = verify(model.path());
  CHECK(report.n_checked == 7);
  CHECK(report.bad.size() == 3);
  CHECK(count_naming(report, kIndex) == 1);
  CHECK(count_naming(report, "config.json") == 1);
  CHECK(count_naming(report, model.shard_name(2)) == 1);
}

TEST_CASE("verify released: a configuration that is absent is one finding") {
  const MadeUp model;
  fs::remove(model.file("config.json"));
  const VerifyReport report = verify(model.path());
  CHECK(report.bad.size() == 1);
  CHECK(count_naming(report, "config.json: No such file") == 1);
}

TEST_CASE("verify released: a norm that is not a number is named") {
  const MadeUp model;
  const Catalogue catalogue = model.open()->catalogue;
  const SmallTensor& norm = catalogue.small.at(kNorm);
  testing::overwrite(model.shard(2), norm.range.offset_bytes, "\xC0\x7F");
  const VerifyReport report = verify(model.path());
  REQUIRE(report.bad.size() == 1);
  CHECK(contains(report.bad[0], kNorm + ": value 0 is nan"));
}

TEST_CASE("verify released: holes that are allowed are noted and not called written") {
  const MadeUp model;
  if (!testing::knows_extents(model.path())) return;
  // In experts: zeros are finite scales and weights.
  const std::uint64_t n_bytes = fs::file_size(model.shard(3));
  fs::resize_file(model.shard(3), n_bytes - 8192);
  fs::resize_file(model.shard(3), n_bytes);
  CHECK_FALSE(verify(model.path()).whole());
  VerifyOptions options;
  options.allow_holes = true;
  const VerifyReport report = verify(model.path(), options);
  CHECK(report.whole());
  CHECK(any_has(report.notes, "read as zeros: allowed"));
  CHECK(contains(report.scope, "holes and unwritten extents were allowed"));
}

// A K3 by its configuration, of which one shard is there: large enough for its own header only.
void make_k3(const MadeUp& model) {
  const io::Result<Geometry> k3 = find_geometry("kimi-k3");
  REQUIRE(k3);
  testing::write_file(model.file("config.json"), released_config(k3->config));
  Json index;
  for (int number = 1; number <= 94; ++number) {
    index["weight_map"][fmt::format("language_model.x{}", number)] =
        fmt::format("model-{:05}-of-000096.safetensors", number);
  }
  testing::write_file(model.file(kIndex), index.dump());
  const std::string header = R"({"language_model.x5":{"dtype":"U8","shape":[8],)"
                             R"("data_offsets":[0,8]}})";
  testing::write_file(model.file("model-00005-of-000096.safetensors"),
                      testing::shard_bytes(header, "12345678"));
}

TEST_CASE("verify released: a shard of K3 that is not of the published size is named with both") {
  const MadeUp model;
  make_k3(model);
  const std::uint64_t n_bytes = fs::file_size(model.file("model-00005-of-000096.safetensors"));
  const VerifyReport report = verify(model.path());
  CHECK(report.n_checked == 1);
  CHECK(report.bad.size() == 93 + 1);
  CHECK(any_has(report.bad,
                fmt::format("model-00005-of-000096.safetensors: it has {} bytes, the published "
                            "one 16990911504",
                            n_bytes)));
  CHECK(any_has(report.notes, "2 of the 96 published shards are not among this checkpoint's"));
}

TEST_CASE("verify released: nothing is recorded of what is not whole, and nothing is left") {
  const MadeUp model;
  const TemporaryFolder folder;
  VerifyOptions options;
  options.record_file = folder.path() / "sums";
  fs::resize_file(model.shard(2), fs::file_size(model.shard(2)) - 1);
  const VerifyReport report = verify(model.path(), options);
  CHECK(report.bad.size() == 1);
  CHECK(any_has(report.notes, "sums was not written"));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("verify released: what keeps the work from beginning is an error") {
  const MadeUp model;
  const Recorded recorded(model);
  VerifyOptions over;
  over.record_file = recorded.file;
  std::uint64_t n_progress = 0;
  over.hash.progress = [&](std::uint64_t, std::uint64_t) { ++n_progress; };
  io::Result<VerifyReport> report = verify_released(model.path(), over);
  REQUIRE_FALSE(report);
  CHECK(report.error().code == io::Errc::invalid);
  CHECK(n_progress == 0);

  testing::write_file(recorded.file, testing::read_file(recorded.file) + "x\n");
  report = verify_released(model.path(), recorded.check);
  REQUIRE_FALSE(report);
  CHECK(contains(report.error().message, "sums: line 11: "));

  report = verify_released(model.path() / "absent", {});
  REQUIRE_FALSE(report);
  CHECK(report.error().sys == ENOENT);
  report = verify_released(model.file("config.json"), {});
  REQUIRE_FALSE(report);
  CHECK(report.error().sys == ENOTDIR);
}

TEST_CASE("verify released: an interrupted one is not whole, and keeps what it has found") {
  const MadeUp model;
  const Recorded recorded(model);
  const TemporaryFolder folder;
  for (const bool record : {true, false}) {
    std::atomic<bool> interrupted = false;
    VerifyOptions options;
    (record ? options.record_file : options.check_file) =
        record ? folder.path() / "sums" : recorded.file;
    options.hash.jobs = 1;
    options.hash.interrupted = &interrupted;
    options.hash.progress = [&](std::uint64_t, std::uint64_t) { interrupted = true; };
    const VerifyReport report = verify(model.path(), options);
    CHECK(report.interrupted);
    CHECK_FALSE(report.whole());
    CHECK(report.bad.empty());
    CHECK_FALSE(contains(report.scope, "as they should be"));
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("verify released: without an index a single file is the model") {
  const MadeUp model;
  fs::remove(model.file(kIndex));
  const VerifyReport report = verify(model.path());
  REQUIRE(report.bad.size() == 1);
  CHECK(contains(report.bad[0], "7 *.safetensors files"));
  CHECK(report.n_checked == 7);
}

}  // namespace
}  // namespace engine
