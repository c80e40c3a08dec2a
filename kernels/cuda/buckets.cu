// Edges of several buckets, mixed: the permutation is naive/buckets.py's.
#include "grid.cuh"
#include "philox.cuh"

// instance: mix_edges<int, int>
// instance: mix_edges<int, long long>
// instance: mix_edges<long long, long long>

using penstock::u32;
using penstock::u64;

constexpr int BLOCK = 16, ROUNDS = 6;  // as bucket_rules.py has them

// The image of index in the permutation of 0 .. count - 1: a Feistel network, walked until it is
// inside.
__device__ __forceinline__ u64 permuted(u64 index, u64 count, int half,
                                        const u64* __restrict__ keys) {
  const u64 mask = (1ull << half) - 1;
  do {
    u64 left = index >> half, right = index & mask;
    for (int round = 0; round < ROUNDS; ++round) {
      u64 x = (right ^ keys[round]) * 0x9E3779B97F4A7C15ull;
      x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ull;
      const u64 next = left ^ (x >> 32 & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

template <typename Row, typename Out>
__global__ void mix_edges(const Row* __restrict__ heads, const Row* __restrict__ tails,
                          const int* __restrict__ relations,  // null without relations
                          const float* __restrict__ weights,  // null without weights
                          const long long* __restrict__ begins,
                          const long long* __restrict__ offsets, int runs,
                          const long long* __restrict__ head_rows,
                          const long long* __restrict__ tail_rows,
                          const u64* __restrict__ keys, int half, long long blocks,
                          long long start, long long size, Out* __restrict__ heads_out,
                          Out* __restrict__ tails_out, int* __restrict__ relations_out,
                          float* __restrict__ weights_out) {
  for (long long n = penstock::thread_number(); n < size; n += penstock::thread_count()) {
    long long index = start + n;
    const long long block = index / BLOCK;
    if (block < blocks) {
      const u64 moved = permuted(block, blocks, half, keys);
      index = static_cast<long long>(moved) * BLOCK + index % BLOCK;
    }
    int low = 0, high = runs;
    while (high - low > 1) {
      const int middle = (low + high) >> 1;
      if (offsets[middle] <= index) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const long long edge = begins[low] + index - offsets[low];
    heads_out[n] = static_cast<Out>(heads[edge] + head_rows[low]);
    tails_out[n] = static_cast<Out>(tails[edge] + tail_rows[low]);
    if (relations) relations_out[n] = relations[edge];
    if (weights) weights_out[n] = weights[edge];
  }
}
