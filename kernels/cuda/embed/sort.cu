// Group gradients by row: a radix sort of a batch's rows by all of their bits.
//
// keys      row << 32 | place, where place is that of a gradient among all of the batch
// counts    (passes, 256): how many keys have each value of a digit
// progress  (passes, 1 + tiles 256): the next tile, and the tiles' counts of their digits
//
// A pass moves keys by 8 bits and keeps the order of equal ones. It is one launch: a tile counts
// its digits, publishes them, and adds up those of earlier tiles. Tiles are taken in order, so a
// tile only waits for running ones. The order of blocks does not matter.
#include "grid.cuh"

// instance: name_rows
// instance: sort_pass
// instance: find_rows

using i64 = long long;
using u32 = unsigned;

constexpr int kThreads = 256, kItems = 8, kTile = kThreads * kItems, kDigits = 256, kWarps = 8;
constexpr u32 kOwn = 1u << 30, kAll = 2u << 30, kNumber = kOwn - 1;

// Three arrays of rows of nodes, one after another, then rows of relations: one array per slot of
// ``slots``. Relations' rows follow those of nodes: relation r of slot i is row
// r + add_i.
__global__ void __launch_bounds__(kThreads)
    name_rows(const int* __restrict__ rows0, i64 count0, const int* __restrict__ rows1, i64 count1,
              const int* __restrict__ rows2, i64 count2, const int* __restrict__ relations,
              i64 relation_count, int slots, u32 add0, u32 add1, int passes,
              i64* __restrict__ keys, u32* __restrict__ counts) {
  __shared__ u32 mine[4][kDigits];
  for (int pass = 0; pass < passes; ++pass) mine[pass][threadIdx.x] = 0;
  __syncthreads();
  const i64 in_nodes = count0 + count1 + count2, count = in_nodes + slots * relation_count;
  for (i64 i = penstock::thread_number(); i < count; i += penstock::thread_count()) {
    u32 row;
    if (i < count0) {
      row = rows0[i];
    } else if (i < count0 + count1) {
      row = rows1[i - count0];
    } else if (i < in_nodes) {
      row = rows2[i - count0 - count1];
    } else if (i < in_nodes + relation_count) {
      row = relations[i - in_nodes] + add0;
    } else {
      row = relations[i - in_nodes - relation_count] + add1;
    }
    keys[i] = static_cast<i64>(row) << 32 | i;
    for (int pass = 0; pass < passes; ++pass) atomicAdd(&mine[pass][row >> 8 * pass & 255], 1);
  }
  __syncthreads();
  for (int pass = 0; pass < passes; ++pass) {
    const u32 number = mine[pass][threadIdx.x];
    if (number) atomicAdd(&counts[pass * kDigits + threadIdx.x], number);
  }
}

__global__ void __launch_bounds__(kThreads)
    sort_pass(const i64* __restrict__ keys, i64 count, int shift, const u32* __restrict__ counts,
              u32* progress, i64* __restrict__ out) {
  __shared__ u32 before[kWarps][kDigits];  // equal digits in the warps before
  __shared__ u32 begin[kDigits], warp_sums[kWarps], tile_shared;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
  if (thread == 0) tile_shared = atomicAdd(progress, 1);
  for (int w = 0; w < kWarps; ++w) before[w][thread] = 0;
  __syncthreads();
  const u32 tile = tile_shared;
  volatile u32* said = progress + 1;

  // Lanes are adjacent, so that items of a warp are in order.
  i64 key[kItems];
  u32 rank[kItems];
  const i64 first = static_cast<i64>(tile) * kTile + warp * (kItems * 32) + lane;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const i64 at = first + i * 32;
    key[i] = at < count ? keys[at] : -1;
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const u32 digit = key[i] >= 0 ? static_cast<u32>(key[i] >> shift) & 255 : 256;
    const u32 same = __match_any_sync(0xFFFFFFFFu, digit);
    const u32 lower = same & ((1u << lane) - 1);
    const u32 so_far = digit < 256 ? before[warp][digit] : 0;
    __syncwarp();
    if (digit < 256 && lower == 0) before[warp][digit] = so_far + __popc(same);
    __syncwarp();
    rank[i] = so_far + __popc(lower);
  }
  __syncthreads();

  // One thread per digit.
  u32 here = 0;
  for (int w = 0; w < kWarps; ++w) {
    const u32 number = before[w][thread];
    before[w][thread] = here;
    here += number;
  }
  said[tile * kDigits + thread] = (tile == 0 ? kAll : kOwn) | here;
  const u32 number = counts[thread];
  u32 up_to = number;
  for (int apart = 1; apart < 32; apart *= 2) {
    const u32 other = __shfl_up_sync(0xFFFFFFFFu, up_to, apart);
    if (lane >= apart) up_to += other;
  }
  if (lane == 31) warp_sums[warp] = up_to;
  __syncthreads();
  u32 start = up_to - number;
  for (int w = 0; w < warp; ++w) start += warp_sums[w];
  if (tile > 0) {
    u32 earlier = 0;
    for (u32 other = tile - 1;; --other) {
      u32 word;
      do {
        word = said[other * kDigits + thread];
      } while (word < kOwn);
      earlier += word & kNumber;
      if (word >= kAll) break;
    }
    said[tile * kDigits + thread] = kAll | (earlier + here);
    start += earlier;
  }
  begin[thread] = start;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (key[i] < 0) continue;
    const u32 digit = static_cast<u32>(key[i] >> shift) & 255;
    out[begin[digit] + before[warp][digit] + rank[i]] = key[i];
  }
}

// Find which of the first ``places`` gradients are the only one of their row, and list the starts
// of all other rows in the sorted keys, in any order.
__global__ void find_rows(const i64* __restrict__ keys, i64 count, i64 places,
                          bool* __restrict__ alone, int* __restrict__ listed,
                          int* __restrict__ begins) {
  __shared__ int in_block, at_block;
  const i64 rounded = (count + kThreads - 1) / kThreads * kThreads;
  for (i64 i = penstock::thread_number(); i < rounded; i += penstock::thread_count()) {
    if (threadIdx.x == 0) in_block = 0;
    __syncthreads();
    int at = -1;
    if (i < count) {
      const i64 row = keys[i] >> 32, place = keys[i] & 0xFFFFFFFF;
      const bool first = i == 0 || keys[i - 1] >> 32 != row;
      const bool last = i + 1 == count || keys[i + 1] >> 32 != row;
      const bool only = first && last && place < places;
      if (place < places) alone[place] = only;
      if (first && !only) at = atomicAdd(&in_block, 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) at_block = atomicAdd(listed, in_block);
    __syncthreads();
    if (at >= 0) begins[at_block + at] = static_cast<int>(i);
  }
}
