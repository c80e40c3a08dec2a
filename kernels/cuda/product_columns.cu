// out = a.T @ b for matrices of many rows and few columns. A block has a share of the rows and a
// tile of the outputs: each of its warps copies some rows at a time to shared memory, a few steps
// ahead, and adds their outer products in registers. The blocks' sums are added in float64, in an
// order that only the shape decides.
#include "gnn/values.cuh"

// instance: multiply_columns<4, 4>
// instance: multiply_columns<4, 8>
// instance: multiply_columns<4, 12>
// instance: multiply_columns<8, 4>
// instance: multiply_columns<8, 8>
// instance: multiply_columns<8, 12>
// instance: multiply_columns<13, 4>
// instance: multiply_columns<13, 8>
// instance: multiply_columns<16, 4>
// instance: multiply_columns<16, 8>
// instance: add_shares

using namespace penstock;

namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 4;       // of a block
constexpr int kLanesDown = 8;   // of a warp, along a's columns
constexpr int kLanesAlong = 4;  // of a warp, along b's columns
constexpr int kRows = 4;        // of a step
constexpr int kCopiers = 8;     // lanes that copy a row of a step
constexpr int kSteps = 4;       // in shared memory: one is multiplied, three are in flight
constexpr int kAdders = 8;      // warps that add the shares of some outputs

// Copy a number of bytes to shared memory, or zeros, without waiting.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <int Bytes>
__device__ __forceinline__ void copy_later(float* to, const float* from, bool wanted) {
  const u32 place = static_cast<u32>(__cvta_generic_to_shared(to));
  const auto source = __cvta_generic_to_global(from);
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(source),
                 "r"(wanted ? Bytes : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(source),
                 "r"(wanted ? Bytes : 0)
                 : "memory");
  }
}
__device__ __forceinline__ void end_step() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until all but the newest steps of this lane are loaded.
template <int Newest>
__device__ __forceinline__ void await_step() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory");
}
#else
template <int Bytes>
__device__ __forceinline__ void copy_later(float* to, const float* from, bool wanted) {
  for (int i = 0; i < Bytes / 4; ++i) to[i] = wanted ? from[i] : 0.0f;
}
__device__ __forceinline__ void end_step() {}
template <int Newest>
__device__ __forceinline__ void await_step() {}
#endif

// A lane's copies from a matrix: its parts of a row, and then of a row some further down. Width is
// the tile's; values past the matrix become 0.
template <int Width>
struct Columns {
  static constexpr int kPitch = (Width + 31) / 32 * 32;

  const float* at;  // the lane's first part
  i64 step;
  int left;   // columns from there to the row's or the tile's end
  int first;  // which column of the tile that is
  bool aligned;

  // aligned: 16 bytes are read at once
  __device__ __forceinline__ Columns(const float* row, i64 stride, int rows_further, int width,
                                     int place, bool aligned)
      : step(stride * rows_further), first(aligned ? 4 * place : place), aligned(aligned) {
    at = row + first;
    left = (width < Width ? width : Width) - first;
  }
  __device__ __forceinline__ void copy(bool exists, float* row) {
    const int there = exists ? left : 0;
    float* const to = row + first;
    if (aligned) {
#pragma unroll
      for (int i = 0; i < kPitch; i += 4 * kCopiers) {
        copy_later<16>(to + i, at + i, i < there);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Width; i += kCopiers) {
        copy_later<4>(to + i, at + i, i < there);
      }
    }
    at += step;
  }
};

}  // namespace

