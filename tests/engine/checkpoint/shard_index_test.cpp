#include "engine/checkpoint/shard_index.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using testing::contains;

struct Opened {
  testing::TemporaryFolder folder;
  io::Result<ShardIndex> index = io::Error{};

  explicit Opened(std::string_view text) {
    testing::write_file(folder.path() / ShardIndex::kFileName, text);
    index = ShardIndex::open(folder.path());
  }
  std::string message() { return index ? "" : index.error().message; }
};

TEST_CASE("shard index: names are found, shards are sorted and counted") {
  Opened opened(R"({"metadata":{"total_size":12},"weight_map":{)"
                R"("language_model.b":"2.safetensors","language_model.a":"1.safetensors",)"
                R"("vision.c":"2.safetensors"}})");
  REQUIRE(opened.index);
  const ShardIndex& index = *opened.index;
  REQUIRE(index.shards().size() == 2);
  CHECK(index.shards()[0].file_name == "1.safetensors");
  CHECK(index.shards()[1].n_tensors == 2);
  CHECK(index.shards()[1].n_prefixed == 1);
  CHECK(index.total_bytes() == 12U);
  REQUIRE(index.find("language_model.a"));
  CHECK(index.shard_of(*index.find("language_model.a")) == 0);
  CHECK(index.shard_of(*index.find("vision.c")) == 1);
  CHECK(index.name_of(*index.find("vision.c")) == "vision.c");
  CHECK(!index.find("language_model.c"));
}

TEST_CASE("shard index: escapes in names are undone") {
  Opened opened(R"({"weight_map":{"a\u0000b":"1.safetensors","q\"\\":"1.safetensors",)"
                R"("\u6743":"1.safetensors","":"1.safetensors"}})");
  REQUIRE(opened.index);
  CHECK(opened.index->find(std::string_view("a\0b", 3)));
  CHECK(opened.index->find("q\"\\"));
  CHECK(opened.index->find("权"));
  CHECK(opened.index->find(""));
  CHECK(!opened.index->find("a"));
}

TEST_CASE("shard index: a name twice is refused by name") {
  Opened opened(R"({"weight_map":{"w":"1.safetensors","v":"1.safetensors","w":"2.safetensors"}})");
  CHECK(contains(opened.message(), "tensor name w occurs twice"));
}

TEST_CASE("shard index: a shard outside the folder is refused") {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "", "..", "a/b"}) {
    CAPTURE(name);
    Opened opened(R"({"weight_map":{"w":")" + std::string(name) + R"("}})");
    CHECK(contains(opened.message(), "which is not a file name"));
  }
}

TEST_CASE("shard index: what is not an index is refused") {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
        R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"b"})", R"({"weight_map":{"a":"b"}} x)",
        R"({"weight_map":{"a" "b"}})", R"({"weight_map":{"a":"b"},"weight_map":{"c":"d"}})",
        "{\"weight_map\":{\"\xFF\":\"b\"}}", "null"}) {
    CAPTURE(text);
    Opened opened(text);
    CHECK(!opened.index);
    CHECK(contains(opened.message(), ShardIndex::kFileName));
  }
  Opened deep("{\"weight_map\":" + std::string(10000, '['));
  CHECK(!deep.index);
}

TEST_CASE("shard index: metadata may be absent, null or odd") {
  for (const char* metadata : {"null", "{}", "[1]", R"({"total_size":"x"})"}) {
    CAPTURE(metadata);
    Opened opened(R"({"metadata":)" + std::string(metadata) +
                  R"(,"weight_map":{"a":"b.safetensors"}})");
    CHECK(opened.message().empty());
  }
}

}  // namespace
}  // namespace engine
