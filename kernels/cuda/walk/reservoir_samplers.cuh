// Choosing one of a row's candidates in proportion to weights that are computed on the fly.
// LANES, Penstock's own: every lane adds up its fours in turn. One draw picks a lane in proportion
// to its sum; its share is divided among the lanes again, until one four is left. The row is read
// once and its last part (1/32 or less) again; a step takes one random number in all, and as the
// first sums depend on no draw, they serve every walk on that row. DPRS, ZPRS: the paper's
// samplers, for comparison.
#pragma once

#include "walk/reservoir_candidates.cuh"

namespace penstock {

constexpr int LANES = 0, DPRS = 1, ZPRS = 2;
constexpr int AT_ONCE_OF[] = {4, 2, 1};  // fours that a lane reads at once, by kind of candidates
constexpr int THREADS = 256, WARPS = THREADS / 32;

// The random words of one step of one walk.
struct Draws {
  u64 seed, which;
  u32 stream;

  __device__ __forceinline__ uint4 operator()(u32 n) const {
    return philox4x32(seed, stream, which, n);
  }
};

__device__ __forceinline__ u64 wide_of(uint4 words) {
  return static_cast<u64>(words.y) << 32 | words.x;
}

// [0, 1), of the upper 53 bits.
__device__ __forceinline__ double unit(u64 wide) {
  return static_cast<double>(wide >> 11) * 1.1102230246251565e-16;
}

// Neighbouring lanes of a warp that work on one row.
template <int Width>
struct Lanes {
  static constexpr int size = Width;

  __device__ __forceinline__ int rank() const { return threadIdx.x % Width; }
  __device__ __forceinline__ u32 mask() const {
    return Width == 32 ? ~0u : ((1u << (Width % 32)) - 1) << (threadIdx.x % 32 & ~(Width - 1));
  }
  template <typename T>
  __device__ __forceinline__ T from(T value, int rank) const {
    return __shfl_sync(mask(), value, rank, Width);
  }
  // A bit for each lane.
  __device__ __forceinline__ u32 votes(bool vote) const {
    const u32 all = __ballot_sync(mask(), vote);
    return Width == 32 ? all : all >> (threadIdx.x % 32 & ~(Width - 1)) & ((1u << (Width % 32)) - 1);
  }
  // The sum of this lane and those before.
  __device__ __forceinline__ double inclusive(double value) const {
#pragma unroll
    for (int distance = 1; distance < Width; distance *= 2) {
      const double before = __shfl_up_sync(mask(), value, distance, Width);
      if (rank() >= distance) value += before;
    }
    return value;
  }
  __device__ __forceinline__ double exclusive(double value, double& total) const {
    const double sum = inclusive(value);
    const double before = __shfl_up_sync(mask(), sum, 1, Width);
    total = from(sum, Width - 1);
    return rank() ? before : 0;
  }
  // The value of the last lane whose value is not -1.
  __device__ __forceinline__ i64 last(i64 value) const {
    const u32 some = votes(value >= 0);
    return some ? from(value, 31 - __clz(some)) : -1;
  }
};

// All threads of a block.
struct Block {
  static constexpr int size = THREADS;
  double (&sums)[WARPS];
  i64 (&values)[WARPS];

