// The edges of a batch, for kernels, and their results per edge.
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

// The edges of a batch: rows of nodes and of relations, and one bit per side: whether heads are
// replaced on it. ``inverse``: the distance from a relation's row to its inverse's, or 0.
struct Edges {
  const int* heads;
  const int* tails;
  const int* relations;
  int inverse, head_sides;

  __device__ __forceinline__ bool is_head(int side) const { return head_sides >> side & 1; }
  // Whether heads are queried, instead of tails of the inverse.
  __device__ __forceinline__ bool asks_head(int side) const { return is_head(side) && !inverse; }
  __device__ __forceinline__ long long relation(long long e, int side) const {
    return relations[e] + (is_head(side) ? inverse : 0);
  }
};

// Values that an edge needs from its row of scores on a side.
struct alignas(16) RowWeights {
  float scale, base;  // of the sum of weighted negatives: see RowEnd
  float by_unit;      // slope in the answer's score; of distances in the unit vector to the answer
  float loss;

  __device__ __forceinline__ void multiply(float weight) {
    scale *= weight;
    by_unit *= weight;
    loss *= weight;
  }
};

}  // namespace penstock
