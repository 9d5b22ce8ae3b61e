// The elementwise part of a kernel table, made from the bodies for one pack.
#pragma once

#include "kernels/body/attention.h"
#include "kernels/body/elementwise.h"
#include "kernels/table.h"

namespace kernels::body {

template <class P>
constexpr void fill_elementwise(Table& table) {
  table.rms_norm = rms_norm<P>;
  table.l2_norm = l2_norm<P>;
  table.attn_res_mix = attn_res_mix<P>;
  table.situ = situ<P>;
  table.sigmoid = sigmoid_all<P>;
  table.sigmoid_gate = sigmoid_gate<P>;
  table.add = add<P>;
  table.axpy = axpy<P>;
  table.short_conv = short_conv<P>;
  table.kda_decay = kda_decay<P>;
  table.kda_step = kda_step<P>;
  table.mla_attend = mla_attend<P>;
}

}  // namespace kernels::body
