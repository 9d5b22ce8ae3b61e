// The matrix products of this instruction set; contracts in kernels/{bf16,mxfp4}_matmul.h.
#pragma once

#include "kernels/bf16_matmul.h"
#include "kernels/mxfp4_matmul.h"

namespace kernels::scalar {

Bf16Matmul bf16_matmul;
Bf16TransposedProduct bf16_transposed_product;
Bf16Widen bf16_widen;
Mxfp4Matmul mxfp4_matmul;

}  // namespace kernels::scalar
