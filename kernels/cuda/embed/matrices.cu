// Relations that are matrices (RESCAL, TUCKER): a batch's queries, the gradients of its edges, and
// one update per matrix.
//
// A warp has an edge, or a query, with its rows in registers: value lane + 32 j is piece j. A
// matrix is read once per product, row after row; those of a batch come from the L2 cache.
#include "embed/batch_edges.cuh"
#include "embed/notes.cuh"
#include "embed/optimizer.cuh"
#include "embed/tensor_cores.cuh"
#include "grid.cuh"

// instance: matrix_queries<1>
// instance: matrix_queries<4>
// instance: matrix_queries<16>
// instance: matrix_gradients<true, 4>
// instance: matrix_gradients<false, 1>
// instance: matrix_gradients<true, 16>
// instance: update_matrices<ADAGRAD>
// instance: update_matrices<SGD>
// instance: update_matrices<ADAM>
// instance: update_matrices<-1>
// instance: update_composed<ADAGRAD>
// instance: update_composed<SGD>
// instance: update_composed<ADAM>

using namespace penstock;
using i64 = long long;

constexpr int kWrite = -1;  // instead of an optimizer: the sum is written
constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kTile = 64, kDepth = 16, kThreads = 256;  // of update_matrices

template <int kPieces>
__device__ __forceinline__ void read_row(float (&x)[kPieces], const float* row, int dim) {
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int k = (threadIdx.x & 31) + 32 * j;
    x[j] = k < dim ? row[k] : 0.0f;
  }
}

// The product of a row and a matrix.
template <int kPieces>
__device__ __forceinline__ void row_times(const float (&x)[kPieces], const float* matrix, int dim,
                                          float (&out)[kPieces]) {
#pragma unroll
  for (int j = 0; j < kPieces; ++j) out[j] = 0.0f;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    for (int from = 0; from < 32 && 32 * i + from < dim; ++from) {
      float row[kPieces];
      read_row(row, matrix + static_cast<i64>(32 * i + from) * dim, dim);
      const float factor = __shfl_sync(kAll, x[i], from);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) out[j] += factor * row[j];
    }
  }
}

// The product of a matrix and a column.
template <int kPieces>
__device__ __forceinline__ void times_column(const float* matrix, const float (&x)[kPieces],
                                             int dim, float (&out)[kPieces]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    out[i] = 0.0f;
    for (int to = 0; to < 32 && 32 * i + to < dim; ++to) {
      float row[kPieces], sum = 0.0f;
      read_row(row, matrix + static_cast<i64>(32 * i + to) * dim, dim);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) sum += row[j] * x[j];
      sum = warp_sum(sum);
      if ((threadIdx.x & 31) == to) out[i] = sum;
    }
  }
}

// size^power
__device__ __forceinline__ float power_of(float x, int power) {
  return power == 3 ? fabsf(x) * x * x : x * x;
}

// The derivative of size^power.
__device__ __forceinline__ float power_slope(float x, int power) {
  return power == 3 ? 3.0f * fabsf(x) * x : 2.0f * x;
}

// Change a value; its state is ``apart`` from the second one.
template <int kOptimizer>
__device__ __forceinline__ void change(float* value, float* state, int apart, float slope,
                                       const Rates& rates) {
  float first = 0.0f, second = 0.0f;
  if (kOptimizer != SGD) first = state[0];
  if (kOptimizer == ADAM) second = state[apart];
  *value = changed<kOptimizer>(*value, slope, first, second, rates);
  if (kOptimizer != SGD) state[0] = first;
  if (kOptimizer == ADAM) state[apart] = second;
}

// The end of the keys that have the row of the first one.
__device__ i64 end_of_row(const i64* __restrict__ keys, i64 first, i64 count) {
  i64 low = first, high = count;
  const i64 row = keys[first] >> 32;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (keys[middle] >> 32 <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Queries, one side's after the other's: as they are, (sides, count, dim), and as halves for tiles,
// with the scores of their answers.
template <int kPieces>
__global__ void matrix_queries(const float* __restrict__ nodes, i64 stride, int dim,
                               const float* __restrict__ matrices, i64 matrix_stride,
                               const int* __restrict__ heads, const int* __restrict__ tails,
                               const int* __restrict__ relations, int inverse, i64 count,
                               int sides, int head_sides, int width, float* __restrict__ queries,
                               Half* __restrict__ halves, Note* __restrict__ notes) {
  const int lane = threadIdx.x & 31;
  const Edges edges = {heads, tails, relations, inverse, head_sides};
  for (i64 at = thread_number() / 32; at < sides * count; at += thread_count() / 32) {
    const int side = static_cast<int>(at / count);
    const i64 e = at - side * count;
    const bool swapped = edges.is_head(side);
    const int given = swapped ? tails[e] : heads[e], answer = swapped ? heads[e] : tails[e];
    const float* matrix = matrices + edges.relation(e, side) * matrix_stride;
    float x[kPieces], query[kPieces];
    read_row(x, nodes + given * stride, dim);
    if (edges.asks_head(side)) {
      times_column(matrix, x, dim, query);
    } else {
      row_times(x, matrix, dim, query);
    }
    read_row(x, nodes + answer * stride, dim);
    float sum = 0.0f, largest = 0.0f;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      sum += query[j] * x[j];
      largest = fmaxf(largest, fabsf(query[j]));
    }
    sum = warp_sum(sum);
    const float scale = scale_of(warp_max(largest));
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int k = lane + 32 * j;
      if (k < dim) queries[at * dim + k] = query[j];
      if (k < width) halves[at * width + k] = k < dim ? to_half(query[j] * (1.0f / scale)) : 0;
    }
    if (lane == 0) notes[at] = {answer, scale, 0.0f, sum};
  }
}

