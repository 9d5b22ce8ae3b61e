// Runs a fuzz target on every file of a folder, as a test: what once was found stays found.
//
//   replay FOLDER     exit 0; 1 if the folder is missing or holds no file; a target that fails
//   aborts
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

int main(int n_arguments, char** arguments) {
  if (n_arguments != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 1;
  }
  std::error_code error;
  std::size_t n_files = 0;
  for (auto item = std::filesystem::directory_iterator(arguments[1], error);
       !error && item != std::filesystem::directory_iterator(); item.increment(error)) {
    std::ifstream file(item->path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file),
                                  std::istreambuf_iterator<char>()};
    std::printf("%s\n", item->path().c_str());  // before it is run: the last one is to blame
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++n_files;
  }
  if (error) std::fprintf(stderr, "%s: %s\n", arguments[1], error.message().c_str());
  if (n_files == 0) std::fprintf(stderr, "%s: holds no file\n", arguments[1]);
  return error || n_files == 0 ? 1 : 0;
}
