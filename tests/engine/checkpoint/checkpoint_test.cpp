#include "engine/checkpoint/checkpoint.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::header_of;
using testing::Json;
using testing::MadeUp;
using testing::open_error;
using testing::read_file;
using testing::write_file;

constexpr std::string_view kIndex = "model.safetensors.index.json";
const std::string kLayer1 = "language_model.model.layers.1.";

bool has_note(const Checkpoint& checkpoint, std::string_view part) {
  return std::any_of(checkpoint.notes.begin(), checkpoint.notes.end(),
                     [&](const std::string& note) { return contains(note, part); });
}

TEST_CASE("checkpoint: a made-up model opens with every tensor counted") {
  const MadeUp model;
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  const Census& census = checkpoint->census;
  CHECK(census.total.n_tensors == 390);
  CHECK(census.experts.n_tensors == 5 * 8 * 6);
  CHECK(census.ignored.n_tensors == 0);
  CHECK(census.n_shards == 7);
  CHECK(census.u8.n_bytes == census.experts.n_bytes);
  CHECK(census.experts.n_parameters == 5 * 8 * 3 * 32 * 64);
  CHECK(census.total.n_bytes == census.experts.n_bytes + census.trunk.n_bytes +
                                    census.lm_head.n_bytes + census.embedding.n_bytes +
                                    census.small.n_bytes);
  CHECK(checkpoint->notes.empty());
}

TEST_CASE("checkpoint: missing shards are listed by name") {
  const MadeUp model;
  fs::remove(model.shard(3));
  fs::remove(model.shard(7));
  const io::Error error = open_error(model);
  CHECK(error.code == io::Errc::missing);
  CHECK(contains(error.message, "2 of 7 shards are missing"));
  CHECK(contains(error.message, model.shard_name(3)));
  CHECK(contains(error.message, model.shard_name(7)));
  CHECK(contains(error.message, "incomplete download"));
}

TEST_CASE("checkpoint: short shards are listed with the bytes they lack") {
  const MadeUp model;
  fs::resize_file(model.shard(2), fs::file_size(model.shard(2)) - 4096);
  fs::resize_file(model.shard(5), 100);
  const io::Error error = open_error(model);
  CHECK(error.code == io::Errc::corrupt);
  CHECK(contains(error.message, "2 of 7 shards are too short"));
  CHECK(contains(error.message, model.shard_name(2) + " has "));
  CHECK(contains(error.message, "lacks 4096"));
  CHECK(contains(error.message, model.shard_name(5) + " has 100 bytes"));
}

TEST_CASE("checkpoint: trailing bytes are refused with their number") {
  const MadeUp model;
  write_file(model.shard(2), read_file(model.shard(2)) + std::string(16, 'x'));
  CHECK(contains(open_error(model).message, "16 extra"));
}

TEST_CASE("checkpoint: an index that names the wrong shard is refused with both") {
  const MadeUp model;
  const std::string name = kLayer1 + "mlp_res_norm.weight";
  model.edit_json(kIndex, [&](Json& index) { index["weight_map"][name] = model.shard_name(3); });
  const io::Error error = open_error(model);
  CHECK(error.code == io::Errc::corrupt);
  CHECK(contains(error.message, name));
  CHECK(contains(error.message, "in " + model.shard_name(3) + ", which lacks it"));
  CHECK(contains(error.message, "it is in " + model.shard_name(2)));
}

TEST_CASE("checkpoint: an index that names an unknown tensor is refused") {
  const MadeUp model;
  model.edit_json(kIndex, [&](Json& index) {
    index["weight_map"]["language_model.ghost"] = model.shard_name(3);
  });
  CHECK(contains(open_error(model).message, "language_model.ghost"));
}

TEST_CASE("checkpoint: the index decides between copies of a tensor, leftovers are noted") {
  const MadeUp model;
  const std::string name = "language_model.model.norm.weight";
  // A stale copy of the norm, all zeros, at the end of the second shard.
  const std::string bytes = read_file(model.shard(2));
  Json header = Json::parse(header_of(bytes));
  const std::size_t n_data = testing::data_of(bytes).size();
  header[name] = {{"dtype", "BF16"}, {"shape", {96}}, {"data_offsets", {n_data, n_data + 192}}};
  write_file(model.shard(2),
             testing::shard_bytes(header.dump(), testing::data_of(bytes) + std::string(192, '\0')));
  fs::copy_file(model.shard(7), model.file("model.safetensors"));
  write_file(model.file("blob.incomplete"), read_file(model.shard(7)));
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  io::Result<std::vector<float>> norm = testing::read_small(checkpoint->catalogue, name);
  REQUIRE(norm);
  CHECK((*norm)[0] > 0.7F);
  CHECK(has_note(*checkpoint, "1 tensors lie in shards other than the index says"));
  CHECK(has_note(*checkpoint, "not in the index, not read: model.safetensors"));
  CHECK(has_note(*checkpoint, "unfinished downloads, not read: blob.incomplete"));
}

