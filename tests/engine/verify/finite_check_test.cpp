#include "engine/verify/finite_check.h"

#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"
#include "tests/engine/verify/damage.h"

namespace engine {
namespace {

using testing::contains;
using testing::MadeUp;

const std::string kBf16NaN = "\xC0\x7F";
const std::string kF32Infinity = std::string("\0\0\x80\x7F", 4);

std::string layer(int layer_idx, const std::string& suffix) {
  return "language_model.model.layers." + std::to_string(layer_idx) + "." + suffix;
}

void spoil(const Catalogue& catalogue, const std::string& name, std::uint64_t offset_bytes,
           const std::string& bytes) {
  const SmallTensor& tensor = catalogue.small.at(name);
  testing::overwrite(catalogue.files[tensor.range.file_idx],
                     tensor.range.offset_bytes + offset_bytes, bytes);
}

TEST_CASE("finite check: a whole model has nothing bad, and all small tensors are read") {
  const MadeUp model;
  const io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  const FiniteCheck check = check_small_tensors(checkpoint->catalogue, nullptr);
  CHECK(check.bad.empty());
  CHECK(check.n_read_bytes == checkpoint->census.small.n_bytes);
}

TEST_CASE("finite check: every tensor with a value that is not finite is named, with its place") {
  const MadeUp model;
  const io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  const Catalogue& catalogue = checkpoint->catalogue;
  spoil(catalogue, layer(1, "input_layernorm.weight"), 2 * 5, kBf16NaN);
  spoil(catalogue, layer(1, "self_attn.A_log"), 4, kF32Infinity);
  spoil(catalogue, layer(4, "mlp_res_norm.weight"), 0, kBf16NaN);
  const FiniteCheck check = check_small_tensors(catalogue, nullptr);
  REQUIRE(check.bad.size() == 3);
  CHECK(contains(check.bad[0], model.shard_name(2)));
  CHECK(contains(check.bad[0], layer(1, "input_layernorm.weight: value 5 is nan")));
  CHECK(contains(check.bad[1], layer(1, "self_attn.A_log: value 1 is inf")));
  CHECK(contains(check.bad[2], layer(4, "mlp_res_norm.weight: value 0 is nan")));
}

TEST_CASE("finite check: a file that has changed is one finding and hides nothing of the others") {
  const MadeUp model;
  const io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  spoil(checkpoint->catalogue, layer(4, "mlp_res_norm.weight"), 0, kBf16NaN);
  std::filesystem::remove(model.shard(2));
  std::filesystem::resize_file(model.shard(3), 4096);
  const FiniteCheck check = check_small_tensors(checkpoint->catalogue, nullptr);
  REQUIRE(check.bad.size() == 3);
  CHECK(contains(check.bad[0], model.shard_name(2) + ": No such file"));
  CHECK(contains(check.bad[1], model.shard_name(3)));
  CHECK(contains(check.bad[1], "the file has 4096"));
  CHECK(contains(check.bad[2], "value 0 is nan"));
}

TEST_CASE("finite check: an interrupted one reads nothing more") {
  const MadeUp model;
  const io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  const std::atomic<bool> interrupted = true;
  CHECK(check_small_tensors(checkpoint->catalogue, &interrupted).n_read_bytes == 0);
}

}  // namespace
}  // namespace engine
