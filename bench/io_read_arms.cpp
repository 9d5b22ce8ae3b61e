#include "bench/io_read_arms.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "io/file_set.h"
#include "io/reader.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Where each request goes, as the arm's pattern has it.
class Places {
 public:
  Places(const Arm& arm, std::uint64_t file_bytes, std::uint64_t seed)
      : arm_(arm), n_requests_(file_bytes / arm.request_bytes), random_(seed) {}

  std::uint64_t next_offset_bytes() {
    if (arm_.pattern == Pattern::tiles) {
      next_ = (next_ + 1) % n_requests_;
    } else if (n_in_block_++ % kRequestsPerBlock == 0) {
      next_ = random_() % (n_requests_ - kRequestsPerBlock);
    } else {
      ++next_;
    }
    return next_ * arm_.request_bytes;
  }

 private:
  const Arm& arm_;
  const std::uint64_t n_requests_;
  std::mt19937_64 random_;
  std::uint64_t next_ = 0;
  std::uint64_t n_in_block_ = 0;
};

io::Result<std::unique_ptr<io::Backend>> make_backend(const Arm& arm, const io::FileSet& files,
                                                      const io::BackendOptions& options) {
  std::vector<std::string> notes;  // of what is not registered: the memory limit of the user
  io::Result<std::unique_ptr<io::Backend>> backend =
      arm.path == Path::uring   ? io::make_uring_backend(files, options, notes)
      : arm.path == Path::pread ? io::make_pread_backend(files, options, notes)
                                : io::make_mmap_backend(files, options, notes);
  for (const std::string& note : notes) fmt::print(stderr, "io_read: {}\n", note);
  return backend;
}

io::Result<Measured> run_reader(const Arm& arm, const std::filesystem::path& path, double seconds,
                                std::uint64_t seed) {
  const std::uint64_t file_bytes = std::filesystem::file_size(path);
  if (file_bytes / arm.request_bytes <= kRequestsPerBlock) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("{}: {} bytes are fewer than {} requests of {}", path.string(),
                                 file_bytes, kRequestsPerBlock + 1, arm.request_bytes)};
  }
  io::Result<io::FileSet> files =
      io::FileSet::open({&path, 1}, {&file_bytes, 1},
                        arm.path == Path::mmap ? io::Access::buffered : io::Access::direct);
  if (!files) return std::move(files.error());
  if (arm.path == Path::mmap) posix_fadvise(files->fd(0), 0, 0, POSIX_FADV_DONTNEED);
  io::Result<io::Buffer> memory =
      io::Buffer::create(std::size_t{arm.request_bytes} * arm.depth, arm.pages);
  if (!memory) return std::move(memory.error());
  std::vector<std::span<std::byte>> slots;
  for (std::uint32_t i = 0; i < arm.depth; ++i) {
    slots.emplace_back(memory->data() + std::size_t{i} * arm.request_bytes, arm.request_bytes);
  }
  io::Result<std::unique_ptr<io::Backend>> backend =
      make_backend(arm, *files, {.depth = arm.depth, .slots = slots});
  if (!backend) return std::move(backend.error());
  const auto times = std::make_unique<io::ReadTimes>();
  io::Reader reader(*files, std::move(*backend), times.get());

  Places places(arm, file_bytes, seed);
  const auto start_read = [&](std::uint64_t tag) {
    reader.start({.tag = tag,
                  .file_idx = 0,
                  .offset_bytes = places.next_offset_bytes(),
                  .to = slots[tag],
                  .n_needed_bytes = arm.request_bytes});
  };
  const double cpu_start = cpu_seconds();
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (std::uint64_t tag = 0; tag < arm.depth; ++tag) start_read(tag);
  std::vector<io::Done> done;
  std::uint64_t n_bytes = 0;
  while (reader.n_in_flight() > 0) {
    done.clear();
    if (io::Status waited = reader.wait(done); !waited) return std::move(waited.error());
    const bool more = elapsed() < seconds;
    for (const io::Done& read : done) {
      if (!read.status) return read.status.error();
      n_bytes += arm.request_bytes;
      if (more) start_read(read.tag);
    }
  }
  const double gb = 1e-9 * static_cast<double>(n_bytes);
  const auto ms = [](std::uint64_t ns) { return 1e-6 * static_cast<double>(ns); };
  const io::TouchedBytes touched = io::touched_bytes({&*memory, 1});
  return Measured{.gb_per_second = gb / elapsed(),
                  .cpu_ms_per_gb = 1e3 * (cpu_seconds() - cpu_start) / gb,
                  .latency_p50_ms = ms(times->latency.quantile(0.5)),
                  .latency_p99_ms = ms(times->latency.quantile(0.99)),
                  .submit_p99_ms = ms(times->submit.quantile(0.99)),
                  .huge_share = static_cast<double>(touched.huge) /
                                static_cast<double>(std::max<std::uint64_t>(touched.all, 1))};
}