// Each lane has Down x Along outputs. partial is (shares, a_columns, b_columns).
template <int Down, int Along>
__launch_bounds__(kLanes* kWarps, Down* Along > 64 ? 3 : 4) __global__
    void multiply_columns(const float* __restrict__ a, i64 a_stride, int a_aligned,
                          const float* __restrict__ b, i64 b_stride, int b_aligned, i64 rows,
                          int rows_a_share, int a_columns, int b_columns, int tiles_along,
                          int tiles, float* __restrict__ partial) {
  constexpr int kTileDown = kLanesDown * Down, kTileAlong = kLanesAlong * Along;
  constexpr int kRight = Columns<kTileDown>::kPitch;  // start of b's columns
  // Rows begin in different banks, so that single copies do not conflict.
  constexpr int kPitch = kRight + Columns<kTileAlong>::kPitch + kCopiers;
  constexpr int kStep = kRows * kPitch, kRing = kSteps * kStep;
  static_assert(kWarps * kRing >= kTileDown * kTileAlong, "a tile of sums takes the ring's place");
  alignas(16) __shared__ float shared[kWarps * kRing];

  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int tile = blockIdx.x % tiles, share = blockIdx.x / tiles;
  const int down = tile / tiles_along * kTileDown, along = tile % tiles_along * kTileAlong;
  const i64 first = static_cast<i64>(share) * rows_a_share;
  const int mine = first + rows_a_share < rows ? rows_a_share : static_cast<int>(rows - first);
  const int copied = lane / kCopiers, place = lane % kCopiers;
  int next = warp * kRows + copied;  // the next row of the share for this lane
  Columns<kTileDown> left(a + (first + next) * a_stride + down, a_stride, kWarps * kRows,
                          a_columns - down, place, a_aligned != 0);
  Columns<kTileAlong> right(b + (first + next) * b_stride + along, b_stride, kWarps * kRows,
                            b_columns - along, place, b_aligned != 0);
  float* const ring = shared + warp * kRing;
  const auto copy_step = [&](u32 slot) {
    float* const to = ring + slot * kStep + copied * kPitch;
    left.copy(next < mine, to);
    right.copy(next < mine, to + kRight);
    end_step();
    next += kWarps * kRows;
  };

  float sums[Down][Along];
#pragma unroll
  for (int i = 0; i < Down; ++i) {
#pragma unroll
    for (int j = 0; j < Along; ++j) sums[i][j] = 0.0f;
  }
#pragma unroll
  for (u32 slot = 0; slot < kSteps - 1; ++slot) copy_step(slot);
  const int lane_down = lane / kLanesAlong, lane_along = lane % kLanesAlong;
  u32 slot = 0;
#pragma unroll 1
  while (next - copied - (kSteps - 1) * kWarps * kRows < mine) {
    await_step<kSteps - 2>();
    __syncwarp();  // copies are complete, and the overwritten step was read
    copy_step((slot + kSteps - 1) % kSteps);
    const float* const step = ring + slot * kStep;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float* const x = step + row * kPitch + lane_down;
      const float* const y = step + row * kPitch + kRight + 4 * lane_along;
      Pack<float, 4> ys[Along / 4];
#pragma unroll
      for (int j = 0; j < Along / 4; ++j) {
        ys[j] = Pack<float, 4>::read(y + j * 4 * kLanesAlong);
      }
#pragma unroll
      for (int i = 0; i < Down; ++i) {
        const float value = x[i * kLanesDown];
#pragma unroll
        for (int j = 0; j < Along; ++j) sums[i][j] += value * ys[j / 4].at[j % 4];
      }
    }
    slot = (slot + 1) % kSteps;
  }

  await_step<0>();
  // One warp after the other adds its sums to the block's.
  for (int turn = 0; turn < kWarps; ++turn) {
    __syncthreads();
    if (turn != warp) continue;
#pragma unroll
    for (int i = 0; i < Down; ++i) {
      float* const row = shared + (i * kLanesDown + lane_down) * kTileAlong + 4 * lane_along;
#pragma unroll
      for (int j = 0; j < Along; ++j) {
        float& sum = row[j / 4 * 4 * kLanesAlong + j % 4];
        sum = turn ? sum + sums[i][j] : sums[i][j];
      }
    }
  }
  __syncthreads();
  for (int n = threadIdx.x; n < kTileDown * kTileAlong; n += kLanes * kWarps) {
    const int i = down + n / kTileAlong, j = along + n % kTileAlong;
    if (i < a_columns && j < b_columns) {
      partial[(static_cast<i64>(share) * a_columns + i) * b_columns + j] = shared[n];
    }
  }
}

// A block has one output per lane of a warp; each warp adds some of the shares.
__launch_bounds__(kLanes* kAdders) __global__
    void add_shares(const float* __restrict__ partial, int shares, int outputs, int columns,
                    float* out, i64 stride) {
  __shared__ double shared[kAdders][kLanes];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int n = blockIdx.x * kLanes + lane;
  double sum = 0.0;
  if (n < outputs) {
#pragma unroll 8
    for (int share = warp; share < shares; share += kAdders) {
      sum += __ldg(partial + static_cast<i64>(share) * outputs + n);
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && n < outputs) {
    for (int other = 1; other < kAdders; ++other) sum += shared[other][lane];
    out[n / columns * stride + n % columns] = static_cast<float>(sum);
  }
}
