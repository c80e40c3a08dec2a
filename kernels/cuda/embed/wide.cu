// Rows wider than tiles: queries and negatives one after another; and, in addition to cuBLAS, the
// slopes of a row of scores that are products.
#include "embed/batch_edges.cuh"
#include "embed/losses.cuh"
#include "embed/models.cuh"
#include "embed/notes.cuh"
#include "grid.cuh"

// instance: wide_queries<DOT>
// instance: wide_queries<DISTMULT>
// instance: wide_queries<COMPLEX>
// instance: wide_queries<TRANSE_L1>
// instance: wide_queries<TRANSE_L2>
// instance: wide_queries<ROTATE>
// instance: wide_negatives
// instance: weigh_scores<SOFTMAX>
// instance: weigh_scores<CONTRASTIVE>
// instance: weigh_scores<LOGISTIC>
// instance: weigh_scores<MARGIN>
// instance: weigh_scores<SELF_ADVERSARIAL>

using namespace penstock;
using i64 = long long;

constexpr int kThreads = 256;  // of weigh_scores

// One warp per edge: its queries, one side's after the other's, and the answers' scores.
template <int kModel>
__global__ void wide_queries(const float* __restrict__ nodes, i64 stride, int dim,
                             const float* __restrict__ relation_values, i64 relation_stride,
                             const int* __restrict__ heads, const int* __restrict__ tails,
                             const int* __restrict__ relations, int inverse, i64 count, int sides,
                             int head_sides, float* __restrict__ out, Note* __restrict__ notes) {
  const int lane = threadIdx.x & 31, half = dim / 2;
  const int values = is_complex<kModel> ? half : dim;
  const Edges edges = {heads, tails, relations, inverse, head_sides};
  const i64 warps = thread_count() / 32;
  for (i64 e = thread_number() / 32; e < count; e += warps) {
    const int ends[2] = {heads[e], tails[e]};
    for (int side = 0; side < sides; ++side) {
      const bool head = edges.asks_head(side), swapped = edges.is_head(side);
      const float* given = nodes + ends[swapped ? 1 : 0] * stride;
      const float* answer = nodes + ends[swapped ? 0 : 1] * stride;
      const float* r = nullptr;
      if (kModel != DOT) r = relation_values + edges.relation(e, side) * relation_stride;
      const i64 at = side * count + e;
      float* to = out + at * dim;
      float sum = 0.0f;
#pragma unroll 4
      for (int k = lane; k < values; k += 32) {
        const Value query = query_of<kModel>(value_of<kModel>(given, k, half),
                                             relation_of<kModel>(r, k, half), head);
        const Value wanted = value_of<kModel>(answer, k, half);
        sum += score_term<kModel>(query.re, query.im, wanted.re, wanted.im);
        to[k] = query.re;
        if (is_complex<kModel>) to[k + half] = query.im;
      }
      sum = warp_sum(sum);
      if (lane == 0) notes[at] = {ends[swapped ? 0 : 1], 1.0f, 0.0f, score_of<kModel>(sum)};
    }
  }
}

// The rows that ``ids`` names, one after another. notes: out, or null.
__global__ void wide_negatives(const float* __restrict__ nodes, i64 stride, int dim,
                               const int* __restrict__ ids, i64 count, float* __restrict__ out,
                               Note* __restrict__ notes) {
  const int lane = threadIdx.x & 31;
  const i64 warps = thread_count() / 32;
  for (i64 i = thread_number() / 32; i < count; i += warps) {
    const float* row = nodes + ids[i] * stride;
#pragma unroll 4
    for (int k = lane; k < dim; k += 32) out[i * dim + k] = row[k];
    if (notes && lane == 0) notes[i] = {ids[i], 1.0f, 0.0f, 0.0f};
  }
}

// The largest, or the sum, of the values of a block's threads.
template <bool kLargest>
__device__ float over_block(float x, float* shared) {
  x = kLargest ? warp_max(x) : warp_sum(x);
  __syncthreads();  // earlier reads of ``shared`` are complete
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) {
    x = kLargest ? fmaxf(x, shared[warp]) : x + shared[warp];
  }
  return x;
}

// One block per row of ``count`` scores, which are replaced by the slopes of the loss in them.
//   notes      (rows): of the row's query
//   negatives  (count): the negatives of the scores
//   edge_weights, heaviest  (rows) and one: of the rows' edges, as in product.cu, or null
//   weights    (rows), out: they show that sums by these slopes are complete
template <int kLoss>
__global__ void __launch_bounds__(kThreads)
    weigh_scores(float* __restrict__ scores, i64 rows, i64 count, const Note* __restrict__ notes,
                 const int* __restrict__ negatives, float margin, float temperature, float share,
                 const float* __restrict__ edge_weights, const float* __restrict__ heaviest,
                 RowWeights* __restrict__ weights) {
  __shared__ float shared[kThreads / 32];
  const LossNumbers numbers = {margin, temperature, share};
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    float* mine = scores + row * count;
    const Note note = notes[row];
    float top = lowest();
    if (is_exponential<kLoss>) {
      for (i64 i = threadIdx.x; i < count; i += kThreads) {
        const float n = negatives[i] == note.id ? lowest() : mine[i];
        top = fmaxf(top, exponent<kLoss>(n, numbers));
      }
      top = over_block<true>(top, shared);
    }
    const float base = finite_base(top);
    float sum = 0.0f, extra = 0.0f;
    for (i64 i = threadIdx.x; i < count; i += kThreads) {
      const float n = negatives[i] == note.id ? lowest() : mine[i];
      mine[i] = take_negative<kLoss>(n, note.known, base, sum, extra, numbers);
    }
    sum = over_block<false>(sum, shared);
    extra = over_block<false>(extra, shared);
    const RowEnd end = finish_row<kLoss>({top, sum, extra}, note.known, numbers);
    const float weight = edge_weights ? edge_weights[row] * *heaviest : 1.0f;
    const float scale = end.scale * weight;
    for (i64 i = threadIdx.x; i < count; i += kThreads) mine[i] *= scale;
    if (threadIdx.x == 0) weights[row] = {1.0f, 0.0f, end.by_positive * weight, end.loss * weight};
  }
}