io::Result<Measured> run_fio(const Arm& arm, const std::filesystem::path& file, double seconds,
                             std::uint64_t seed) {
  const std::string rw =
      arm.pattern == Pattern::tiles ? "read" : fmt::format("randread:{}", kRequestsPerBlock);
  const std::string command = fmt::format(
      "fio --name=io_read --filename='{}' --readonly --allow_file_create=0 --rw={} --bs={} "
      "--iodepth={} --direct=1 --ioengine=io_uring --fixedbufs=1 --registerfiles=1 --norandommap "
      "--randseed={} --time_based --runtime={}ms --mem={} --output-format=json 2>/dev/null",
      file.string(), rw, arm.request_bytes, arm.depth, seed, static_cast<int>(1e3 * seconds),
      arm.pages == io::PageKind::hugetlb ? "shmhuge" : "malloc");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "re"), &pclose);
  std::string text;
  char piece[4096];
  while (pipe && std::fgets(piece, sizeof piece, pipe.get()) != nullptr) text += piece;
  const std::size_t begin = text.find('{');
  const auto json =
      nlohmann::json::parse(begin == std::string::npos ? "" : text.substr(begin), nullptr, false);
  if (json.is_discarded() || json["jobs"][0]["read"]["io_bytes"] == 0) {
    return io::Error{io::Errc::system, 0, "fio read nothing: " + command};
  }
  const auto& job = json["jobs"][0];
  const auto& read = job["read"];
  const double gb = 1e-9 * read["io_bytes"].get<double>();
  const double run_seconds = 1e-3 * read["runtime"].get<double>();
  const double cpu_percent = job["usr_cpu"].get<double>() + job["sys_cpu"].get<double>();
  return Measured{.gb_per_second = 1e-9 * read["bw_bytes"].get<double>(),
                  .cpu_ms_per_gb = 1e3 * 0.01 * cpu_percent * run_seconds / gb,
                  .latency_p50_ms = 1e-6 * read["clat_ns"]["percentile"]["50.000000"].get<double>(),
                  .latency_p99_ms = 1e-6 * read["clat_ns"]["percentile"]["99.000000"].get<double>(),
                  .huge_share = arm.pages == io::PageKind::hugetlb ? 1.0 : 0.0};
}

}  // namespace

std::string Arm::name() const {
  constexpr const char* kPaths[] = {"uring", "pread", "mmap", "fio"};
  return fmt::format("{} {} {} KiB x {}, {}", kPaths[static_cast<std::size_t>(path)],
                     pattern == Pattern::tiles ? "tiles" : "blocks", request_bytes >> 10, depth,
                     page_kind_name(pages));
}

io::Result<Measured> run_arm(const Arm& arm, const std::filesystem::path& file, double seconds,
                             std::uint64_t seed) {
  return arm.path == Path::fio ? run_fio(arm, file, seconds, seed)
                               : run_reader(arm, file, seconds, seed);
}

}  // namespace bench
