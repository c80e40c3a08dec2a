// Gradients of the same row are summed, and the row is changed once.
//
// keys      sorted: row << 32 | place, where place is that of a gradient among all of the batch
// begins    (listed) the starts in the keys of the rows to change
// folded    the unit of the next possible fold, or 1
//
// Rows of relations follow those of nodes, and their gradients too, in a separate array.
//
// Only the keys decide the order of sums. Keys are in blocks of 32: for a row that extends beyond
// its block, ``fold`` puts the sum of its values in a block at the first of them. Sums that begin a
// block are then folded with unit 32, in blocks of 1024 keys, and so on.
#include "embed/optimizer.cuh"
#include "grid.cuh"

// instance: fold
// instance: update_rows<ADAGRAD>
// instance: update_rows<SGD>
// instance: update_rows<ADAM>

using namespace penstock;
using i64 = long long;

constexpr int kPieces = 4;  // of 32 values, that are summed at once

// Gradients of a table's rows; ``first_row`` is its first row, and ``first_place`` the place of
// that row's gradients.
struct Slopes {
  float* values;
  int width;
  i64 first_row, first_place;
};

__device__ __forceinline__ i64 row_of(const i64* keys, i64 at) { return keys[at] >> 32; }
__device__ __forceinline__ i64 place_of(const i64* keys, i64 at) { return keys[at] & 0xFFFFFFFF; }

// The first key from ``low`` to ``high`` that is not below ``wanted``.
__device__ i64 lower_bound(const i64* keys, i64 low, i64 high, i64 wanted) {
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (keys[middle] < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Add the gradients of keys from ``at`` to ``end``, ``apart`` apart, to columns first + 32 j. All
// lanes of a warp call it.
__device__ __forceinline__ void add_up(const i64* __restrict__ keys, const Slopes& slopes, i64 at,
                                       i64 end, i64 apart, int first, float (&sum)[kPieces]) {
  const int lane = threadIdx.x & 31;
  for (; at < end; at += 32 * apart) {
    const i64 mine = at + lane * apart;
    const i64 place = mine < end ? place_of(keys, mine) - slopes.first_place : 0;
    const int number = __popc(__ballot_sync(0xFFFFFFFFu, mine < end));
#pragma unroll 4
    for (int i = 0; i < number; ++i) {
      const float* from = slopes.values + __shfl_sync(0xFFFFFFFFu, place, i) * slopes.width;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        if (first + 32 * j < slopes.width) sum[j] += from[first + 32 * j];
      }
    }
  }
}

// Sums of the folds with this unit are at multiples of it, if that many keys before are of the same
// row.
__device__ __forceinline__ i64 reach_of(i64 unit) {
  i64 reach = 0;
  for (i64 lower = 1; lower < unit; lower *= 32) reach += lower;
  return reach;
}

// One warp per block. Only its first and last row can extend beyond it.
__global__ void fold(const i64* __restrict__ keys, i64 count, i64 unit, float* node_slopes,
                     int node_width, i64 nodes, i64 node_places, float* relation_slopes,
                     int relation_width) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const int lane = threadIdx.x & 31;
  const i64 reach = reach_of(unit), block_keys = 32 * unit;
  const i64 blocks = (count + block_keys - 1) / block_keys;
  for (i64 block = thread_number() / 32; block < blocks; block += thread_count() / 32) {
    const i64 begin = block * block_keys, mine = begin + lane * unit;
    const i64 row = mine < count ? row_of(keys, mine) : -1;
    const bool takes = mine < count && (mine >= reach && row_of(keys, mine - reach) == row);
    const i64 first_row = __shfl_sync(kAll, row, 0), last_row = __shfl_sync(kAll, row, 31);
    const unsigned of_first = __ballot_sync(kAll, takes && row == first_row);
    const unsigned of_last = __ballot_sync(kAll, takes && row == last_row && last_row >= 0);
    const i64 before = begin - unit - reach;
    const bool earlier = (of_first & 1) && before >= 0 && row_of(keys, before) == first_row;
    const bool later = last_row >= 0 && begin + block_keys < count &&
                       row_of(keys, begin + block_keys) == last_row;
    for (int end = 0; end < 2; ++end) {
      const unsigned lanes = end ? of_last : of_first;
      if (end && last_row == first_row) continue;
      if (!(end ? later : earlier || (later && last_row == first_row)) || !lanes) continue;
      const i64 at = begin + (__ffs(lanes) - 1) * unit;
      const i64 until = begin + (32 - __clz(lanes)) * unit;
      Slopes slopes = {node_slopes, node_width, 0, 0};
      if ((end ? last_row : first_row) >= nodes) {
        slopes = {relation_slopes, relation_width, nodes, node_places};
      }
      float* to = slopes.values + (place_of(keys, at) - slopes.first_place) * slopes.width;
      for (int base = 0; base < slopes.width; base += 32 * kPieces) {
        float sum[kPieces] = {};
        add_up(keys, slopes, at, until, unit, base + lane, sum);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          const int k = base + lane + 32 * j;
          if (k < slopes.width) to[k] = sum[j];
        }
      }
    }
  }
}