TEST_CASE("checkpoint: absent layers and tensors come in one report") {
  const MadeUp model;
  const auto forget = [&](std::string_view part) {
    model.edit_json(kIndex, [&](Json& index) {
      Json& map = index["weight_map"];
      for (auto item = map.begin(); item != map.end();) {
        item = contains(item.key(), part) ? map.erase(item) : std::next(item);
      }
    });
  };
  forget(".layers.2.");
  forget(".layers.3.");
  forget("layers.1.block_sparse_moe.experts.5.");
  forget("layers.4.input_layernorm");
  forget("lm_head");
  const io::Error error = open_error(model);
  CHECK(error.code == io::Errc::missing);
  CHECK(contains(error.message, "all of layers 2-3"));
  CHECK(contains(error.message, kLayer1 + "block_sparse_moe.experts.5.*"));
  CHECK(contains(error.message, "language_model.model.layers.4.input_layernorm.weight"));
  CHECK(contains(error.message, "language_model.lm_head.weight"));
}

TEST_CASE("checkpoint: a long list of absent tensors is cut with a count") {
  const MadeUp model;
  model.edit_config([](Json&, Json& text) { text["num_experts"] = 5000; });
  model.edit_header(2, [](Json& header) {
    header["language_model.model.layers.1.block_sparse_moe.gate.weight"]["shape"] = {8, 96};
  });
  const io::Error error = open_error(model);
  CHECK(!error.message.empty());
  CHECK(error.message.size() < 4000);
}

TEST_CASE("checkpoint: shapes and dtypes are those of the config") {
  const MadeUp model;
  model.edit_header(2, [](Json& header) {
    header["language_model.model.layers.1.self_attn.q_proj.weight"]["shape"] = {96, 32};
  });
  const io::Error shape = open_error(model);
  CHECK(shape.code == io::Errc::invalid);
  CHECK(contains(shape.message, "q_proj.weight has shape [96, 32], the config wants [32, 96]"));
  CHECK(contains(shape.message, model.shard_name(2)));

  const MadeUp other;
  other.edit_header(2, [](Json& header) {
    header["language_model.model.layers.1.self_attn.q_proj.weight"]["dtype"] = "F16";
  });
  CHECK(contains(open_error(other).message, "q_proj.weight is F16, want BF16"));
}

TEST_CASE("checkpoint: the dtype label of scales changes nothing") {
  const MadeUp model;
  model.edit_header(2, [](Json& header) {
    for (auto& [name, tensor] : header.items()) {
      if (name.ends_with("weight_scale")) tensor["dtype"] = "F8_E8M0";
    }
  });
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  CHECK(checkpoint->census.other.n_tensors == 24);
}

TEST_CASE("checkpoint: the order of keys in a header is of no account") {
  const MadeUp model;
  model.edit_header(2, [](Json& header) {
    std::vector<std::pair<std::string, Json>> items;
    for (auto& [name, tensor] : header.items()) items.emplace_back(name, tensor);
    std::reverse(items.begin(), items.end());
    header = Json::object();
    for (auto& [name, tensor] : items) header[name] = tensor;
  });
  CHECK(open_error(model).message.empty());
}

TEST_CASE("checkpoint: an expert in pieces is refused with the two offsets") {
  const MadeUp model;
  model.edit_header(2, [](Json& header) {
    const std::string experts = "language_model.model.layers.1.block_sparse_moe.experts.";
    std::swap(header[experts + "0.w1.weight_scale"]["data_offsets"],
              header[experts + "1.w1.weight_scale"]["data_offsets"]);
  });
  const io::Error error = open_error(model);
  CHECK(error.code == io::Errc::unsupported);
  CHECK(contains(error.message, "must follow each other"));
  CHECK(contains(error.message, "file offset"));
}

TEST_CASE("checkpoint: tensors outside the text model are ignored with a count") {
  const MadeUp model;
  const std::string vision = "model-00008-of-000008.safetensors";
  const std::string header =
      R"({"vision_tower.w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
      R"("language_model.model.layers.9.x":{"dtype":"I8","shape":[0],"data_offsets":[16,16]}})";
  write_file(model.file(vision), testing::shard_bytes(header, std::string(16, 'x')));
  model.edit_json(kIndex, [&](Json& index) {
    index["weight_map"]["vision_tower.w"] = vision;
    index["weight_map"]["language_model.model.layers.9.x"] = vision;
  });
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  CHECK(checkpoint->census.ignored.n_tensors == 2);
  CHECK(has_note(*checkpoint, "2 tensors of 16 bytes are not of the text model"));
  CHECK(checkpoint->catalogue.files.size() == 7);
}