// Arguments are those of edge_gradients; no row is changed.
//   queries   (sides, count, dim)
//   punished  rows of relations that have a penalty: the matrices, or what they are composed of
//   in_asked  out: (sides, count, dim): gradients of queries, from which those of matrices come
template <bool kExponential, int kPieces>
__global__ void matrix_gradients(const float* __restrict__ nodes, i64 stride, int dim,
                                 const float* __restrict__ matrices, i64 matrix_stride,
                                 const int* __restrict__ heads, const int* __restrict__ tails,
                                 const int* __restrict__ relations, int inverse, i64 count,
                                 int sides, int head_sides, int splits,
                                 const float* __restrict__ vectors, const float* __restrict__ sums,
                                 const RowWeights* __restrict__ weights,
                                 const float* __restrict__ queries,
                                 const float* __restrict__ punished, i64 punished_stride,
                                 int punished_width, float node_penalty, float relation_penalty,
                                 int power, float* __restrict__ slopes,
                                 float* __restrict__ in_asked, double* __restrict__ losses) {
  const int lane = threadIdx.x & 31;
  const Edges edges = {heads, tails, relations, inverse, head_sides};
  const i64 per_split = sides * count;
  for (i64 e = thread_number() / 32; e < count; e += thread_count() / 32) {
    float in_node[2][kPieces] = {};
    double loss = 0.0;
    float penalty = 0.0f;
    for (int side = 0; side < sides; ++side) {
      const i64 at = side * count + e;
      const bool swapped = edges.is_head(side);
      const RowWeights weight = weights[at];
      loss += weight.loss;
      float slope[kPieces], x[kPieces], in_answer[kPieces], in_given[kPieces];
      read_row(x, nodes + (swapped ? heads : tails)[e] * stride, dim);
      read_row(in_answer, queries + at * dim, dim);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        slope[j] = weight.by_unit * x[j];
        in_answer[j] *= weight.by_unit;
        in_answer[j] += node_penalty * power_slope(x[j], power);
        penalty += node_penalty * power_of(x[j], power);
      }
      for (int split = 0; split < splits; ++split) {
        const i64 piece = split * per_split + at;
        float scale = weight.scale, part[kPieces];
        if (kExponential && splits > 1) scale *= __expf(sums[piece * 3] - weight.base);
        read_row(part, vectors + piece * dim, dim);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) slope[j] += scale * part[j];
      }
      const float* matrix = matrices + edges.relation(e, side) * matrix_stride;
      if (edges.asks_head(side)) {
        row_times(slope, matrix, dim, in_given);
      } else {
        times_column(matrix, slope, dim, in_given);
      }
      read_row(x, nodes + (swapped ? tails : heads)[e] * stride, dim);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int k = lane + 32 * j;
        if (k < dim) in_asked[at * dim + k] = slope[j];
        in_given[j] += node_penalty * power_slope(x[j], power);
        penalty += node_penalty * power_of(x[j], power);
        in_node[0][j] += swapped ? in_answer[j] : in_given[j];
        in_node[1][j] += swapped ? in_given[j] : in_answer[j];
      }
      if (relation_penalty != 0.0f) {
        const float* row = punished + edges.relation(e, side) * punished_stride;
        float size = 0.0f;
        for (int k = lane; k < punished_width; k += 32) size += power_of(row[k], power);
        penalty += relation_penalty * size;
      }
    }
#pragma unroll
    for (int end = 0; end < 2; ++end) {
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int k = lane + 32 * j;
        if (k < dim) slopes[(end * count + e) * dim + k] = in_node[end][j];
      }
    }
    if (node_penalty != 0.0f || relation_penalty != 0.0f) penalty = warp_sum(penalty);
    if (lane == 0) losses[e] = loss + penalty;
  }
}