// One warp per row: sum the rest, and change the row; values and state of a row lie strides from
// those of the next.
template <int kOptimizer>
__global__ void update_rows(const i64* __restrict__ keys, i64 count,
                            const int* __restrict__ listed, const int* __restrict__ begins,
                            i64 folded, float* node_slopes, int node_width, i64 nodes,
                            i64 node_places, float* relation_slopes, int relation_width,
                            float* __restrict__ node_values, i64 node_stride,
                            float* __restrict__ node_state, i64 node_state_stride,
                            float* __restrict__ relation_values, i64 relation_stride,
                            float* __restrict__ relation_state, i64 relation_state_stride,
                            const Rates* __restrict__ rates_at) {
  const Rates rates = *rates_at;
  const int lane = threadIdx.x & 31, rows = *listed;
  for (i64 i = thread_number() / 32; i < rows; i += thread_count() / 32) {
    const i64 at = begins[i], row = row_of(keys, at);
    // A lane looks 1 to 32 keys ahead.
    const i64 next = at + 1 + lane;
    const bool same = next < count && row_of(keys, next) == row;
    const unsigned lanes = __ballot_sync(0xFFFFFFFFu, same);
    i64 end = at + 1 + __popc(lanes);
    if (lanes == 0xFFFFFFFFu) end = lower_bound(keys, at, count, (row + 1) << 32);
    Slopes slopes = {node_slopes, node_width, 0, 0};
    float* x = node_values + row * node_stride;
    float* own = node_state + row * node_state_stride;
    if (row >= nodes) {
      slopes = {relation_slopes, relation_width, nodes, node_places};
      x = relation_values + (row - nodes) * relation_stride;
      own = relation_state + (row - nodes) * relation_state_stride;
    }
    const int width = slopes.width;
    for (int base = 0; base < width; base += 32 * kPieces) {
      float slope[kPieces] = {}, first[kPieces], second[kPieces], old[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int k = base + lane + 32 * j;
        if (k >= width) continue;
        old[j] = x[k];
        if (kOptimizer != SGD) first[j] = own[k];
        if (kOptimizer == ADAM) second[j] = own[k + width];
      }
      // In a block that the row extends beyond, the fold is one sum.
      i64 next_at = at, unit = 1, last = end - 1;
      while (unit < folded && next_at / (32 * unit) != last / (32 * unit)) {
        add_up(keys, slopes, next_at, next_at + 1, unit, base + lane, slope);
        unit *= 32;
        next_at = (next_at / unit + 1) * unit;
        last = (end - 1) / unit * unit;
      }
      add_up(keys, slopes, next_at, last + 1, unit, base + lane, slope);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int k = base + lane + 32 * j;
        if (k >= width) continue;
        x[k] = changed<kOptimizer>(old[j], slope[j], first[j], second[j], rates);
        if (kOptimizer != SGD) own[k] = first[j];
        if (kOptimizer == ADAM) own[k + width] = second[j];
      }
    }
  }
}
