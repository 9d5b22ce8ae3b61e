#include "engine/checkpoint/folder_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "engine/checkpoint/name_list.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

std::string describe_absent(const fs::path& file) {
  std::error_code ignored;
  std::string text = file.filename().string();
  if (fs::is_symlink(file, ignored)) {
    text += fmt::format(" (a link to {}, which is not there)",
                        fs::read_symlink(file, ignored).string());
  }
  return text;
}

void note_other_files(const fs::path& folder, const ShardIndex& index,
                      std::vector<std::string>& notes) {
  std::vector<std::string> unlisted;
  std::vector<std::string> unfinished;
  std::error_code error;
  for (auto item = fs::directory_iterator(folder, error);
       !error && item != fs::directory_iterator(); item.increment(error)) {
    std::string name = item->path().filename().string();
    if (name.ends_with(".incomplete")) {
      unfinished.push_back(std::move(name));
    } else if (name.ends_with(".safetensors") &&
               std::none_of(index.shards().begin(), index.shards().end(),
                            [&](const ShardIndex::Shard& s) { return s.file_name == name; })) {
      unlisted.push_back(std::move(name));
    }
  }
  std::sort(unlisted.begin(), unlisted.end());
  std::sort(unfinished.begin(), unfinished.end());
  if (!unlisted.empty()) {
    notes.push_back(fmt::format("not in the index, not read: {}", list_names(unlisted)));
  }
  if (!unfinished.empty()) {
    notes.push_back(fmt::format("unfinished downloads, not read: {}", list_names(unfinished)));
  }
}

}  // namespace

io::Result<std::vector<bool>> survey_folder(const fs::path& folder, const ShardIndex& index,
                                            std::vector<std::string>& notes) {
  const std::vector<ShardIndex::Shard>& shards = index.shards();
  const bool prefixed = std::any_of(shards.begin(), shards.end(),
                                    [](const ShardIndex::Shard& s) { return s.n_prefixed > 0; });
  std::vector<bool> absent(shards.size());
  std::vector<std::string> missing;
  std::vector<std::string> unneeded;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const fs::path file = folder / shards[i].file_name;
    std::error_code error;
    const fs::file_status status = fs::status(file, error);
    if (status.type() == fs::file_type::not_found) {
      absent[i] = true;
      const bool needed = (prefixed ? shards[i].n_prefixed : shards[i].n_bare) > 0;
      (needed ? missing : unneeded).push_back(describe_absent(file));
    } else if (error) {
      return io::system_error(error.value(), "stat " + file.string());
    } else if (!fs::is_regular_file(status)) {
      return io::Error{io::Errc::invalid, 0, file.string() + ": not a file"};
    }
  }
  if (!missing.empty()) {
    return io::Error{
        io::Errc::missing, 0,
        fmt::format("{}: {} of {} shards are missing, probably an incomplete "
                    "download: {}",
                    folder.string(), missing.size(), shards.size(), list_names(missing))};
  }
  if (!unneeded.empty()) {
    notes.push_back(
        fmt::format("missing, but nothing of the text model is in it: {}", list_names(unneeded)));
  }
  note_other_files(folder, index, notes);
  return absent;
}

}  // namespace engine
