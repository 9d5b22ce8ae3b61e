#include "engine/pack/pack.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cerrno>
#include <system_error>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container.h"
#include "io/file_set.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxCopyBytes = 64 << 20;

ModelTensors tensors_of(const Checkpoint& checkpoint) {
  const Catalogue& catalogue = checkpoint.catalogue;
  const bool prefixed = catalogue.small.begin()->first.starts_with(kTextPrefix);
  return {
      .prefix = prefixed ? std::string(kTextPrefix) : "",
      .small = [&catalogue](std::string_view name) { return catalogue.small.find(name)->second; },
      .expert_layout = catalogue.expert_layout};
}

io::Result<std::vector<ContainerIndex::File>> list_shards(const Catalogue& catalogue) {
  std::vector<ContainerIndex::File> shards;
  for (std::size_t i = 0; i < catalogue.files.size(); ++i) {
    io::Result<std::uint64_t> sum = header_checksum(catalogue.files[i]);
    if (!sum) return std::move(sum.error());
    shards.push_back({ContainerIndex::FileKind::shard, catalogue.files[i].filename().string(),
                      catalogue.file_bytes[i], *sum});
  }
  return shards;
}

// Equal only if the shards are the same files, as far as that can be told without reading them:
// names, lengths and times of change.
io::Result<std::uint64_t> source_id(const Catalogue& catalogue) {
  std::string text;
  for (std::size_t i = 0; i < catalogue.files.size(); ++i) {
    struct stat info {};
    if (::stat(catalogue.files[i].c_str(), &info) != 0) {
      return io::system_error(errno, "stat " + catalogue.files[i].string());
    }
    text += fmt::format("{} {} {}.{:09}\n", catalogue.files[i].filename().string(), info.st_size,
                        info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace

io::Result<std::vector<CopiedFile>> read_copies(const fs::path& model,
                                                std::vector<std::string>& notes) {
  std::vector<CopiedFile> copies;
  for (const char* name :
       {"config.json", "generation_config.json", "tiktoken.model", "tokenizer_config.json"}) {
    io::Result<std::string> bytes = io::read_file(model / name, kMaxCopyBytes);
    if (bytes) {
      copies.push_back({name, std::move(*bytes)});
    } else if (bytes.error().code == io::Errc::missing && name != kConfigName) {
      notes.push_back(
          fmt::format("{} has no {}: the container will have none", model.string(), name));
    } else {
      return std::move(bytes.error());
    }
  }
  return copies;
}

io::Result<ContainerIndex> plan_index(const Checkpoint& checkpoint, const LayoutOptions& layout,
                                      bool experts, const std::vector<CopiedFile>& copies) {
  const Catalogue& catalogue = checkpoint.catalogue;
  ContainerIndex index = cut_blocks(checkpoint.config, tensors_of(checkpoint), layout);
  index.has_experts = experts;
  place_blocks(index);
  if (!experts && catalogue.blocks.size() > catalogue.n_tiles()) {
    io::Result<std::vector<ContainerIndex::File>> shards = list_shards(catalogue);
    if (!shards) return std::move(shards.error());
    refer_to_shards(index, fs::absolute(checkpoint.folder).lexically_normal().string(), *shards,
                    std::span(catalogue.blocks).subspan(catalogue.n_tiles()));
  }
  add_copies(index, copies);
  return index;
}

io::Result<Packed> pack(const fs::path& model, const fs::path& folder, const PackOptions& options) {
  Packed packed;
  io::Result<Checkpoint> checkpoint = open_checkpoint(
      model, {.allow_holes = options.allow_holes, .tile_bytes = options.layout.tile_bytes});
  if (!checkpoint) return std::move(checkpoint.error());
  if (checkpoint->container) {
    return io::Error{io::Errc::invalid, 0, model.string() + ": is a container already"};
  }
  packed.notes = checkpoint->notes;
  ContainerPlan plan;
  io::Result<std::vector<CopiedFile>> copies = read_copies(model, packed.notes);
  if (!copies) return std::move(copies.error());
  plan.copies = std::move(*copies);
  io::Result<ContainerIndex> index =
      plan_index(*checkpoint, options.layout, options.experts, plan.copies);
  if (!index) return std::move(index.error());
  plan.index = std::move(*index);
  io::Result<std::uint64_t> source = source_id(checkpoint->catalogue);
  if (!source) return std::move(source.error());
  const std::vector<std::byte> bytes = encode_container_index(plan.index);
  plan.work_id = XXH3_64bits_withSeed(bytes.data(), bytes.size(), *source);
  plan.work = fmt::format("pack of {}, experts {}, tiles of {} bytes, alignment {}",
                          fs::absolute(model).lexically_normal().string(),
                          options.experts ? "included" : "left in the shards",
                          options.layout.tile_bytes, options.layout.alignment_bytes);

  io::Result<io::FileSet> files = io::FileSet::open(
      checkpoint->catalogue.files, checkpoint->catalogue.file_bytes, io::Access::prefer_direct);
  if (!files) return std::move(files.error());
  for (const std::string& note : files->notes()) packed.notes.push_back(note);
  const auto blocks = shard_source(plan.index, *checkpoint, *files);
  io::Result<Written> written = write_container(plan, *blocks, folder, options.write);
  if (!written) return std::move(written.error());
  packed.written = *written;
  return packed;
}

}  // namespace engine
