#include "engine/checkpoint/safetensors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using testing::contains;
using testing::read_header;
using testing::shard_bytes;

// The error for a header over `n_data` bytes; its message is empty if the header is accepted.
io::Error header_error(std::string_view header, std::size_t n_data) {
  io::Result<ShardHeader> result = read_header(shard_bytes(header, std::string(n_data, 'x')));
  if (result) return {};
  return std::move(result.error());
}

std::string header_message(std::string_view header, std::size_t n_data) {
  return header_error(header, n_data).message;
}

TEST_CASE("safetensors: tensors come by position with offsets in the file") {
  const std::string header = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                             R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})";
  io::Result<ShardHeader> result = read_header(shard_bytes(header, std::string(12, 'x')));
  REQUIRE(result);
  REQUIRE(result->tensors.size() == 2);
  CHECK(result->tensors[0].name == "a");
  CHECK(result->tensors[0].dtype == Dtype::bf16);
  CHECK(result->tensors[0].begin_bytes == 8 + header.size());
  CHECK(result->tensors[1].name == "b");
  CHECK(result->tensors[1].end_bytes == 8 + header.size() + 12);
  CHECK(result->n_missing_bytes == 0);
}

TEST_CASE("safetensors: legal oddities open") {
  CHECK(header_message(R"({})", 0).empty());
  CHECK(header_message(R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                       R"("t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                       4)
            .empty());
  CHECK(header_message(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4).empty());
  CHECK(
      header_message(R"({"权重":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}   )", 4).empty());
  CHECK(header_message(R"({"t":{"data_offsets":[0,4],"shape":[4],"dtype":"U8","more":1}})", 4)
            .empty());
  CHECK(header_message(R"({"__metadata__":{}})", 0).empty());
  CHECK(header_message(R"({"__metadata__":{"format":"pt"}})", 0).empty());
}

TEST_CASE("safetensors: metadata of the wrong kind is named") {
  CHECK(contains(header_message(R"({"__metadata__":null})", 0), "__metadata__ is null"));
  CHECK(contains(header_message(R"({"__metadata__":{"n":3}})", 0), "key n is the number 3"));
  CHECK(contains(
      header_message(R"({"__metadata__":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
      "__metadata__"));
}

TEST_CASE("safetensors: every byte belongs to exactly one tensor") {
  const std::string overlap =
      header_message(R"({"k":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                     R"("v":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})",
                     16);
  CHECK(contains(overlap, "tensors k [0, 16] and v [0, 16] overlap"));
  const std::string gap =
      header_message(R"({"k":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                     R"("v":{"dtype":"U8","shape":[16],"data_offsets":[32,48]}})",
                     48);
  CHECK(contains(gap, "16 bytes at data offset 16 before tensor v belong to no tensor"));
  const std::string inside =
      header_message(R"({"k":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                     R"("e":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}})",
                     16);
  CHECK(contains(inside, "overlap"));
  const std::string extra =
      header_message(R"({"k":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})", 32);
  CHECK(contains(extra, "end after 16 bytes of data, the file holds 32: 16 extra"));
}

TEST_CASE("safetensors: a shape that contradicts its range is refused") {
  const auto message = [](std::string_view dtype, std::string_view shape, std::string_view range) {
    return header_message(fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})",
                                      dtype, shape, range),
                          16);
  };
  CHECK(contains(message("F32", "[1000,1000]", "[0,4]"), "takes 4000000 bytes"));
  CHECK(contains(message("F64", "[4]", "[0,16]"), "takes 32 bytes, data_offsets [0, 16] span 16"));
  CHECK(contains(message("U8", "[16]", "[16,0]"), "[16, 0] end before they begin"));
  CHECK(contains(message("U8", "[4294967296,4294967296]", "[0,0]"), "more than 2^64"));
  CHECK(contains(message("U8", "[18446744073709551608]", "[18446744073709551608,16]"),
                 "18446744073709551608"));
  CHECK(contains(message("U8", "[1]", "[0,0]"), "takes 1 bytes"));
  CHECK(contains(message("U8", "[16]", "[-16,0]"), "-16"));
  CHECK(contains(message("U8", "[16.0]", "[0,16]"), "16.0"));
  CHECK(contains(message("U8", "16", "[0,16]"), "want a list"));
  CHECK(contains(message("U8", "[16]", "[0,8,16]"), "has 3 numbers"));
  CHECK(contains(message("F3_X", "[16]", "[0,16]"), "F3_X"));
}

