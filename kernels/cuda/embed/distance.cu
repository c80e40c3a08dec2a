// Scores that are distances, not matrix products: the tiles of product.cu on CUDA cores. This file
// computes L2 distances if rows are too wide for product.cu.
//
// A block keeps 64 rows, and meets 64 others at a time, or 32 wide ones. A thread first computes
// 4 x 4 distances; the weights go through shared memory to a warp that keeps sums of 8 rows in its
// lanes' registers. Sums are of minus the weight times the unit vector from the other row to the
// staying row, which is the gradient of either. TRANSE_L2's is linear except for the distance: sums
// are of weighted others, and the staying row times its sum of weights is subtracted at the end.
//
// Rows too wide for a block's shared memory and registers are cut in slices, one for each block of
// a thread block cluster. Scores are sums over values: a block computes its slice's part, reads the
// other slices' parts from shared memory, and keeps the sums of its own slice.
#include "embed/clusters.cuh"
#include "embed/losses.cuh"
#include "embed/models.cuh"
#include "embed/notes.cuh"
#include "embed/tensor_cores.cuh"

// instance: distance_tiles<TRANSE_L1, 1, 64, MARGIN, true>
// instance: distance_tiles<TRANSE_L1, 4, 64, MARGIN, false>
// instance: distance_tiles<ROTATE, 2, 64, SELF_ADVERSARIAL, true>
// instance: distance_tiles<ROTATE, 2, 64, SELF_ADVERSARIAL, false>
// instance: distance_tiles<ROTATE, 8, 32, CONTRASTIVE, true>
// instance: distance_tiles<ROTATE, 2, 64, SELF_ADVERSARIAL, false, true>
// instance: distance_slices<TRANSE_L1, 16, 32, MARGIN, true, 2>
// instance: distance_slices<TRANSE_L1, 16, 32, MARGIN, false, 2, true>
// instance: distance_slices<TRANSE_L2, 16, 32, SOFTMAX, true, 4>
// instance: distance_slices<TRANSE_L2, 16, 32, LOGISTIC, false, 8>
// instance: distance_slices<ROTATE, 8, 32, SELF_ADVERSARIAL, true, 8>
// instance: distance_slices<ROTATE, 8, 32, CONTRASTIVE, false, 4>

using namespace penstock;
using i64 = long long;

constexpr int kThreads = 256, kRows = 64, kWarpRows = 8, kWeightStride = kRows + 4;

// A value's part of a distance before its root.
template <int kModel>
__device__ __forceinline__ float term(Value a, Value b) {
  if (kModel != ROTATE) return score_term<kModel>(a.re, a.im, b.re, b.im);
  const float re = a.re - b.re, im = a.im - b.im;
  return fast_sqrt(re * re + im * im);
}

// Add to the sums of a row minus the weighted derivative of its distance from another.
template <int kModel, int kParts>
__device__ __forceinline__ void add_other(float (&out)[kParts], Value mine, Value other,
                                          float weight) {
  if (kModel == TRANSE_L2) {
    out[0] += weight * other.re;
  } else if (kModel == TRANSE_L1) {
    const float away = mine.re - other.re;
    // The weight, negated if the other is less.
    const unsigned sign = __float_as_uint(away) & 0x80000000u ^ 0x80000000u;
    if (away != 0.0f) out[0] += __uint_as_float(__float_as_uint(weight) ^ sign);
  } else {
    const float re = mine.re - other.re, im = mine.im - other.im;
    const float by = weight * fast_inverse_sqrt(re * re + im * im);
    out[0] -= by * re;
    out[kParts - 1] -= by * im;
  }
}

// Add the other blocks' parts of a cluster to scores; the same bits in all blocks.
//   shared  (4 kColumns, kThreads); other blocks may still read its content before last
template <int kSlices, int kColumns>
__device__ __forceinline__ void add_slices(float (&score)[4][kColumns], float* shared) {
  float* mine = shared + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      mine[(i * kColumns + j) * kThreads] = score[i][j];
      score[i][j] = 0.0f;
    }
  }
  cluster_wait();
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    const unsigned at = cluster_address(mine, slice);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        score[i][j] += cluster_read(at + (i * kColumns + j) * kThreads * sizeof(float));
      }
    }
  }
}

