// Edges of several buckets, mixed: the permutation is naive/buckets.py's.
#include "grid.cuh"
#include "philox.cuh"

// instance: draw_groups
// instance: gather_edges<int>
// instance: gather_edges<long long>
// instance: shuffle_groups<int>
// instance: shuffle_groups<long long>
// instance: mix_edges<int, int>
// instance: mix_edges<int, long long>
// instance: mix_edges<long long, long long>

using penstock::u32;
using penstock::u64;

constexpr int BLOCK = 16, ROUNDS = 6;    // as bucket_rules.py has them
constexpr u32 IN_BUCKET = 0, GROUP = 3;  // the same

// The group of each edge, at most 2^16 of them: a thread draws four.
__global__ void draw_groups(long long count, int groups, u64 seed, u32 stream,
                                       unsigned short* __restrict__ group) {
  const long long fours = (count + 3) / 4;
  for (long long n = penstock::thread_number(); n < fours; n += penstock::thread_count()) {
    const uint4 words = penstock::philox4x32(seed, stream, n, GROUP);
    const u32 each[4] = {words.x, words.y, words.z, words.w};
    for (int k = 0; k < 4 && 4 * n + k < count; ++k)
      group[4 * n + k] = static_cast<unsigned short>(static_cast<u64>(each[k]) * groups >> 32);
  }
}

// Edges in an order of their numbers.
template <typename Row>
__global__ void gather_edges(const long long* __restrict__ indptr, long long rows,
                             const Row* __restrict__ indices,
                             const int* __restrict__ relations,  // null without relations
                             const long long* __restrict__ order, long long count,
                             Row* __restrict__ heads, Row* __restrict__ tails,
                             int* __restrict__ relations_out) {
  for (long long n = penstock::thread_number(); n < count; n += penstock::thread_count()) {
    const long long edge = order[n];
    long long low = 0, high = rows;  // the last row that does not begin after the edge
    while (high - low > 1) {
      const long long middle = (low + high) >> 1;
      if (indptr[middle] <= edge) {
        low = middle;
      } else {
        high = middle;
      }
    }
    heads[n] = static_cast<Row>(low);
    tails[n] = indices[edge];
    if (relations) relations_out[n] = relations[edge];
  }
}

__device__ __forceinline__ void fetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Each group, shuffled by Fisher and Yates. A warp draws 32 places and fetches them; its first lane
// exchanges.
template <typename Row>
__global__ void shuffle_groups(const unsigned short* __restrict__ group,
                               const long long* __restrict__ order, long long count, u64 seed, u32 stream,
                               Row* heads, Row* tails, int* relations) {
  long long ends[2];  // of this block's group, in the order
  for (int k = 0; k < 2; ++k) {
    long long low = 0, high = count;
    while (low < high) {
      const long long middle = (low + high) >> 1;
      if (group[order[middle]] < blockIdx.x + k) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    ends[k] = low;
  }
  const long long first = ends[0];
  for (long long top = ends[1] - first - 1; top > 0; top -= 32) {
    const long long i = top - threadIdx.x;
    long long j = 0;
    if (i > 0) {
      const uint4 words = penstock::philox4x32(seed, stream, first + i, IN_BUCKET);
      j = __umul64hi(static_cast<u64>(words.x) << 32 | words.y, i + 1);
      fetch(heads + first + j);
      fetch(tails + first + j);
      if (relations) fetch(relations + first + j);
    }
    for (int lane = 0; lane < 32 && top - lane > 0; ++lane) {
      const long long here = first + top - lane, there = first + __shfl_sync(~0u, j, lane);
      if (threadIdx.x == 0) {
        const Row head = heads[here], tail = tails[here];
        heads[here] = heads[there];
        tails[here] = tails[there];
        heads[there] = head;
        tails[there] = tail;
        if (relations) {
          const int relation = relations[here];
          relations[here] = relations[there];
          relations[there] = relation;
        }
      }
    }
  }
}

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
