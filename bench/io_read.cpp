// The reader alone, beside pread and mmap on threads and beside fio, on one file: rounds of all
// arms in a random order, medians, and the ratio to fio's arm of the same conditions in the same
// round.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "bench/io_read_arms.h"

namespace {

using bench::Arm;
using bench::Measured;

struct Flags {
  std::filesystem::path file;
  std::vector<std::string> paths{"uring", "pread", "fio"};
  std::vector<std::string> patterns{"tiles", "blocks"};
  std::vector<std::uint32_t> request_kib{1008, 4032};
  std::vector<std::uint32_t> depths{4, 16};
  std::vector<std::string> pages{"transparent", "hugetlb"};
  double seconds = 1;
  std::uint32_t n_rounds = 9;
  std::uint64_t seed = 1;
  std::string json;
  bool smoke = false;
};

const std::map<std::string, bench::Path> kPaths = {{"uring", bench::Path::uring},
                                                   {"pread", bench::Path::pread},
                                                   {"mmap", bench::Path::mmap},
                                                   {"fio", bench::Path::fio}};
const std::map<std::string, bench::Pattern> kPatterns = {{"tiles", bench::Pattern::tiles},
                                                         {"blocks", bench::Pattern::blocks}};
const std::map<std::string, io::PageKind> kPages = {{"transparent", io::PageKind::transparent},
                                                    {"hugetlb", io::PageKind::hugetlb},
                                                    {"small", io::PageKind::small}};

template <class Map>
std::vector<std::string> names(const Map& map) {
  std::vector<std::string> all;
  for (const auto& [name, value] : map) all.push_back(name);
  return all;
}

void add_flags(CLI::App& app, Flags& f) {
  app.add_option("FILE", f.file, "a file of real data, some GB")->check(CLI::ExistingFile);
  app.add_option("--paths", f.paths, "uring, pread, mmap, fio (if installed)")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(names(kPaths)));
  app.add_option("--patterns", f.patterns, "tiles (in order), blocks (17 requests at random)")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(names(kPatterns)));
  app.add_option("--request-kib", f.request_kib, "KiB of a request")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(4, 1 << 20));
  app.add_option("--depths", f.depths, "requests in flight; buffers are request x depth")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--pages", f.pages,
                 "transparent, hugetlb (wants vm.nr_hugepages), small; fio has the last two")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(names(kPages)));
  app.add_option("--seconds", f.seconds, "of each measurement")->capture_default_str();
  app.add_option("--rounds", f.n_rounds, "of all arms")->capture_default_str();
  app.add_option("--seed", f.seed, "of orders and places")->capture_default_str();
  app.add_option("--json", f.json, "file for every measurement, a line each");
  app.add_flag("--smoke", f.smoke, "a moment of every path on a file of its own: does it work");
}

std::vector<Arm> make_arms(const Flags& f) {
  std::vector<Arm> arms;
  for (const std::string& pattern : f.patterns) {
    for (const std::uint32_t request_kib : f.request_kib) {
      for (const std::uint32_t depth : f.depths) {
        for (const std::string& pages : f.pages) {
          for (const std::string& path : f.paths) {
            if (path == "fio" && pages == "transparent") continue;  // which fio cannot ask for
            arms.push_back({.path = kPaths.at(path),
                            .pattern = kPatterns.at(pattern),
                            .request_bytes = request_kib << 10,
                            .depth = depth,
                            .pages = kPages.at(pages)});
          }
        }
      }
    }
  }
  return arms;
}

struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

