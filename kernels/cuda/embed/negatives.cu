// Negatives by counted random numbers: see kernels/embed_rules.py.
#include "grid.cuh"
#include "philox.cuh"

// instance: draw_negatives

using i64 = long long;
using penstock::u32;
using penstock::u64;

// which: number << CHUNK_BITS; start: (ranges + 1) rows before each range.
__global__ void draw_negatives(u64 seed, u32 stream, u64 which, i64 groups, i64 count,
                               const i64* __restrict__ first, const i64* __restrict__ start,
                               int ranges, const float* __restrict__ chance,
                               const int* __restrict__ other, int* __restrict__ rows) {
  const u64 total = start[ranges];
  for (i64 i = penstock::thread_number(); i < groups * count; i += penstock::thread_count()) {
    const u64 group = i / count;
    const uint4 words = penstock::philox4x32(seed, stream, which | group,
                                             static_cast<u32>(i - static_cast<i64>(group) * count));
    const u64 wide = static_cast<u64>(words.y) << 32 | words.x;
    i64 slot = static_cast<i64>(__umul64hi(wide, total));
    if (chance != nullptr &&
        !(static_cast<double>(words.w) < static_cast<double>(chance[slot]) * 4294967296.0)) {
      slot = other[slot];
    }
    int low = 0, high = ranges;  // the last range that begins at or before the slot
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (start[middle] <= slot) {
        low = middle;
      } else {
        high = middle;
      }
    }
    rows[i] = static_cast<int>(first[low] + slot - start[low]);
  }
}
