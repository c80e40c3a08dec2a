// A lane's columns of a row: prefetched, read, written, and added to rows that other blocks also
// add to.
#pragma once
#include "philox.cuh"

namespace penstock {

using i64 = long long;

constexpr int kLanes = 32;
constexpr u32 kAll = 0xFFFFFFFFu;

// Copy 4, 8 or 16 bytes to shared memory, or zeros, without waiting. Fewer than 16 go through L1,
// which has this multiprocessor's own reads and additions, and may lack those of others.
template <int Bytes>
__device__ __forceinline__ void copy_bytes(float* to, const float* from, bool wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const u32 place = static_cast<u32>(__cvta_generic_to_shared(to));
  const auto global = __cvta_generic_to_global(from);
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(global),
                 "r"(wanted ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(global),
                 "n"(Bytes), "r"(wanted ? Bytes : 0)
                 : "memory");
  }
#else
  for (int i = 0; i < Bytes / 4; ++i) to[i] = wanted ? __ldcg(from + i) : 0.0f;
#endif
}

// Wait until the copies of the warp's lanes are complete, for all of them.
__device__ __forceinline__ void await_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncwarp();
}

// Each columns of a warp's 32 * Each, Vec of them adjacent and aligned.
template <int Each, int Vec>
struct Columns {
  static constexpr int kWide = kLanes * Each;  // floats of a row in shared memory

  int lane, first, dimension;
  bool fours;  // whether all rows begin at multiples of 16 bytes

  __device__ __forceinline__ int inner(int i) const {
    return (i / Vec) * kLanes * Vec + lane * Vec + i % Vec;
  }
  __device__ __forceinline__ bool has(int i) const { return first + inner(i) < dimension; }

  // Copy from the matrix to shared memory without waiting, with zeros beyond the dimension. If rows
  // are whole fours, lanes copy 16 bytes, which bypass L1: not only their own columns.
  __device__ __forceinline__ void copy_later(float* to, const float* matrix, int row) const {
    const float* const from = matrix + static_cast<i64>(row) * dimension;
    if constexpr (Vec == 4) {
      copy_four(to, from);
    } else {
      if (Vec == Each && fours) return copy_four(to, from);
#pragma unroll
      for (int i = 0; i < Each; i += Vec) {
        const int column = inner(i);
        const bool wanted = first + column < dimension;
        copy_bytes<4 * Vec>(to + column, wanted ? from + first + column : from, wanted);
      }
    }
  }

  __device__ __forceinline__ void copy_four(float* to, const float* from) const {
    const int column = 4 * lane;
    const bool wanted = first + column < dimension;
    if (column < kWide) copy_bytes<16>(to + column, wanted ? from + first + column : from, wanted);
  }

  // The same, with this lane's additions, even those in flight.
  __device__ __forceinline__ void copy_now(float* to, const float* matrix, int row) const {
    const float* from = matrix + static_cast<i64>(row) * dimension + first;
#pragma unroll
    for (int i = 0; i < Each; ++i) to[inner(i)] = has(i) ? __ldcg(from + inner(i)) : 0.0f;
  }

  __device__ __forceinline__ void read(const float* from, float (&values)[Each]) const {
    if constexpr (Vec == 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + inner(0));
      values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    } else if constexpr (Vec == 2) {
      const float2 two = *reinterpret_cast<const float2*>(from + inner(0));
      values[0] = two.x, values[1] = two.y;
    } else {
#pragma unroll
      for (int i = 0; i < Each; ++i) values[i] = from[inner(i)];
    }
  }

  __device__ __forceinline__ void write(float* to, const float (&values)[Each]) const {
    if constexpr (Vec == 4) {
      *reinterpret_cast<float4*>(to + inner(0)) =
          make_float4(values[0], values[1], values[2], values[3]);
    } else if constexpr (Vec == 2) {
      *reinterpret_cast<float2*>(to + inner(0)) = make_float2(values[0], values[1]);
    } else {
#pragma unroll
      for (int i = 0; i < Each; ++i) to[inner(i)] = values[i];
    }
  }

  // Add to a row while other blocks may add to it.
  __device__ __forceinline__ void add(float* matrix, int row, const float (&values)[Each],
                                      float share) const {
    float* to = matrix + static_cast<i64>(row) * dimension + first;
    float scaled[Each];
#pragma unroll
    for (int i = 0; i < Each; ++i) scaled[i] = values[i] * share;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    constexpr int kTogether = Vec;
#else
    constexpr int kTogether = 1;
#endif
    if constexpr (kTogether == 4) {
      if (!has(0)) return;
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                       __cvta_generic_to_global(to + inner(0))),
                   "f"(scaled[0]), "f"(scaled[1]), "f"(scaled[2]), "f"(scaled[3])
                   : "memory");
    } else if constexpr (kTogether == 2) {
      if (!has(0)) return;
      asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(
                       __cvta_generic_to_global(to + inner(0))),
                   "f"(scaled[0]), "f"(scaled[1])
                   : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < Each; ++i) {
        if (has(i)) atomicAdd(to + inner(i), scaled[i]);
      }
    }
  }
};

// -- sums over the lanes of a warp, of many values at once -----------------------------------------

// Each lane gives and takes half of its values, so that Count values take about Count shuffles, not
// 5 * Count. Sums stay in the first held<Count> places, those of place_of.
template <int Count, int Apart = kLanes / 2, int Size>
__device__ __forceinline__ void sum_across(float (&part)[Size], int lane) {
  if constexpr (Apart > 0) {
    const bool upper = lane & Apart;
#pragma unroll
    for (int i = 0; i < Count / 2; ++i) {
      const float mine = upper ? part[2 * i + 1] : part[2 * i];
      const float given = upper ? part[2 * i] : part[2 * i + 1];
      part[i] = mine + __shfl_xor_sync(kAll, given, Apart);
    }
    if constexpr (Count % 2) {
      part[Count / 2] = part[Count - 1] + __shfl_xor_sync(kAll, part[Count - 1], Apart);
    }
    sum_across<(Count + 1) / 2, Apart / 2>(part, lane);
  }
}

template <int Count>
constexpr int held = (Count + kLanes - 1) / kLanes;

// The sum in a lane's i-th place, and whether only this lane has it.
struct SumPlace {
  int index;
  bool only;
};

template <int Count, int Apart = kLanes / 2>
__device__ __forceinline__ SumPlace place_of(int i, int lane) {
  if constexpr (Apart == 0) {
    return {i, true};
  } else {
    const SumPlace next = place_of<(Count + 1) / 2, Apart / 2>(i, lane);
    const bool upper = lane & Apart, paired = 2 * next.index + 1 < Count;
    return {2 * next.index + (paired && upper), next.only && (paired || !upper)};
  }
}

}  // namespace penstock