// Arguments are those of product.cu, but rows have ``dim`` values and are not rounded.
// kPieces: number of values of a row, or complex numbers, per lane; of a slice if there are
// several.
template <int kModel, int kPieces, int kOthers, int kLoss, bool kQueries, int kSlices,
          bool kWeighted>
__device__ __forceinline__ void add_tiles(
    const float* __restrict__ queries, const Note* __restrict__ query_notes,
    const float* __restrict__ negatives, const Note* __restrict__ negative_notes,
    int dim, i64 edges, i64 chunk, int chunks, i64 count, int sides,
    int negative_sides, int splits, int tiles, float margin, float temperature,
    float share, const float* __restrict__ edge_weights, float* __restrict__ vectors,
    float* __restrict__ sums) {
  constexpr int kParts = is_complex<kModel> ? 2 : 1, kColumns = kOthers / 16;
  constexpr bool kWhole = kSlices == 1;
  const int half = dim / 2, values = is_complex<kModel> ? half : dim;
  i64 block = blockIdx.x;
  const int slice = block % kSlices;
  block /= kSlices;
  // A row in shared memory has the values of the slice; imaginary parts begin at ``im``.
  const int most = kWhole ? values : (values + kSlices - 1) / kSlices, im = kWhole ? half : most;
  const int begin = slice * most, size = kWhole || begin + most < values ? most : values - begin;
  const int stride = (kWhole ? dim : kParts * most) | 1;  // rows begin in different banks
  float* staying = dynamic_shared();
  float* coming = staying + kRows * stride;
  float* weights = coming + kOthers * stride;           // (kOthers, kWeightStride)
  float* shrinks = weights + kOthers * kWeightStride;  // (kRows)
  int* coming_ids = reinterpret_cast<int*>(shrinks + kRows);
  float* coming_known = reinterpret_cast<float*>(coming_ids + kOthers);
  float* slices = coming_known + kOthers;  // of several: (2, kRows * kOthers)
  const LossNumbers numbers = {margin, temperature, share};

  const int tile = block % tiles;
  block /= tiles;
  const int split = block % splits;
  block /= splits;
  const int group = static_cast<int>(block), side = group / chunks, c = group % chunks;

  const i64 first_edge = c * chunk;
  const i64 here = edges - first_edge < chunk ? edges - first_edge : chunk;
  const i64 query_at = side * edges + first_edge;
  const i64 negative_at = ((negative_sides > 1 ? side : 0) * static_cast<i64>(chunks) + c) * count;
  const float* rows = kQueries ? queries + query_at * dim : negatives + negative_at * dim;
  const float* others = kQueries ? negatives + negative_at * dim : queries + query_at * dim;
  const Note* row_notes = kQueries ? query_notes + query_at : negative_notes + negative_at;
  const Note* other_notes = kQueries ? negative_notes + negative_at : query_notes + query_at;
  const i64 row_count = kQueries ? here : count, other_count = kQueries ? count : here;
  const i64 first_row = static_cast<i64>(tile) * kRows;
  if (first_row >= row_count) return;
  const i64 other_tiles = (other_count + kOthers - 1) / kOthers;
  const i64 from = other_tiles * split / splits, to = other_tiles * (split + 1) / splits;

  const int thread = threadIdx.x, lane = thread & 31, warp_row = thread / 32 * kWarpRows;
  const int x = thread % 16, y = thread / 16 * 4;  // columns x, x + 16, ..., rows y .. y + 4

  auto load = [&](float* at, const float* source, i64 left, int number) {
    for (int row = thread / 32; row < number; row += kThreads / 32) {
      if constexpr (kWhole) {
        for (int k = lane; k < dim; k += 32) {
          at[row * stride + k] = row < left ? source[static_cast<i64>(row) * dim + k] : 0.0f;
        }
      } else {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const float* from = source + static_cast<i64>(row) * dim + part * half + begin;
#pragma unroll 4
          for (int k = lane; k < size; k += 32) {
            at[row * stride + part * im + k] = row < left ? from[k] : 0.0f;
          }
        }
      }
    }
  };
  load(staying, rows + first_row * dim, row_count - first_row, kRows);

  int ids[4];
  float p[4], largest[4], sum[4], extra[4];
  float out[kWarpRows][kPieces][kParts], taken[kWarpRows];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const i64 row = first_row + y + i;
    ids[i] = row < row_count ? row_notes[row].id : -2;
    p[i] = kQueries && row < row_count ? row_notes[row].known : 0.0f;
    largest[i] = lowest();
    sum[i] = extra[i] = 0.0f;
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    taken[r] = 0.0f;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) out[r][j][part] = 0.0f;
    }
  }

  for (i64 number = from; number < to; ++number) {
    const i64 first = number * kOthers;
    __syncthreads();  // the previous tile is complete
    load(coming, others + first * dim, other_count - first, kOthers);
    if (thread < kOthers) {
      const bool there = first + thread < other_count;
      Note note = {-1, 0.0f, 0.0f, 0.0f};
      if (there) note = other_notes[first + thread];
      coming_ids[thread] = note.id;
      coming_known[thread] = note.known;
    }
    __syncthreads();

    float score[4][kColumns] = {};
#pragma unroll 2
    for (int k = 0; k < size; ++k) {
      Value b[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) b[j] = value_of<kModel>(coming + (x + 16 * j) * stride, k, im);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Value a = value_of<kModel>(staying + (y + i) * stride, k, im);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) score[i][j] += term<kModel>(a, b[j]);
      }
    }
    if constexpr (!kWhole) {
      add_slices<kSlices>(score, slices + (number - from) % 2 * (kRows * kOthers));
    }

