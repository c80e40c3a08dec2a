// What kernels know of the edges of a batch, and what they leave of each.
#pragma once

namespace penstock {

__device__ __forceinline__ float warp_sum(float x) {
  for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, apart);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
  for (int apart = 16; apart; apart /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, apart));
  }
  return x;
}

// What a batch's edges are: rows of nodes and of relations, and a bit a side: whether heads are
// replaced on it. ``inverse``: how far behind a relation's row that of its inverse lies, or 0.
struct Edges {
  const int* heads;
  const int* tails;
  const int* relations;
  int inverse, head_sides;

  __device__ __forceinline__ bool is_head(int side) const { return head_sides >> side & 1; }
  // Whether queries of heads are asked, and not those of tails to the inverse.
  __device__ __forceinline__ bool asks_head(int side) const { return is_head(side) && !inverse; }
  __device__ __forceinline__ long long relation(long long e, int side) const {
    return relations[e] + (is_head(side) ? inverse : 0);
  }
};

// What an edge needs of its row of scores on a side.
struct alignas(16) RowWeights {
  float scale, base;  // of the sum of weighted negatives: see RowEnd
  float by_unit;      // slope in the answer's score; of distances in the unit vector to the answer
  float loss;
};

}  // namespace penstock
