// Single faults at random places of the files that we did not write: each either opens or is
// refused, quickly, and never crashes.  Run under the sanitizers too.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::Json;
using testing::MadeUp;

// All values of a document, the inner ones included.
void collect(Json& json, std::vector<Json*>& all) {
  if (!json.is_structured()) {
    all.push_back(&json);
    return;
  }
  for (Json& item : json) {
    all.push_back(&item);
    collect(item, all);
  }
}

void erase_somewhere(Json& json, std::mt19937_64& random) {
  Json* at = &json;
  while (at->is_structured() && !at->empty()) {
    auto item = at->begin();
    std::advance(item, static_cast<std::ptrdiff_t>(random() % at->size()));
    if (!item->is_structured() || random() % 3 == 0) {
      at->erase(item);
      return;
    }
    at = &*item;
  }
}

// One fault in the structure of the document.
std::string break_structure(const std::string& text, std::mt19937_64& random) {
  Json json = Json::parse(text);
  std::vector<Json*> values;
  collect(json, values);
  Json& value = *values[random() % values.size()];
  const std::array<Json, 14> other = {nullptr,
                                      true,
                                      "text",
                                      "",
                                      0,
                                      -1,
                                      1.5,
                                      1e300,
                                      18446744073709551615U,
                                      9223372036854775807,
                                      Json::array(),
                                      Json::object(),
                                      Json::array({1, 2}),
                                      4294967296U};
  if (random() % 4 == 0) {
    erase_somewhere(json, random);
  } else {
    value = other[random() % other.size()];
  }
  return json.dump();
}

// One fault in the bytes.
std::string break_bytes(std::string text, std::mt19937_64& random) {
  const std::size_t at = random() % text.size();
  switch (random() % 4) {
    case 0:
      text.resize(at);
      break;
    case 1:
      text[at] = static_cast<char>(random());
      break;
    case 2:
      text.erase(at, 1 + random() % 9);
      break;
    default:
      text.insert(at, text.substr(random() % text.size(), 1 + random() % 40));
      break;
  }
  return text;
}

std::string damage(const std::string& text, std::mt19937_64& random) {
  return random() % 2 == 0 ? break_structure(text, random) : break_bytes(text, random);
}

void open_quickly(const MadeUp& model) {
  const auto start = std::chrono::steady_clock::now();
  io::Result<Checkpoint> checkpoint = model.open();
  if (!checkpoint) CHECK(!checkpoint.error().message.empty());
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("fuzz: 400 damaged configs, indexes and headers open or are refused") {
  const MadeUp model;
  const fs::path config = model.file("config.json");
  const fs::path index = model.file("model.safetensors.index.json");
  const fs::path shard = model.shard(2);
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const fs::path& file = seed % 3 == 0 ? config : seed % 3 == 1 ? index : shard;
    const std::string whole = testing::read_file(file);
    if (file == shard) {
      testing::write_file(file, testing::shard_bytes(damage(testing::header_of(whole), random),
                                                     testing::data_of(whole)));
    } else {
      testing::write_file(file, damage(whole, random));
    }
    open_quickly(model);
    testing::write_file(file, whole);
  }
  CHECK(testing::open_error(model).message.empty());
}

TEST_CASE("fuzz: 100 forged length prefixes open or are refused") {
  const MadeUp model;
  const std::string whole = testing::read_file(model.shard(2));
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::string forged = whole;
    forged[random() % 8] = static_cast<char>(random());
    testing::write_file(model.shard(2), forged);
    open_quickly(model);
  }
}

}  // namespace
}  // namespace engine