#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bool used[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        score[i][j] = score_of<kModel>(score[i][j]);
        const int column = x + 16 * j;
        used[j] = first + column < other_count && coming_ids[column] != ids[i];
      }
      float base = 0.0f;
      if (kQueries && is_exponential<kLoss>) {
        float top = largest[i];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          if (used[j]) top = fmaxf(top, exponent<kLoss>(score[i][j], numbers));
        }
        for (int apart = 8; apart; apart /= 2) {
          top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, apart));
        }
        base = finite_base(top);
        const float shrink = fast_exp(largest[i], base);
        largest[i] = top;
        sum[i] *= shrink;
        extra[i] *= shrink;
        if (x == 0) shrinks[y + i] = shrink;
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int column = x + 16 * j;
        float weight = 0.0f;
        if (used[j]) {
          weight = kQueries ? take_negative<kLoss>(score[i][j], p[i], base, sum[i], extra[i],
                                                   numbers)
                            : negative_slope<kLoss>(score[i][j], coming_known[column], numbers);
          weight *= unit_scale<kModel>(score[i][j]);
          if (kWeighted) weight *= edge_weights[first_edge + first + column] * edge_weights[edges];
        }
        weights[column * kWeightStride + y + i] = weight;
      }
    }
    __syncthreads();

    if (kQueries && is_exponential<kLoss>) {
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const float shrink = shrinks[warp_row + r];
        taken[r] *= shrink;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
#pragma unroll
          for (int part = 0; part < kParts; ++part) out[r][j][part] *= shrink;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int k = lane + 32 * j;
      if (k >= size) continue;
      Value mine[kWarpRows];
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        mine[r] = value_of<kModel>(staying + (warp_row + r) * stride, k, im);
      }
