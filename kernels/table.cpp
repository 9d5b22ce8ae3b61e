#include "kernels/table.h"

#include <vector>

namespace kernels {

namespace scalar {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}

std::span<const Table> tables() {
  static const std::vector<Table> supported = [] {
    std::vector<Table> found{scalar::kTable};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      found.push_back(avx2::kTable);
    }
    return found;
  }();
  return supported;
}

const Table* find_table(std::string_view isa) {
  for (const Table& table : tables()) {
    if (table.isa == isa) return &table;
  }
  return nullptr;
}

}  // namespace kernels
