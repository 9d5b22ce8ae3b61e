#include "engine/pack/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace engine {
namespace {

constexpr std::string_view kMagic = "sluicepj";
constexpr std::uint64_t kMaxBytes = 4ULL << 30;

struct Record {
  std::uint64_t block_idx;
  std::uint64_t checksum;
  std::uint64_t check;
};
static_assert(sizeof(Record) == 24);

Record make_record(const Journal::Entry& entry, std::uint64_t work_id) {
  Record record{entry.block_idx, entry.checksum, 0};
  record.check = XXH3_64bits_withSeed(&record, offsetof(Record, check), work_id);
  return record;
}

std::string number(std::uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }

// Magic, id and words of the work, with a checksum.
std::string make_header(std::string_view work, std::uint64_t work_id) {
  std::string header(kMagic);
  header += number(work_id) + number(work.size());
  header += work;
  return header + number(XXH3_64bits(header.data(), header.size()));
}

// The words of a whole header at the start of `bytes`; nothing if it is torn.
std::string_view words_of(std::string_view bytes) {
  const std::size_t fixed = kMagic.size() + 16;
  if (bytes.size() < fixed || !bytes.starts_with(kMagic)) return {};
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data() + kMagic.size() + 8, sizeof n);
  if (n > bytes.size() - fixed || bytes.size() - fixed - n < 8) return {};
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + fixed + n, sizeof sum);
  return sum == XXH3_64bits(bytes.data(), fixed + n) ? bytes.substr(fixed, n) : std::string_view();
}

}  // namespace

io::Result<Journal> Journal::open(const std::filesystem::path& file, std::string_view work,
                                  std::uint64_t work_id) {
  io::Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return io::system_error(errno, "create " + file.string());
  Journal journal(file, std::move(fd));
  journal.work_id_ = work_id;
  if (io::Status locked = journal.lock(); !locked) return std::move(locked.error());

  io::Result<std::string> bytes = io::read_file(file, kMaxBytes);
  if (!bytes) return std::move(bytes.error());
  const std::string header = make_header(work, work_id);
  if (bytes->starts_with(header)) {
    journal.end_bytes_ = header.size();
    const auto entries = std::as_bytes(std::span(*bytes)).subspan(header.size());
    if (io::Status done = journal.read_entries(entries); !done) return std::move(done.error());
    return journal;
  }
  if (const std::string_view other = words_of(*bytes); !other.empty()) {
    const std::string folder = file.parent_path().string();
    return io::Error{
        io::Errc::invalid, 0,
        other == work
            ? fmt::format("{} holds an unfinished {}, and its source has changed since; remove the "
                          "folder to begin anew",
                          folder, work)
            : fmt::format("{} holds unfinished work of another kind ({}), this is {}; finish that, "
                          "or remove the folder",
                          folder, other, work)};
  }
  // Torn in its first moments, when nothing else was written.
  if (io::Status done = journal.begin(header); !done) return std::move(done.error());
  return journal;
}

io::Status Journal::lock() {
  const std::string folder = file_.parent_path().string();
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return io::system_error(errno, "lock " + file_.string());
    return io::Error{io::Errc::invalid, EWOULDBLOCK,
                     folder + ": another process is writing a container there"};
  }
  // The other may have finished, and removed what we have locked now.
  struct stat mine {};
  struct stat named {};
  if (::fstat(fd_.get(), &mine) == 0 && ::stat(file_.c_str(), &named) == 0 &&
      mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) {
    return {};
  }
  return io::Error{io::Errc::invalid, 0,
                   folder + ": another process has just finished a container there"};
}

io::Status Journal::begin(const std::string& header) {
  if (::ftruncate(fd_.get(), 0) != 0) return io::system_error(errno, "write " + file_.string());
  end_bytes_ = 0;
  return write(std::as_bytes(std::span(header)));
}

io::Status Journal::read_entries(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  for (; at + sizeof(Record) <= bytes.size(); at += sizeof(Record)) {
    Record record;
    std::memcpy(&record, bytes.data() + at, sizeof record);
    const Entry entry{record.block_idx, record.checksum};
    if (record.check != make_record(entry, work_id_).check) break;
    finished_[entry.block_idx] = entry.checksum;
  }
  end_bytes_ += at;
  if (at == bytes.size()) return {};
  if (::ftruncate(fd_.get(), static_cast<off_t>(end_bytes_)) == 0) return {};
  return io::system_error(errno, "write " + file_.string());
}

io::Status Journal::append(std::span<const Entry> entries) {
  if (entries.empty()) return {};
  std::vector<Record> records;
  for (const Entry& entry : entries) records.push_back(make_record(entry, work_id_));
  return write(std::as_bytes(std::span(records)));
}

io::Status Journal::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(end_bytes_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io::system_error(n < 0 ? errno : EIO, "write " + file_.string());
    end_bytes_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  if (::fdatasync(fd_.get()) == 0) return {};
  return io::system_error(errno, "sync " + file_.string());
}

io::Status Journal::remove() {
  if (::unlink(file_.c_str()) == 0) return {};
  return io::system_error(errno, "remove " + file_.string());
}

}  // namespace engine