// Change each matrix by the sum over its edges, and sides, of products of a column and a row: of
// the given node and the query's gradient, or if heads are asked, of the gradient and the node.
// A block has a tile of one matrix. The keys (sort.cu) have the places of queries, side after side,
// and decide the order of sums.
//   old     the matrices before this batch, for the penalty
//   values  the matrices to change
template <int kOptimizer>
__global__ void __launch_bounds__(kThreads)
    update_matrices(const float* __restrict__ nodes, i64 stride, int dim,
                    const int* __restrict__ heads, const int* __restrict__ tails, int inverse,
                    i64 count, int head_sides, const float* __restrict__ in_asked,
                    const i64* __restrict__ keys, i64 key_count, const int* __restrict__ listed,
                    const int* __restrict__ begins, float relation_penalty, int power,
                    const float* old, i64 old_stride, float* values, i64 values_stride,
                    float* state, i64 state_stride, const Rates* __restrict__ rates_at) {
  __shared__ float left[kDepth][kTile], right[kDepth][kTile];
  __shared__ i64 until;
  const Rates rates = *rates_at;
  const Edges edges = {heads, tails, nullptr, inverse, head_sides};
  const int across = (dim + kTile - 1) / kTile, tiles = across * across, matrices = *listed;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (i64 block = blockIdx.x; block < static_cast<i64>(matrices) * tiles; block += gridDim.x) {
    const int tile = static_cast<int>(block % tiles);
    const i64 begin = begins[block / tiles], row = keys[begin] >> 32;
    const int first_row = tile / across * kTile, first_column = tile % across * kTile;
    __syncthreads();  // the tile before is complete
    if (threadIdx.x == 0) until = end_of_row(keys, begin, key_count);
    __syncthreads();
    const i64 end = until;
    float sum[4][4] = {};
    for (i64 at = begin; at < end; at += kDepth) {
      const int depth = end - at < kDepth ? static_cast<int>(end - at) : kDepth;
      __syncthreads();
      for (int i = threadIdx.x; i < kDepth * kTile; i += kThreads) {
        const int key = i / kTile, k = i % kTile;
        float one = 0.0f, other = 0.0f;
        if (key < depth) {
          const i64 place = keys[at + key] & 0xFFFFFFFF;
          const int side = static_cast<int>(place / count);
          const i64 e = place - side * count;
          const float* given = nodes + (edges.is_head(side) ? tails : heads)[e] * stride;
          const float* slope = in_asked + place * dim;
          const bool asks_head = edges.asks_head(side);
          if (first_row + k < dim) one = (asks_head ? slope : given)[first_row + k];
          if (first_column + k < dim) other = (asks_head ? given : slope)[first_column + k];
        }
        left[key][k] = one;
        right[key][k] = other;
      }
      __syncthreads();
      for (int key = 0; key < depth; ++key) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] += left[key][y + 16 * i] * right[key][x + 16 * j];
        }
      }
    }
    const float penalty = static_cast<float>(end - begin) * relation_penalty;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int r = first_row + y + 16 * i, c = first_column + x + 16 * j;
        if (r >= dim || c >= dim) continue;
        const int k = r * dim + c;
        float* to = values + row * values_stride + k;
        if constexpr (kOptimizer == kWrite) {
          *to = sum[i][j];
        } else {
          const float slope = sum[i][j] + penalty * power_slope(old[row * old_stride + k], power);
          change<kOptimizer>(to, state + row * state_stride + k, dim * dim, slope, rates);
        }
      }
    }
  }
}

// Change the relations of a batch and all shared rows, which follow ``relations`` rows, by their
// gradients: one warp per row. Arguments are those of update_matrices.
//   slopes  (relations + shared, width)
template <int kOptimizer>
__global__ void update_composed(const i64* __restrict__ keys, i64 key_count,
                                const int* __restrict__ listed, const int* __restrict__ begins,
                                i64 relations, int shared, int width,
                                const float* __restrict__ slopes, float relation_penalty,
                                int power, const float* old, i64 old_stride, float* values,
                                i64 values_stride, float* state, i64 state_stride,
                                const Rates* __restrict__ rates_at) {
  const Rates rates = *rates_at;
  const int named = *listed;
  for (i64 i = thread_number() / 32; i < named + shared; i += thread_count() / 32) {
    i64 row = relations + i - named;
    float penalty = 0.0f;
    if (i < named) {
      const i64 begin = begins[i];
      row = keys[begin] >> 32;
      penalty = static_cast<float>(end_of_row(keys, begin, key_count) - begin) * relation_penalty;
    }
    for (int k = threadIdx.x & 31; k < width; k += 32) {
      const float x = old[row * old_stride + k];
      const float slope = slopes[row * width + k] + penalty * power_slope(x, power);
      change<kOptimizer>(values + row * values_stride + k, state + row * state_stride + k, width,
                         slope, rates);
    }
  }
}
