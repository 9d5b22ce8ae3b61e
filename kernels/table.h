// One set of kernels for each instruction set, chosen at run time.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "kernels/bf16_matmul.h"
#include "kernels/elementwise.h"
#include "kernels/kda.h"
#include "kernels/mla.h"
#include "kernels/mxfp4_matmul.h"

namespace kernels {

struct Table {
  std::string_view isa;
  Bf16Matmul* bf16_matmul;
  Bf16TransposedProduct* bf16_transposed_product;
  Bf16Widen* bf16_widen;
  Mxfp4Matmul* mxfp4_matmul;
  RmsNorm* rms_norm;
  L2Norm* l2_norm;
  AttnResMix* attn_res_mix;
  Situ* situ;
  Sigmoid* sigmoid;
  SigmoidGate* sigmoid_gate;
  Add* add;
  Axpy* axpy;
  ShortConv* short_conv;
  KdaDecay* kda_decay;
  KdaStep* kda_step;
  MlaAttend* mla_attend;
};

// What this CPU can run, scalar first, the fastest last.
std::span<const Table> tables();

// By name; nullptr if this CPU cannot run it or there is none of that name.
const Table* find_table(std::string_view isa);

}  // namespace kernels
