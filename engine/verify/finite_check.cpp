#include "engine/verify/finite_check.h"

#include <span>

#include "engine/checkpoint/small_tensor.h"
#include "io/file_set.h"

namespace engine {
namespace {

// The small tensors of each file as a catalogue of their own, so that a file that cannot be read
// hides nothing of the others.
std::vector<Catalogue> split_by_file(const Catalogue& catalogue) {
  std::vector<Catalogue> parts(catalogue.files.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].files = {catalogue.files[i]};
    parts[i].file_bytes = {catalogue.file_bytes[i]};
  }
  for (const auto& [name, tensor] : catalogue.small) {
    SmallTensor moved = tensor;
    moved.range.file_idx = 0;
    parts[tensor.range.file_idx].small.emplace(name, std::move(moved));
  }
  return parts;
}

void check_file(const Catalogue& part, FiniteCheck& check) {
  if (part.small.empty()) return;
  const io::Result<io::FileSet> files =
      io::FileSet::open(part.files, part.file_bytes, io::Access::prefer_direct);
  if (!files) {
    check.bad.push_back(files.error().message);
    return;
  }
  if (check.notes.empty()) check.notes = files->notes();
  for (const auto& [name, tensor] : part.small) {
    const io::Result<std::vector<float>> values = read_small(part, *files, name);
    if (!values) check.bad.push_back(values.error().message);
    if (!values && values.error().code != io::Errc::invalid) return;
    check.n_read_bytes += tensor.range.n_bytes;
  }
}

}  // namespace

FiniteCheck check_small_tensors(const Catalogue& catalogue, const std::atomic<bool>* interrupted) {
  FiniteCheck check;
  for (const Catalogue& part : split_by_file(catalogue)) {
    if (interrupted != nullptr && interrupted->load()) break;
    check_file(part, check);
  }
  return check;
}

}  // namespace engine
