#include "engine/checkpoint/small_tensor.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using testing::contains;

// A catalogue of one f32 tensor "t" of values 0, 1, 2, ... that ends where the file does.
Catalogue one_tensor(const testing::TemporaryFolder& folder, std::size_t n_file,
                     std::size_t n_tensor) {
  std::string bytes(n_file, '\0');
  for (std::size_t i = 0; i < n_tensor / 4; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(&bytes[n_file - n_tensor + 4 * i], &value, sizeof value);
  }
  Catalogue catalogue;
  catalogue.files = {folder.path() / "x.safetensors"};
  catalogue.file_bytes = {n_file};
  testing::write_file(catalogue.files[0], bytes);
  catalogue.small["t"] = {true, {n_tensor / 4}, {0, n_file - n_tensor, n_tensor}};
  return catalogue;
}

TEST_CASE("small tensor: bf16 and f32 are widened exactly") {
  const testing::MadeUp model;
  io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  const std::string layer = "language_model.model.layers.0.";
  io::Result<std::vector<float>> norm =
      testing::read_small(checkpoint->catalogue, layer + "input_layernorm.weight");
  REQUIRE(norm);
  CHECK(norm->size() == 96);
  CHECK((*norm)[0] == 1.140625F);
  CHECK((*norm)[1] == 1.21875F);
  io::Result<std::vector<float>> a_log =
      testing::read_small(checkpoint->catalogue, layer + "self_attn.A_log");
  REQUIRE(a_log);
  REQUIRE(a_log->size() == 4);
  CHECK((*a_log)[0] == doctest::Approx(0.559907794));
  CHECK((*a_log)[2] == 0);
}

TEST_CASE("small tensor: the last bytes of a file are ordinary bytes") {
  const testing::TemporaryFolder folder;
  for (const std::size_t n_file : {4U, 511U, 4095U, 4096U, 4097U, 8192U, 10000U, 3000001U}) {
    for (const std::size_t n_tensor : {4U, 400U, 4096U, 8192U}) {
      if (n_tensor > n_file) continue;
      CAPTURE(n_file);
      CAPTURE(n_tensor);
      const Catalogue catalogue = one_tensor(folder, n_file, n_tensor);
      io::Result<std::vector<float>> values = testing::read_small(catalogue, "t");
      REQUIRE(values);
      std::vector<float> want(n_tensor / 4);
      std::iota(want.begin(), want.end(), 0.0F);
      const bool same = *values == want;
      CHECK(same);
    }
  }
}

TEST_CASE("small tensor: a file that shrank is an error with both numbers") {
  const testing::TemporaryFolder folder;
  const Catalogue catalogue = one_tensor(folder, 10000, 400);
  io::Result<io::FileSet> files = testing::open_files(catalogue);
  REQUIRE(files);
  std::filesystem::resize_file(catalogue.files[0], 9700);
  io::Result<std::vector<float>> values = read_small(catalogue, *files, "t");
  REQUIRE(!values);
  CHECK(contains(values.error().message, "x.safetensors"));
  CHECK(contains(values.error().message, "want 400 bytes, got 100"));
}

TEST_CASE("small tensor: a value that is not finite is named with its position") {
  const testing::TemporaryFolder folder;
  Catalogue catalogue = one_tensor(folder, 16, 16);
  testing::write_file(catalogue.files[0], std::string("\0\0\0\0\0\0\xC0\x7F\0\0\0\0\0\0\0\0", 16));
  io::Result<std::vector<float>> values = testing::read_small(catalogue, "t");
  REQUIRE(!values);
  CHECK(values.error().code == io::Errc::invalid);
  CHECK(contains(values.error().message, "value 1 is nan"));
}

TEST_CASE("small tensor: an unknown name is an error") {
  CHECK(!testing::read_small(Catalogue{}, "t"));
}

}  // namespace
}  // namespace engine
