// Splits independent work into tasks large enough to pay for themselves.  What is split never
// shares a sum, so the number of threads reaches no bit of a result.
#pragma once

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstddef>

#include "engine/fork_join.h"

namespace engine {

// Calls f(begin, n) over rows of row_bytes, each used by n_tokens tokens: a task is about 100 us
// of work, 512 KiB of weights for one token.
template <class F>
void for_rows(std::size_t n_rows, std::size_t row_bytes, std::size_t n_tokens, F f) {
  constexpr std::size_t kTaskBytes = 512 << 10;
  const std::size_t grain = std::max<std::size_t>(4, kTaskBytes / (row_bytes * n_tokens + 1));
  if (n_rows <= grain) return f(std::size_t{0}, n_rows);
  ForkJoin join;
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, n_rows, grain),
                    [&](const auto& range) { join.task([&] { f(range.begin(), range.size()); }); });
}

// Calls f(i) for i in [0, n), each of about work_flops operations.
template <class F>
void for_each_index(std::size_t n, std::size_t work_flops, F f) {
  constexpr std::size_t kTaskFlops = 200'000;
  const std::size_t grain = std::max<std::size_t>(1, kTaskFlops / (work_flops + 1));
  if (n <= grain) {
    for (std::size_t i = 0; i < n; ++i) f(i);
    return;
  }
  ForkJoin join;
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, n, grain), [&](const auto& range) {
    join.task([&] {
      for (std::size_t i = range.begin(); i < range.end(); ++i) f(i);
    });
  });
}

}  // namespace engine
