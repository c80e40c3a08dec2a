// Rows of logits in registers, and the twelve sums of losses: three splits, four sums each.
#pragma once
#include "gnn/values.cuh"

namespace penstock {

constexpr int kLanes = 32;
constexpr int kThreads = 256;
constexpr int kRoles = 3, kSums = 4;
constexpr u32 kAll = 0xFFFFFFFFu;

template <typename Value>
__device__ __forceinline__ Value sum_lanes(Value value, int lanes) {
  for (int apart = lanes / 2; apart; apart /= 2) value += __shfl_xor_sync(kAll, value, apart);
  return value;
}

// The sums of a block's threads at partial, (blocks, 12); ``of(n)`` is the thread's own n-th.
template <class Sum>
__device__ __forceinline__ void end_sums(const Sum& of, double* __restrict__ partial) {
  __shared__ double shared[kThreads / kLanes][kRoles * kSums];
#pragma unroll
  for (int n = 0; n < kRoles * kSums; ++n) {
    const double sum = sum_lanes(of(n), kLanes);
    if (threadIdx.x % kLanes == 0) shared[threadIdx.x / kLanes][n] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kRoles * kSums) {
    double sum = 0.0;
    for (int warp = 0; warp < kThreads / kLanes; ++warp) sum += shared[warp][threadIdx.x];
    partial[static_cast<i64>(blockIdx.x) * kRoles * kSums + threadIdx.x] = sum;
  }
}

// A thread's share of sums. Roles are compared, not used as an index, to stay in registers.
struct Tally {
  double sums[kRoles][kSums];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) sums[r][s] = 0.0;
    }
  }
  __device__ __forceinline__ void add(int split, double loss, double terms, double right,
                                      double of) {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
      if (split != r) continue;
      sums[r][0] += loss;
      sums[r][1] += terms;
      sums[r][2] += right;
      sums[r][3] += of;
    }
  }
  __device__ __forceinline__ void end(double* __restrict__ partial) const {
    end_sums([&](int n) { return sums[n / kSums][n % kSums]; }, partial);
  }
};

// The same if rows are counted, in fewer registers.
struct RowTally {
  double losses[kRoles];
  int rows[kRoles], right[kRoles];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
      losses[r] = 0.0;
      rows[r] = right[r] = 0;
    }
  }
  __device__ __forceinline__ void add(int split, double loss, bool is_right) {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
      if (split != r) continue;
      losses[r] += loss;
      rows[r] += 1;
      right[r] += is_right;
    }
  }
  __device__ __forceinline__ void end(double* __restrict__ partial) const {
    end_sums(
        [&](int n) {
          const int r = n / kSums, s = n % kSums;
          return s == 0 ? losses[r] : static_cast<double>(s == 2 ? right[r] : rows[r]);
        },
        partial);
  }
};

// The larger; NaN is largest.
template <typename Value>
__device__ __forceinline__ Value larger(Value a, Value b) {
  return a > b || a != a ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ float larger(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
#endif

// Read a value, minus infinity unless wanted. As one instruction, in the order written, so that
// several are in flight at once (gnn/values.cuh); kernels may write the values they read.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ float read_or_least(bool wanted, const float* from) {
  float value;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b32 %0, 0xFF800000;\n"
      "@p ld.global.f32 %0, [%1];\n}"
      : "=&f"(value)
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
  return value;
}
__device__ __forceinline__ double read_or_least(bool wanted, const double* from) {
  double value;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b64 %0, 0xFFF0000000000000;\n"
      "@p ld.global.f64 %0, [%1];\n}"
      : "=&d"(value)
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
  return value;
}
#else
template <typename Value>
__device__ __forceinline__ Value read_or_least(bool wanted, const Value* from) {
  return wanted ? *from : -static_cast<Value>(INFINITY);
}
#endif

// A row's label and split, and a lane's logits, every Lanes-th.
template <typename Value, int Lanes, int Each>
struct Row {
  Value at[Each];
  int label, split;

  // All loads are in flight at once, for any split.
  template <typename Id>
  __device__ __forceinline__ void read(const Value* logits, i64 stride,
                                       const Id* __restrict__ labels,
                                       const signed char* __restrict__ splits, i64 row, bool exists,
                                       int place, int classes) {
    const Value* const from = logits + row * stride + place;
    const int count = exists ? classes - place : 0;
#pragma unroll
    for (int i = 0; i < Each; ++i) at[i] = read_or_least(i * Lanes < count, from + i * Lanes);
    const Id given = exists ? __ldg(labels + row) : Id(-1);
    label = given < 0 ? -1 : static_cast<int>(given);
    split = exists ? static_cast<int>(__ldg(splits + row)) : -1;
  }
};

}  // namespace penstock