TEST_CASE("safetensors: what names a tensor twice or not at all is refused") {
  const std::string twice =
      header_message(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                     R"("w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                     8);
  CHECK(contains(twice, "the tensor name w occurs twice"));
  CHECK(contains(header_message(R"({"w":{"dtype":"U8","dtype":"I8","shape":[0],)"
                                R"("data_offsets":[0,0]}})",
                                0),
                 "the key dtype occurs twice"));
  CHECK(contains(header_message("{\"\xFF\xFE\":{}}", 0), "UTF-8"));
  CHECK(contains(header_message(R"({"w":{"shape":[0],"data_offsets":[0,0]}})", 0), "no dtype"));
  CHECK(contains(header_message(R"({"w":7})", 0), "tensor w"));
}

TEST_CASE("safetensors: a NUL in a name does not hide the rest of it") {
  io::Result<ShardHeader> result =
      read_header(shard_bytes(R"({"a\u0000b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              std::string(8, 'x')));
  REQUIRE(result);
  CHECK(result->tensors[0].name == std::string("a\0b", 3));
  CHECK(result->tensors[1].name == "a");
}

TEST_CASE("safetensors: a forged length costs nothing but an error") {
  io::Result<ShardHeader> huge = read_header(std::string(8, '\xFF') + "{}");
  REQUIRE(!huge);
  CHECK(contains(huge.error().message, "18446744073709551615"));
  io::Result<ShardHeader> large =
      read_header(std::string("\x00\x90\xDF\x07\x00\x00\x00\x00{}", 10));
  REQUIRE(large);  // longer than the file: the caller lists it among short files
  CHECK(large->n_missing_bytes == 132091904 - 2);
  io::Result<ShardHeader> zeros = read_header(std::string(64, '\0'));
  CHECK(!zeros);
}

TEST_CASE("safetensors: a file cut short says by how much") {
  const std::string whole = shard_bytes(
      R"({"t":{"dtype":"U8","shape":[100],"data_offsets":[0,100]}})", std::string(100, 'x'));
  for (const std::size_t n_cut : {1U, 60U, 100U, 101U}) {
    CAPTURE(n_cut);
    io::Result<ShardHeader> result = read_header(whole.substr(0, whole.size() - n_cut));
    REQUIRE(result);
    CHECK(result->n_missing_bytes == (n_cut > 100 ? n_cut - 100 : n_cut));
  }
  for (const std::size_t n_left : {0U, 1U, 7U}) {
    io::Result<ShardHeader> result = read_header(whole.substr(0, n_left));
    REQUIRE(result);
    CHECK(result->n_missing_bytes == 8 - n_left);
  }
}

TEST_CASE("safetensors: text in place of data is called text") {
  io::Result<ShardHeader> pointer = read_header(
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16990911504\n");
  REQUIRE(!pointer);
  CHECK(contains(pointer.error().message, "Git LFS pointer"));
  io::Result<ShardHeader> page = read_header("<!DOCTYPE html><html><body>Not found");
  REQUIRE(!page);
  CHECK(contains(page.error().message, "is text"));
}

TEST_CASE("safetensors: deep nesting is an error, not a crash") {
  const std::string deep = "{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}";
  CHECK(contains(header_message(deep, 0), "not JSON"));
}

TEST_CASE("safetensors: a header of 50,000 tensors opens in under 2 s") {
  std::string header = "{";
  for (int i = 0; i < 50000; ++i) {
    header += fmt::format(R"({}"model.layers.{}.a_rather_long_name.weight":{{"dtype":"U8",)"
                          R"("shape":[1],"data_offsets":[{},{}]}})",
                          i > 0 ? "," : "", i, i, i + 1);
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(header_message(header + "}", 50000).empty());
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

}  // namespace
}  // namespace engine
