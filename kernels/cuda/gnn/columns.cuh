// Sums over rows, column by column, in float64 and in an order that depends only on the shape: each
// block sums a share of the rows, then one warp per column adds the sums of the blocks.
#pragma once
#include "gnn/values.cuh"

namespace penstock {

constexpr int kSumThreads = 256;  // of a block

// ``term(row, feature, values)`` gives the addends of Kinds sums.
// partial is (blocks, Kinds, width).
template <int Kinds, class Term>
__device__ __forceinline__ void sum_columns(i64 first, i64 last, int width, const Term& term,
                                            double* __restrict__ partial) {
  __shared__ double shared[kSumThreads];
  const int columns = width < kSumThreads ? width : kSumThreads, slots = kSumThreads / columns;
  const int slot = threadIdx.x / columns;
  const i64 step = static_cast<i64>(gridDim.x) * slots;
  for (int column = 0; column < width; column += columns) {
    const int feature = column + threadIdx.x % columns;
    double sums[Kinds];
#pragma unroll
    for (int k = 0; k < Kinds; ++k) sums[k] = 0.0;
    if (slot < slots && feature < width) {
#pragma unroll 4
      for (i64 row = first + static_cast<i64>(blockIdx.x) * slots + slot; row < last; row += step) {
        double values[Kinds];
        term(row, feature, values);
#pragma unroll
        for (int k = 0; k < Kinds; ++k) sums[k] += values[k];
      }
    }
#pragma unroll
    for (int k = 0; k < Kinds; ++k) {
      __syncthreads();
      shared[threadIdx.x] = sums[k];
      __syncthreads();
      if (slot == 0 && feature < width) {
        double sum = sums[k];
        for (int other = 1; other < slots; ++other) sum += shared[other * columns + threadIdx.x];
        partial[(static_cast<i64>(blockIdx.x) * Kinds + k) * width + feature] = sum;
      }
    }
  }
}

// Add the sums of (blocks, count) to (count,): one warp each.
template <typename Out>
__device__ __forceinline__ void add_partial_sums(const double* __restrict__ partial, int blocks,
                                                 int count, Out* sums) {
  const int lane = threadIdx.x % 32;
  for (i64 n = thread_number() / 32; n < count; n += thread_count() / 32) {
    double sum = 0.0;
#pragma unroll 4
    for (int block = lane; block < blocks; block += 32) {
      sum += partial[static_cast<i64>(block) * count + n];
    }
#pragma unroll
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    if (lane == 0) sums[n] += static_cast<Out>(sum);
  }
}

}  // namespace penstock
