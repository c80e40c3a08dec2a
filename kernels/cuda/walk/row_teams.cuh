// Rows of a graph for teams of threads: one warp each, or one block each if they are long.
#pragma once
#include "grid.cuh"

namespace penstock {

using i64 = long long;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kLanes = 32;
constexpr int kThreads = 256;  // of every block
constexpr u32 kAll = 0xFFFFFFFFu;

struct Sum {
  template <typename Value>
  __device__ __forceinline__ Value operator()(Value a, Value b) const {
    return a + b;
  }
};

struct Larger {
  template <typename Value>
  __device__ __forceinline__ Value operator()(Value a, Value b) const {
    return b > a ? b : a;
  }
};

// The threads that share a row: a warp, or a block of kThreads.
template <int Size>
struct Team {
  __device__ __forceinline__ static int rank() { return threadIdx.x % Size; }
  __device__ __forceinline__ static i64 number() { return thread_number() / Size; }
  __device__ __forceinline__ static i64 count() { return thread_count() / Size; }
  __device__ __forceinline__ static void sync() {
    if (Size == kLanes) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  // Running sums up to and with each thread, and the sum of all.
  template <typename Value>
  __device__ __forceinline__ static Value scan(Value value, Value& total) {
    const int lane = threadIdx.x % kLanes;
    for (int apart = 1; apart < kLanes; apart *= 2) {
      const Value left = __shfl_up_sync(kAll, value, apart);
      if (lane >= apart) value += left;
    }
    total = __shfl_sync(kAll, value, kLanes - 1);
    if (Size == kLanes) return value;
    __shared__ Value totals[kThreads / kLanes];
    const int warp = threadIdx.x / kLanes;
    __syncthreads();  // the last use of totals is complete
    if (lane == 0) totals[warp] = total;
    __syncthreads();
    Value before = 0;
    total = 0;
    for (int i = 0; i < Size / kLanes; ++i) {
      if (i == warp) before = total;
      total += totals[i];
    }
    return before + value;
  }

  // One value of all threads'.
  template <typename Value, typename Join>
  __device__ __forceinline__ static Value reduce(Value value, Join join) {
    for (int apart = kLanes / 2; apart; apart /= 2) {
      value = join(value, __shfl_xor_sync(kAll, value, apart));
    }
    if (Size == kLanes) return value;
    __shared__ Value values[kThreads / kLanes];
    __syncthreads();
    if (threadIdx.x % kLanes == 0) values[threadIdx.x / kLanes] = value;
    __syncthreads();
    value = values[0];
    for (int i = 1; i < Size / kLanes; ++i) value = join(value, values[i]);
    return value;
  }
};

// The n-th row of a team: from a list, or any that is not too long; else -1.
template <int Size>
__device__ __forceinline__ i64 row_for_team(const i64* listed, const i64* __restrict__ indptr,
                                            i64 n, i64 longest) {
  if (listed) return listed[n];
  return indptr[n + 1] - indptr[n] > longest ? -1 : n;
}

}  // namespace penstock
