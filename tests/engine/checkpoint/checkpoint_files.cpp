#include "tests/engine/checkpoint/checkpoint_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/checkpoint/small_tensor.h"
#include "engine/synth/shard_layout.h"
#include "engine/synth/synth.h"

namespace engine::testing {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  REQUIRE(out.good());
}

std::string shard_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (std::uint64_t length = header.size(), i = 0; i < 8; ++i, length >>= 8) {
    bytes += static_cast<char>(length & 0xFF);
  }
  return bytes.append(header).append(data);
}

std::string header_of(std::string_view shard) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(shard[i]);
  return std::string(shard.substr(8, length));
}

std::string data_of(std::string_view shard) {
  return std::string(shard.substr(8 + header_of(shard).size()));
}

MadeUp::MadeUp(std::string_view name) {
  io::Result<Geometry> geometry = find_geometry(name);
  REQUIRE(geometry);
  n_shards_ = count_shards(*geometry);
  const io::Status status = write_made_up(*geometry, path());
  REQUIRE(status);
}

std::string MadeUp::shard_name(std::uint32_t number) const {
  return shard_file_name(number - 1, n_shards_);
}

std::filesystem::path MadeUp::shard(std::uint32_t number) const { return file(shard_name(number)); }

void MadeUp::edit_json(std::string_view name, const std::function<void(Json&)>& edit) const {
  Json json = Json::parse(read_file(file(name)));
  edit(json);
  write_file(file(name), json.dump());
}

void MadeUp::edit_header(std::uint32_t number, const std::function<void(Json&)>& edit) const {
  const std::string bytes = read_file(shard(number));
  Json header = Json::parse(header_of(bytes));
  edit(header);
  write_file(shard(number), shard_bytes(header.dump(), data_of(bytes)));
}

void MadeUp::edit_config(const std::function<void(Json&, Json&)>& edit) const {
  edit_json("config.json", [&](Json& root) { edit(root, root["text_config"]); });
}

io::Error open_error(const MadeUp& model, const OpenOptions& options) {
  io::Result<Checkpoint> checkpoint = model.open(options);
  if (checkpoint) return {};
  return std::move(checkpoint.error());
}

io::Result<io::FileSet> open_files(const Catalogue& catalogue) {
  return io::FileSet::open(catalogue.files, catalogue.file_bytes, io::Access::prefer_direct);
}

io::Result<std::vector<float>> read_small(const Catalogue& catalogue, std::string_view name) {
  io::Result<io::FileSet> files = open_files(catalogue);
  if (!files) return std::move(files.error());
  return engine::read_small(catalogue, *files, name);
}

io::Result<ShardHeader> read_header(std::string_view bytes) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  write_file(path, bytes);
  io::Result<io::Fd> file = io::Fd::open(path);
  REQUIRE(file);
  return read_shard_header(*file, "x.safetensors");
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace engine::testing
