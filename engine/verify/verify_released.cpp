#include "engine/verify/verify_released.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/name_list.h"
#include "engine/checkpoint/shard_index.h"
#include "engine/verify/finite_check.h"
#include "engine/verify/published_sizes.h"
#include "engine/verify/shard_check.h"
#include "engine/verify/shard_sums.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

// What a checkpoint has beside its shards.
constexpr std::string_view kOtherFiles[] = {"config.json", "generation_config.json",
                                            ShardIndex::kFileName, "tiktoken.model",
                                            "tokenizer_config.json"};

bool is_regular(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

class Verifier {
 public:
  Verifier(const fs::path& folder, const VerifyOptions& options)
      : folder_(folder), options_(options) {}

  io::Result<VerifyReport> verify() {
    if (io::Status ready = prepare(); !ready) return std::move(ready.error());
    list_shards();
    check_shards();
    check_published_sizes();
    check_together();
    if (io::Status hashed = check_bytes(); !hashed) return std::move(hashed.error());
    report_.interrupted = stopped();
    describe_scope();
    return std::move(report_);
  }

 private:
  // False for a shard in which nothing of the text model is: a run does without it.
  struct Listed {
    bool is_needed = true;
    ShardCheck check;
  };

  // All that must be right before the long work begins.
  io::Status prepare() {
    std::error_code error;
    if (!fs::is_directory(folder_, error)) {
      if (!error) error = std::make_error_code(std::errc::not_a_directory);
      return io::system_error(error.value(), "open " + folder_.string());
    }
    if (!options_.check_file.empty()) {
      io::Result<ShardSums> sums = read_sums(options_.check_file);
      if (!sums) return std::move(sums.error());
      wanted_ = std::move(*sums);
    }
    if (!options_.record_file.empty()) {
      io::Result<NewSumsFile> file = NewSumsFile::create(options_.record_file);
      if (!file) return std::move(file.error());
      record_.emplace(std::move(*file));
    }
    return {};
  }

  // Those of the index, or what looks like a shard if the index is no help.
  void list_shards() {
    io::Result<ShardIndex> index = ShardIndex::open(folder_);
    if (index) {
      const std::vector<ShardIndex::Shard>& shards = index->shards();
      const bool prefixed = std::any_of(shards.begin(), shards.end(),
                                        [](const auto& shard) { return shard.n_prefixed > 0; });
      for (const ShardIndex::Shard& shard : shards) {
        const bool has_text = (prefixed ? shard.n_prefixed : shard.n_bare) > 0;
        shards_[shard.file_name].is_needed = has_text || !index->has_names();
      }
      return;
    }
    report_.bad.push_back(std::move(index.error().message));
    has_index_ = false;
    std::error_code error;
    for (auto item = fs::directory_iterator(folder_, error);
         !error && item != fs::directory_iterator(); item.increment(error)) {
      std::string name = item->path().filename().string();
      if (name.ends_with(".safetensors")) shards_[std::move(name)];
    }
  }

  void check_shards() {
    std::vector<std::string> unneeded;
    std::uint64_t n_zero_bytes = 0;
    for (auto& [name, shard] : shards_) {
      if (stopped()) return;
      std::error_code ignored;
      if (!shard.is_needed && !fs::exists(folder_ / name, ignored)) {
        unneeded.push_back(name);
        continue;
      }
      shard.check = check_shard(folder_ / name, options_.allow_holes);
      if (shard.check.is_file) ++report_.n_checked;
      report_.bad.insert(report_.bad.end(), shard.check.bad.begin(), shard.check.bad.end());
      n_zero_bytes += shard.check.n_zero_bytes;
      if (!shard.check.is_file) continue;
      n_holes_unknown_ += shard.check.holes_known ? 0 : 1;
      n_extents_unknown_ += shard.check.extents_known ? 0 : 1;
    }
    if (!unneeded.empty()) {
      report_.notes.push_back(
          fmt::format("missing, but nothing of the text model is in it: {}", list_names(unneeded)));
    }
    if (options_.allow_holes && n_zero_bytes > 0) {
      report_.notes.push_back(fmt::format(
          "{} bytes of shards were never written and read as zeros: allowed", n_zero_bytes));
    }
    if (n_holes_unknown_ + n_extents_unknown_ > 0) {
      report_.notes.push_back(fmt::format(
          "the filesystem cannot tell the holes of {} and the unwritten extents of {} of {} shards",
          n_holes_unknown_, n_extents_unknown_, report_.n_checked));
    }
  }

  void check_published_sizes() {
    const io::Result<Config> config = read_config(folder_ / kConfigName);
    has_config_ = config.has_value();
    if (!config) {
      report_.bad.push_back(config.error().message);
      return;
    }
    const std::vector<PublishedShard> published = published_shards(*config);
    if (published.empty()) {
      report_.notes.push_back("no published sizes are known for a model of this geometry");
      return;
    }
    std::vector<std::string> absent;
    for (const PublishedShard& shard : published) {
      const auto found = shards_.find(shard.file_name);
      if (found == shards_.end()) {
        absent.push_back(shard.file_name);
      } else {
        compare_with_published(found->second.check, shard);
      }
    }
    if (!absent.empty()) {
      report_.notes.push_back(
          fmt::format("{} of the {} published shards are not among this checkpoint's: {}",
                      absent.size(), published.size(), list_names(absent)));
    }
  }

  void compare_with_published(const ShardCheck& check, const PublishedShard& shard) {
    if (!check.is_file || check.n_bytes == shard.n_bytes) return;
    // Of a shard whose header says as much it has been said.
    if (check.n_missing_bytes > 0 && check.n_bytes + check.n_missing_bytes == shard.n_bytes) return;
    report_.bad.push_back(fmt::format("{}: it has {} bytes, the published one {}", shard.file_name,
                                      check.n_bytes, shard.n_bytes));
  }

  // What open_checkpoint says and the shards by themselves have not said.
  void check_together() {
    if (stopped()) return;
    const auto all = [&](auto predicate) {
      return std::all_of(shards_.begin(), shards_.end(),
                         [&](const auto& item) { return predicate(item.second); });
    };
    const bool all_there =
        all([](const Listed& shard) { return shard.check.is_file || !shard.is_needed; });
    if (has_index_ && has_config_ && !all_there) {
      // It would list the missing shards again and end there.
      report_.notes.push_back(
          "tensors were not compared with the configuration: shards are missing");
      return;
    }
    OpenOptions open;
    open.allow_holes = true;  // they have been reported, each
    const io::Result<Checkpoint> checkpoint = open_checkpoint(folder_, open);
    if (checkpoint) {
      add_notes(checkpoint->notes);
      check_values(checkpoint->catalogue);
      return;
    }
    const io::Error& error = checkpoint.error();
    // With every header read, `corrupt` comes from the list of shards that are too short before
    // it can come from anything else.
    const bool any_short =
        !all([](const Listed& shard) { return shard.check.n_missing_bytes == 0; });
    const bool all_read =
        all([](const Listed& shard) { return shard.check.has_header || !shard.is_needed; });
    const bool is_list =
        has_index_ && has_config_ && all_read && any_short && error.code == io::Errc::corrupt;
    if (is_list) {
      report_.notes.push_back(
          "tensors were not compared with the configuration: shards are too short");
    } else {
      add_bad({error.message});
    }
  }

  void check_values(const Catalogue& catalogue) {
    const FiniteCheck check = check_small_tensors(catalogue, options_.hash.interrupted);
    report_.n_read_bytes += check.n_read_bytes;
    add_bad(check.bad);
    add_notes(check.notes);
  }

  io::Status check_bytes() {
    if (stopped()) return {};
    if (!wanted_ && !record_) return {};
    if (record_ && !report_.bad.empty()) {
      report_.notes.push_back(fmt::format(
          "{} was not written and the weights were not read: a record is of a whole checkpoint",
          options_.record_file.string()));
      return {};
    }
    const std::set<std::string> names = names_to_hash();
    std::vector<fs::path> paths;
    for (const std::string& name : names) paths.push_back(folder_ / name);
    io::Result<FileHashes> hashes = hash_files(paths, options_.hash);
    if (!hashes) return std::move(hashes.error());
    report_.n_read_bytes += hashes->n_read_bytes;
    add_notes(hashes->notes);

    ShardSums sums;
    auto digest = hashes->digests.begin();
    for (const std::string& name : names) {
      const io::Result<Digest>& each = *digest++;
      if (each) {
        sums.emplace(name, *each);
      } else if (each.error().code != io::Errc::interrupted) {
        add_bad({each.error().message});
      }
    }
    n_hashed_ = sums.size();
    if (stopped()) return {};
    return record_ ? publish(sums) : compare(sums, names);
  }

  // Regular files: the shards, what lies beside them, and whatever else has a checksum.
  std::set<std::string> names_to_hash() const {
    std::set<std::string> names;
    const auto add = [&](std::string_view name) {
      if (is_regular(folder_ / name)) names.emplace(name);
    };
    for (const auto& [name, shard] : shards_) add(name);
    for (const std::string_view name : kOtherFiles) add(name);
    if (wanted_) {
      for (const auto& [name, digest] : *wanted_) add(name);
    }
    return names;
  }

  io::Status publish(const ShardSums& sums) {
    if (report_.bad.empty()) return record_->publish(sums);
    report_.notes.push_back(fmt::format("{} was not written: a record is of a whole checkpoint",
                                        options_.record_file.string()));
    return {};
  }

  io::Status compare(const ShardSums& sums, const std::set<std::string>& names) {
    const std::string file = options_.check_file.string();
    for (const auto& [name, digest] : sums) {
      const auto want = wanted_->find(name);
      if (want != wanted_->end() && want->second != digest) {
        report_.bad.push_back(fmt::format("{}: its bytes differ: {} has checksum {}, they have {}",
                                          name, file, digest_text(want->second),
                                          digest_text(digest)));
      }
    }
    for (const std::string& name : names) {
      if (!wanted_->contains(name)) {
        report_.bad.push_back(fmt::format("{}: there is no checksum for it in {}", name, file));
      }
    }
    for (const auto& [name, digest] : *wanted_) {
      if (!names.contains(name) && !is_known_missing(name)) {
        report_.bad.push_back(
            fmt::format("{}: {} has a checksum for it, and it is not there", name, file));
      }
    }
    return {};
  }

  [[nodiscard]] bool is_known_missing(const std::string& name) const {
    const auto found = shards_.find(name);
    return found != shards_.end() && !found->second.check.bad.empty();
  }

  void describe_scope() {
    std::string& scope = report_.scope;
    if (report_.interrupted) {
      scope = "interrupted: what was not reached was not looked at";
      return;
    }
    if (!report_.bad.empty()) {
      scope = fmt::format("{} {} wrong", report_.bad.size(),
                          report_.bad.size() == 1 ? "thing is" : "things are");
    } else if (options_.allow_holes) {
      scope = "structure and sizes are as they should be, holes and unwritten extents were allowed";
    } else if (n_holes_unknown_ + n_extents_unknown_ > 0) {
      scope = "structure and sizes are as they should be, extents are not known of all shards";
    } else {
      scope = "structure, sizes and extents are as they should be";
    }
    scope += "; " + describe_comparison();
  }

  [[nodiscard]] std::string describe_comparison() const {
    if (wanted_ && report_.bad.empty()) {
      return fmt::format("every byte of {} files was read, and each has its checksum in {}",
                         n_hashed_, options_.check_file.string());
    }
    if (wanted_) {
      return fmt::format("{} files were read whole and compared with {}", n_hashed_,
                         options_.check_file.string());
    }
    if (record_ && report_.bad.empty()) {
      return fmt::format(
          "the checksums of {} files are recorded in {}, their bytes were compared with nothing",
          n_hashed_, options_.record_file.string());
    }
    return "the weights' bytes were not compared (see --record and --check)";
  }

  // The same words of two sources are one finding.
  void add_bad(const std::vector<std::string>& messages) { add_new(report_.bad, messages); }
  void add_notes(const std::vector<std::string>& notes) { add_new(report_.notes, notes); }
  static void add_new(std::vector<std::string>& to, const std::vector<std::string>& messages) {
    for (const std::string& message : messages) {
      if (std::find(to.begin(), to.end(), message) == to.end()) to.push_back(message);
    }
  }

  [[nodiscard]] bool stopped() const {
    return options_.hash.interrupted != nullptr && options_.hash.interrupted->load();
  }

  const fs::path& folder_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::map<std::string, Listed> shards_;  // by file name
  bool has_index_ = true;
  bool has_config_ = false;
  std::uint64_t n_holes_unknown_ = 0;
  std::uint64_t n_extents_unknown_ = 0;
  std::optional<ShardSums> wanted_;
  std::optional<NewSumsFile> record_;
  std::size_t n_hashed_ = 0;
};

}  // namespace

io::Result<VerifyReport> verify_released(const fs::path& folder, const VerifyOptions& options) {
  assert(options.record_file.empty() || options.check_file.empty());
  const auto start = std::chrono::steady_clock::now();
  io::Result<VerifyReport> report = Verifier(folder, options).verify();
  if (report) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    report->seconds = passed.count();
  }
  return report;
}

}  // namespace engine