void print_table(const std::vector<Arm>& arms, const std::vector<std::vector<Measured>>& rounds) {
  const auto over = [&](std::size_t a, auto f) {
    std::vector<double> values;
    for (const auto& round : rounds) values.push_back(f(round, round[a]));
    return spread(std::move(values));
  };
  fmt::print("{:<46} {:>16} {:>9} {:>8} {:>8} {:>8} {:>5}  {}\n", "arm", "GB/s (range)",
             "CPU ms/GB", "p50 ms", "p99 ms", "submit99", "huge", "to fio (range)");
  for (std::size_t a = 0; a < arms.size(); ++a) {
    const auto median = [&](double Measured::*field) {
      return over(a, [&](const auto&, const Measured& m) { return m.*field; }).median;
    };
    const Spread rate = over(a, [](const auto&, const Measured& m) { return m.gb_per_second; });
    std::string ratio;
    const auto fio = std::find_if(arms.begin(), arms.end(), [&](const Arm& arm) {
      return arm.path == bench::Path::fio && arm.same_conditions(arms[a]);
    });
    if (fio != arms.end() && arms[a].path != bench::Path::fio) {
      const auto at = static_cast<std::size_t>(fio - arms.begin());
      const Spread r = over(a, [&](const auto& round, const Measured& m) {
        return m.gb_per_second / round[at].gb_per_second;
      });
      ratio = fmt::format("{:.3f} ({:.2f} to {:.2f})", r.median, r.low, r.high);
    }
    fmt::print("{:<46} {:.2f} ({:.2f}-{:.2f}) {:>9.1f} {:>8.2f} {:>8.2f} {:>8.3f} {:>5.2f}  {}\n",
               arms[a].name(), rate.median, rate.low, rate.high, median(&Measured::cpu_ms_per_gb),
               median(&Measured::latency_p50_ms), median(&Measured::latency_p99_ms),
               median(&Measured::submit_p99_ms), median(&Measured::huge_share), ratio);
  }
}

int fail(const std::string& message) {
  fmt::print(stderr, "io_read: {}\n", message);
  return 1;
}

int measure(const Flags& f) {
  const std::vector<Arm> arms = make_arms(f);
  std::ofstream json;
  if (!f.json.empty()) json.open(f.json);
  std::mt19937_64 random(f.seed);
  std::vector<std::size_t> order(arms.size());
  for (std::size_t a = 0; a < arms.size(); ++a) order[a] = a;
  std::vector<std::vector<Measured>> rounds(f.n_rounds, std::vector<Measured>(arms.size()));
  for (std::uint32_t r = 0; r < f.n_rounds; ++r) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Arm& arm = arms[order[i]];
      if (isatty(STDERR_FILENO) != 0) {
        fmt::print(stderr, "\r\033[Kround {} of {}, {} of {}: {}", r + 1, f.n_rounds, i + 1,
                   order.size(), arm.name());
      }
      io::Result<Measured> measured = run_arm(arm, f.file, f.seconds, random());
      if (!measured) return fail(arm.name() + ": " + measured.error().message);
      rounds[r][order[i]] = *measured;
      if (json.is_open()) {
        json << nlohmann::ordered_json{{"round", r},
                                       {"arm", arm.name()},
                                       {"gb_per_second", measured->gb_per_second},
                                       {"cpu_ms_per_gb", measured->cpu_ms_per_gb},
                                       {"latency_p50_ms", measured->latency_p50_ms},
                                       {"latency_p99_ms", measured->latency_p99_ms},
                                       {"submit_p99_ms", measured->submit_p99_ms},
                                       {"huge_share", measured->huge_share}}
             << "\n";
      }
    }
  }
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
  print_table(arms, rounds);
  return json.is_open() && !json.flush() ? fail("write " + f.json) : 0;
}

// Every path of ours on 8 MiB of its own, for a moment.
int smoke(Flags f) {
  std::string name = (std::filesystem::temp_directory_path() / "sluice-io-read-XXXXXX").string();
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return fail("create " + name);
  ::close(fd);
  std::mt19937_64 random(f.seed);
  std::vector<std::uint64_t> words(1 << 20);
  std::generate(words.begin(), words.end(), std::ref(random));
  std::ofstream(name, std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()),
             static_cast<std::streamsize>(words.size() * sizeof words[0]));
  f.file = name;
  f.paths = {"uring", "pread", "mmap"};
  f.request_kib = {16};
  f.depths = {1, 8};
  f.pages = {"transparent", "small"};
  f.seconds = 0.02;
  f.n_rounds = 1;
  const int result = measure(f);
  std::filesystem::remove(name);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reads a file directly in every way and compares the rates.");
  Flags flags;
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.smoke) return smoke(flags);
  if (flags.file.empty()) return fail("FILE is required (see --help)");
  return measure(flags);
}