  __device__ __forceinline__ int rank() const { return threadIdx.x; }
  __device__ double exclusive(double value, double& total) const {
    double sum;
    const double before = Lanes<32>().exclusive(value, sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    double earlier = 0;
    total = 0;
    for (int warp = 0; warp < WARPS; ++warp) {
      if (warp == threadIdx.x / 32) earlier = total;
      total += sums[warp];
    }
    __syncthreads();
    return earlier + before;
  }
  __device__ i64 last(i64 value) const {
    const i64 of_warp = Lanes<32>().last(value);
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = of_warp;
    __syncthreads();
    i64 found = -1;
    for (int warp = 0; warp < WARPS; ++warp) found = values[warp] >= 0 ? values[warp] : found;
    __syncthreads();
    return found;
  }
};

// -- LANES
// -----------------------------------------------------------------------------------------

// A lane's part of ``count`` fours, ``stride`` apart, divided among ``lanes`` lanes. This many
// loads are in flight at once.
template <int AT_ONCE, typename Id, int Kind>
__device__ __forceinline__ double sum_of(const Candidates<Id, Kind>& candidates, int first,
                                         int stride, int count, int lane, int lanes) {
  double sum = 0;
  if constexpr (Kind == GENERAL) {
    for (int i = lane; i < count; i += lanes) {
      const i64 four = candidates.first_of(first + i * stride);
      const i64 begin = four > candidates.low ? four : candidates.low;
      const i64 row_end = candidates.low + candidates.count;
      const i64 end = four + 4 < row_end ? four + 4 : row_end;
      for (i64 edge = begin; edge < end; ++edge) sum += candidates.weight(edge);
    }
  } else {
    for (int i = lane; i < count; i += AT_ONCE * lanes) {
      float weight[AT_ONCE][4];
      candidates.weights(first + i * stride, lanes * stride, weight);
      float part = 0;
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) {
        part += (weight[k][0] + weight[k][1]) + (weight[k][2] + weight[k][3]);
      }
      sum += part;
    }
  }
  return sum;
}

// The lane whose share contains ``goal``, which then counts from that share's start; never one
// without weight; -1 if no lane has any.
template <int Width>
__device__ __forceinline__ int lane_of(double own, double inclusive, double& goal) {
  const Lanes<Width> lanes;
  u32 able = lanes.votes(own > 0 && inclusive > goal);
  const bool beyond = !able;  // by rounding
  if (beyond) able = lanes.votes(own > 0);
  if (!able) return -1;
  const int lane = beyond ? 31 - __clz(able) : __ffs(able) - 1;
  const double left = goal - lanes.from(inclusive - own, lane);
  goal = left > 0 ? left : 0;
  return lane;
}

// The edge that contains ``goal``, of ``count`` fours, ``stride`` apart.
template <int Width, typename Id, int Kind>
__device__ i64 descend(const Candidates<Id, Kind>& candidates, int first, int stride, int count,
                       double goal) {
  const Lanes<Width> lanes;
  while (count > 1) {
    const double own = sum_of<1>(candidates, first, stride, count, lanes.rank(), Width);
    const int lane = lane_of<Width>(own, lanes.inclusive(own), goal);
    if (lane < 0) return -1;
    first += lane * stride;
    count = (count - lane + Width - 1) / Width;
    stride *= Width;
  }
  const i64 four = candidates.first_of(first), row_end = candidates.low + candidates.count;
  i64 found = -1;
  for (int j = 0; j < 4; ++j) {  // the same in every lane
    const i64 edge = four + j;
    const double weight = edge >= candidates.low && edge < row_end ? candidates.weight(edge) : 0;
    if (weight > 0 && (goal >= 0 || found < 0)) found = edge;
    goal -= weight;
  }
  return found;
}

// -- the paper's -----------------------------------------------------------------------------------

// Whether a weight replaces the earlier choice; ``sum`` includes it.
__device__ __forceinline__ bool replaces(u32 word, double weight, double sum) {
  return weight > 0 && word * sum < weight * 4294967296.0;
}

__device__ __forceinline__ u32 word_of(const uint4& words, int n) {
  const u32 low = n & 1 ? words.y : words.x, high = n & 1 ? words.w : words.z;
  return n & 2 ? high : low;
}

// Direct parallel reservoir sampling: the group moves along the row and agrees at every stride.
template <typename Group, typename Id, int Kind>
__device__ i64 dprs(const Group& group, const Candidates<Id, Kind>& candidates, const Draws& draws) {
  double before = 0;
  i64 chosen = -1;
  uint4 words = {};
  for (int turn = 0, base = 0; base < candidates.count; ++turn, base += Group::size) {
    if (turn % 4 == 0) words = draws(1 + turn / 4 * Group::size + group.rank());
    const int place = base + group.rank();
    const double weight =
        place < candidates.count ? candidates.weight(candidates.low + place) : 0.0;
    double total;
    const double sum = before + group.exclusive(weight, total) + weight;
    const bool taken = replaces(word_of(words, turn % 4), weight, sum);
    const i64 latest = group.last(taken ? candidates.low + place : -1);
    if (latest >= 0) chosen = latest;
    before += total;
  }
  return chosen;
}

// Zig-zag parallel reservoir sampling: sums first, then each lane reads its own places again.
template <typename Group, typename Id, int Kind>
__device__ i64 zprs(const Group& group, const Candidates<Id, Kind>& candidates, const Draws& draws) {
  double own = 0, total;
  for (int place = group.rank(); place < candidates.count; place += Group::size) {
    own += candidates.weight(candidates.low + place);
  }
  double sum = group.exclusive(own, total);
  i64 chosen = -1;
  uint4 words = {};
  int turn = 0;
  for (int place = group.rank(); place < candidates.count; ++turn, place += Group::size) {
    if (turn % 4 == 0) words = draws(1 + turn / 4 * Group::size + group.rank());
    const double weight = candidates.weight(candidates.low + place);
    sum += weight;
    if (replaces(word_of(words, turn % 4), weight, sum)) chosen = candidates.low + place;
  }
  return group.last(chosen);
}

template <int Method, typename Group, typename Id, int Kind>
__device__ i64 sample(const Group& group, const Candidates<Id, Kind>& candidates,
                      const Draws& draws) {
  if constexpr (Method == DPRS) {
    return dprs(group, candidates, draws);
  } else {
    return zprs(group, candidates, draws);
  }
}

}  // namespace penstock
