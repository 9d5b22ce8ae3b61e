#include "kernels/body/table.h"

#include "kernels/scalar/matmul.h"
#include "kernels/scalar/pack.h"

namespace kernels::scalar {
namespace {

constexpr Table make_table() {
  Table table{};
  table.isa = "scalar";
  table.bf16_matmul = bf16_matmul;
  table.bf16_transposed_product = bf16_transposed_product;
  table.bf16_widen = bf16_widen;
  table.mxfp4_matmul = mxfp4_matmul;
  body::fill_elementwise<Pack>(table);
  return table;
}

}  // namespace

extern const Table kTable;
constinit const Table kTable = make_table();

}  // namespace kernels::scalar