TEST_CASE("checkpoint: a missing shard with nothing of the text model is noted") {
  const MadeUp model;
  model.edit_json(kIndex,
                  [&](Json& index) { index["weight_map"]["vision_tower.w"] = "v.safetensors"; });
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  CHECK(has_note(*checkpoint, "v.safetensors"));
}

TEST_CASE("checkpoint: names without the prefix work when none has it") {
  const MadeUp model;
  const std::string prefix = "language_model.";
  const auto strip = [&](Json& map) {
    Json stripped = Json::object();
    for (auto& [name, value] : map.items()) {
      stripped[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = value;
    }
    map = stripped;
  };
  model.edit_json(kIndex, [&](Json& index) { strip(index["weight_map"]); });
  for (std::uint32_t number = 1; number <= 7; ++number) model.edit_header(number, strip);
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  CHECK(checkpoint->catalogue.small.count("model.norm.weight") == 1);
}

TEST_CASE("checkpoint: holes in a tensor are refused unless they are meant") {
  const MadeUp model;
  const std::uint64_t n_bytes = fs::file_size(model.shard(2));
  fs::resize_file(model.shard(2), n_bytes - 32768);
  fs::resize_file(model.shard(2), n_bytes);  // the same length, the tail never written
  const io::Error error = open_error(model);
  if (error.message.empty()) return;  // this filesystem knows no holes
  CHECK(error.code == io::Errc::corrupt);
  CHECK(contains(error.message, model.shard_name(2)));
  CHECK(contains(error.message, "--allow-holes"));
  CHECK(contains(error.message, "in tensor language_model.model.layers.1."));
  io::Result<Checkpoint> checkpoint = model.open({.allow_holes = true});
  REQUIRE(checkpoint);
  CHECK(has_note(*checkpoint, "holes and read as zeros"));
}

TEST_CASE(
    "checkpoint: snapshots of links into blobs open, a dangling one is named with its target") {
  const MadeUp model;
  const testing::TemporaryFolder hub;
  const fs::path snapshot = hub.path() / "snapshots" / "h";
  fs::create_directories(snapshot);
  fs::create_directories(hub.path() / "blobs");
  int blob = 0;
  for (const fs::directory_entry& item : fs::directory_iterator(model.path())) {
    const std::string name = fmt::format("{:064x}", ++blob);
    fs::copy_file(item.path(), hub.path() / "blobs" / name);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / item.path().filename());
  }
  CHECK(open_checkpoint(snapshot).has_value());
  const fs::path third = snapshot / model.shard_name(3);
  const std::string target = fs::read_symlink(third).string();
  fs::remove(snapshot / target);
  io::Result<Checkpoint> dangling = open_checkpoint(snapshot);
  REQUIRE(!dangling);
  CHECK(contains(dangling.error().message, model.shard_name(3)));
  CHECK(contains(dangling.error().message, target));
}

TEST_CASE("checkpoint: a single file opens without an index, two do not") {
  const testing::TemporaryFolder folder;
  const MadeUp model;
  Json merged = Json::object();
  std::string data;
  for (std::uint32_t number = 1; number <= 7; ++number) {
    const std::string bytes = read_file(model.shard(number));
    const Json header = Json::parse(header_of(bytes));
    for (const auto& [name, tensor] : header.items()) {
      merged[name] = tensor;
      for (auto& offset : merged[name]["data_offsets"]) {
        offset = offset.get<std::size_t>() + data.size();
      }
    }
    data += testing::data_of(bytes);
  }
  fs::copy_file(model.file("config.json"), folder.path() / "config.json");
  write_file(folder.path() / "model.safetensors", testing::shard_bytes(merged.dump(), data));
  io::Result<Checkpoint> checkpoint = open_checkpoint(folder.path());
  REQUIRE(checkpoint);
  CHECK(checkpoint->census.total.n_tensors == 390);
  write_file(folder.path() / "more.safetensors", "");
  io::Result<Checkpoint> two = open_checkpoint(folder.path());
  REQUIRE(!two);
  CHECK(contains(two.error().message, "2 *.safetensors files"));
}

TEST_CASE("checkpoint: folders that are none are refused by name") {
  const testing::TemporaryFolder folder;
  io::Result<Checkpoint> absent = open_checkpoint(folder.path() / "none");
  REQUIRE(!absent);
  CHECK(contains(absent.error().message, "none"));
  io::Result<Checkpoint> empty = open_checkpoint(folder.path());
  REQUIRE(!empty);
  CHECK(empty.error().code == io::Errc::missing);
  const MadeUp model;
  fs::remove(model.file("config.json"));
  CHECK(open_error(model).code == io::Errc::missing);
  CHECK(contains(open_error(model).message, "config.json"));
}

TEST_CASE("checkpoint: one shard is open at a time") {
  const MadeUp model("deep25");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit tight{12, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const io::Error error = open_error(model);
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(error.message.empty());
  CHECK(after.rlim_cur == 12);
}

}  // namespace
}  // namespace engine