#pragma unroll 4
      for (int o = 0; o < kOthers; ++o) {
        const Value other = value_of<kModel>(coming + o * stride, k, im);
        const float* at = weights + o * kWeightStride + warp_row;
        const float4 low = *reinterpret_cast<const float4*>(at);
        const float4 high = *reinterpret_cast<const float4*>(at + 4);
        const float weight[kWarpRows] = {low.x,  low.y,  low.z,  low.w,
                                         high.x, high.y, high.z, high.w};
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
          add_other<kModel, kParts>(out[r][j], mine[r], other, weight[r]);
        }
      }
    }
    if (kModel == TRANSE_L2) {
      for (int o = lane; o < kOthers; o += 32) {
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) taken[r] += weights[o * kWeightStride + warp_row + r];
      }
    }
  }

  if constexpr (!kWhole) cluster_wait();  // shared memory remains until all have read it

  if (kQueries) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      for (int apart = 8; apart; apart /= 2) {
        sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], apart);
        extra[i] += __shfl_xor_sync(0xFFFFFFFFu, extra[i], apart);
      }
      const i64 row = first_row + y + i;
      if (x == 0 && row < row_count && slice == 0) {
        const i64 at = static_cast<i64>(split) * sides * edges + query_at + row;
        sums[at * 3] = largest[i];
        sums[at * 3 + 1] = sum[i];
        sums[at * 3 + 2] = extra[i];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const i64 row = first_row + warp_row + r;
    if (kModel == TRANSE_L2) {
      for (int apart = 16; apart; apart /= 2) {
        taken[r] += __shfl_xor_sync(0xFFFFFFFFu, taken[r], apart);
      }
    }
    if (row >= row_count) continue;
    const i64 at = kQueries ? static_cast<i64>(split) * sides * edges + query_at + row
                            : (static_cast<i64>(group) * splits + split) * count + row;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int k = lane + 32 * j;
      if (k >= size) continue;
      float sum_of_row = out[r][j][0];
      if (kModel == TRANSE_L2) sum_of_row -= taken[r] * staying[(warp_row + r) * stride + k];
      vectors[at * dim + begin + k] = sum_of_row;
      if (is_complex<kModel>) vectors[at * dim + begin + k + half] = out[r][j][kParts - 1];
    }
  }
}

template <int kModel, int kPieces, int kOthers, int kLoss, bool kQueries, bool kWeighted = false>
__global__ void __launch_bounds__(kThreads, kPieces <= 4 ? 2 : 1)
    distance_tiles(const float* __restrict__ queries, const Note* __restrict__ query_notes,
                   const float* __restrict__ negatives, const Note* __restrict__ negative_notes,
                   int dim, i64 edges, i64 chunk, int chunks, i64 count, int sides,
                   int negative_sides, int splits, int tiles, float margin, float temperature,
                   float share, const float* __restrict__ weights, float* __restrict__ vectors,
                   float* __restrict__ sums) {
  add_tiles<kModel, kPieces, kOthers, kLoss, kQueries, 1, kWeighted>(
      queries, query_notes, negatives, negative_notes, dim, edges, chunk, chunks, count, sides,
      negative_sides, splits, tiles, margin, temperature, share, weights, vectors, sums);
}

// One tile per cluster, one slice of its rows per block.
template <int kModel, int kPieces, int kOthers, int kLoss, bool kQueries, int kSlices,
          bool kWeighted = false>
PENSTOCK_CLUSTER(kSlices) __global__ void __launch_bounds__(kThreads, 1)
    distance_slices(const float* __restrict__ queries, const Note* __restrict__ query_notes,
                    const float* __restrict__ negatives, const Note* __restrict__ negative_notes,
                    int dim, i64 edges, i64 chunk, int chunks, i64 count, int sides,
                    int negative_sides, int splits, int tiles, float margin, float temperature,
                    float share, const float* __restrict__ weights, float* __restrict__ vectors,
                    float* __restrict__ sums) {
  add_tiles<kModel, kPieces, kOthers, kLoss, kQueries, kSlices, kWeighted>(
      queries, query_notes, negatives, negative_notes, dim, edges, chunk, chunks, count, sides,
      negative_sides, splits, tiles, margin, temperature, share, weights, vectors, sums);
}
