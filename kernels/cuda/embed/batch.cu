// A batch's copy into a step's buffers, and its loss.
#include "embed/optimizer.cuh"
#include "grid.cuh"

// instance: stage
// instance: sum_losses

using namespace penstock;
using i64 = long long;

// Copy rows to the buffers of a step, one array after another, and the numbers of its optimizer.
__global__ void stage(const int* __restrict__ heads, const int* __restrict__ tails,
                      const int* __restrict__ relations, i64 edges,
                      const int* __restrict__ negatives, i64 count, float lr, float epsilon,
                      float beta1, float beta2, float rest1, float rest2, int* __restrict__ out,
                      Rates* __restrict__ rates) {
  const i64 in_relations = relations ? edges : 0, all = 2 * edges + in_relations + count;
  for (i64 i = thread_number(); i < all; i += thread_count()) {
    const i64 e = i % edges;
    out[i] = i < edges                      ? heads[e]
             : i < 2 * edges                ? tails[e]
             : i < 2 * edges + in_relations ? relations[e]
                                            : negatives[i - 2 * edges - in_relations];
  }
  if (thread_number() == 0) *rates = {lr, epsilon, beta1, beta2, rest1, rest2};
}

// One sum per block, of every gridDim.x-th 256 losses: for a given grid, the order of additions
// depends only on their number.
__global__ void sum_losses(const double* __restrict__ losses, i64 count, double* __restrict__ out) {
  __shared__ double sums[32];
  double sum = 0.0;
#pragma unroll 4
  for (i64 i = thread_number(); i < count; i += thread_count()) sum += losses[i];
  for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int warp = 1; warp < blockDim.x / 32; ++warp) sum += sums[warp];
  out[blockIdx.x] = sum;
}
