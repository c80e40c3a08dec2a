// Scores of queries and candidates in float64, in tiles: ranks of answers, and the best candidates.
//
// A score is the same number in all kernels here, since one function adds its terms in one order:
// so equal rows tie.
#include "embed/models.cuh"
#include "embed/tensor_cores.cuh"
#include "grid.cuh"

// instance: exact_queries<DOT>
// instance: exact_queries<DISTMULT>
// instance: exact_queries<COMPLEX>
// instance: exact_queries<RESCAL>
// instance: exact_queries<TUCKER, double>
// instance: exact_queries<TRANSE_L1>
// instance: exact_queries<TRANSE_L2>
// instance: exact_queries<ROTATE>
// instance: answer_scores<COMPLEX>
// instance: answer_scores<ROTATE>
// instance: count_scores<DOT, int>
// instance: count_scores<DISTMULT, long long>
// instance: count_scores<COMPLEX, int>
// instance: count_scores<TRANSE_L1, int>
// instance: count_scores<TRANSE_L2, long long>
// instance: count_scores<ROTATE, int>
// instance: write_scores<COMPLEX, int>
// instance: write_scores<TRANSE_L2, long long>
// instance: keep_best

using namespace penstock;
using i64 = long long;

constexpr int kThreads = 256, kTile = 64, kDepth = 16;

// NVRTC has no <cmath>.
__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7FF0000000000000); }
__device__ __forceinline__ double no_number() { return __longlong_as_double(0x7FF8000000000000); }

template <int kModel>
__device__ __forceinline__ double add_term(double sum, float q_re, float q_im, float v_re,
                                           float v_im) {
  if (!is_distance<kModel>) {
    sum = fma(static_cast<double>(q_re), static_cast<double>(v_re), sum);
    return is_complex<kModel> ? fma(static_cast<double>(q_im), static_cast<double>(v_im), sum)
                              : sum;
  }
  const double re = static_cast<double>(q_re) - v_re;
  if (kModel == TRANSE_L1) return sum + fabs(re);
  if (kModel == TRANSE_L2) return fma(re, re, sum);
  const double im = static_cast<double>(q_im) - v_im;
  return sum + sqrt(fma(im, im, __dmul_rn(re, re)));
}

// Queries computed in float64, rounded once: (count, dim). One value, or complex one, per thread.
template <int kModel, typename Factor = float>
__global__ void exact_queries(const float* __restrict__ nodes, i64 stride, int dim,
                              const Factor* __restrict__ relation_values, i64 relation_stride,
                              const int* __restrict__ given, const int* __restrict__ relations,
                              i64 count, int head, float* __restrict__ out) {
  const int half = dim / 2, values = is_complex<kModel> ? half : dim;
  for (i64 i = thread_number(); i < count * values; i += thread_count()) {
    const i64 row = i / values;
    const int k = static_cast<int>(i - row * values);
    const float* x = nodes + given[row] * stride;
    float* to = out + row * dim + k;
    if (kModel == DOT) {
      *to = x[k];
      continue;
    }
    const Factor* r = relation_values + relations[row] * relation_stride;
    if (kModel == RESCAL || kModel == TUCKER) {
      const Factor* matrix = r + (head ? static_cast<i64>(k) * dim : k);
      double sum = 0.0;
      for (int i = 0; i < dim; ++i) {
        const double by = matrix[head ? i : static_cast<i64>(i) * dim];
        sum = fma(static_cast<double>(x[i]), by, sum);
      }
      *to = static_cast<float>(sum);
      continue;
    }
    const double re = x[k];
    if (!is_complex<kModel>) {
      const double by = r[k];
      *to = static_cast<float>(kModel == DISTMULT ? re * by : head ? re - by : re + by);
      continue;
    }
    const double im = x[k + half];
    double by_re, by_im;
    if (kModel == ROTATE) {
      sincos(static_cast<double>(r[k]), &by_im, &by_re);
    } else {
      by_re = r[k];
      by_im = r[k + half];
    }
    if (head) by_im = -by_im;
    to[0] = static_cast<float>(re * by_re - im * by_im);
    to[half] = static_cast<float>(re * by_im + im * by_re);
  }
}

template <int kModel>
__global__ void answer_scores(const float* __restrict__ queries,
                              const float* __restrict__ answers, i64 count, int dim,
                              double* __restrict__ out) {
  const int half = dim / 2, values = is_complex<kModel> ? half : dim;
  for (i64 i = thread_number(); i < count; i += thread_count()) {
    double sum = 0.0;
    for (int k = 0; k < values; ++k) {
      const Value q = value_of<kModel>(queries + i * dim, k, half);
      const Value v = value_of<kModel>(answers + i * dim, k, half);
      sum = add_term<kModel>(sum, q.re, q.im, v.re, v.im);
    }
    out[i] = score_of<kModel>(sum);
  }
}

struct Tile {
  float queries[2][kTile][kDepth + 1], candidates[2][kTile][kDepth + 1];
};

// Rows y .. y + 4 and columns x, x + 16, ... of a tile are a thread's.
template <int kModel>
__device__ void score_tile(Tile& tile, const float* queries, i64 query_count,
                           const float* candidates, i64 candidate_count, i64 stride, int dim,
                           double (&score)[4][4]) {
  const int half = dim / 2, values = is_complex<kModel> ? half : dim;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16 * 4;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) score[i][j] = 0.0;
  }
  for (int begin = 0; begin < values; begin += kDepth) {
    const int depth = values - begin < kDepth ? values - begin : kDepth;
    __syncthreads();
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int row = i / kDepth, k = i % kDepth;
      for (int part = 0; part < (is_complex<kModel> ? 2 : 1); ++part) {
        const int at = part * half + begin + k;
        tile.queries[part][row][k] =
            row < query_count && k < depth ? queries[static_cast<i64>(row) * dim + at] : 0.0f;
        tile.candidates[part][row][k] =
            row < candidate_count && k < depth ? candidates[row * stride + at] : 0.0f;
      }
    }
    __syncthreads();
    for (int k = 0; k < depth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float q = tile.queries[0][y + i][k];
        const float q_im = is_complex<kModel> ? tile.queries[1][y + i][k] : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float v = tile.candidates[0][x + 16 * j][k];
          const float v_im = is_complex<kModel> ? tile.candidates[1][x + 16 * j][k] : 0.0f;
          score[i][j] = add_term<kModel>(score[i][j], q, q_im, v, v_im);
        }
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) score[i][j] = score_of<kModel>(score[i][j]);
  }
}

// Whether ids[from .. to], ascending, holds id.
template <typename Id>
__device__ bool holds(const Id* ids, i64 from, i64 to, i64 id) {
  while (from < to) {
    const i64 middle = (from + to) / 2, there = static_cast<i64>(ids[middle]);
    if (there == id) return true;
    if (there < id) {
      from = middle + 1;
    } else {
      to = middle;
    }
  }
  return false;
}

// A block has 64 queries and every ``splits``-th tile of candidates.
template <int kModel, typename Id>
__global__ void __launch_bounds__(kThreads)
    count_scores(const float* __restrict__ queries, const double* __restrict__ scores,
                 const i64* __restrict__ answers, i64 count, const float* __restrict__ table,
                 i64 rows, i64 stride, int dim, i64 first, const i64* __restrict__ indptr,
                 const Id* __restrict__ known, int splits, unsigned long long* __restrict__ counts) {
  Tile& tile = *reinterpret_cast<Tile*>(dynamic_shared());
  const i64 first_query = static_cast<i64>(blockIdx.x / splits) * kTile;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16 * 4;
  unsigned greater[4] = {}, equal[4] = {};
  for (i64 at = static_cast<i64>(blockIdx.x % splits) * kTile; at < rows;
       at += static_cast<i64>(splits) * kTile) {
    double found[4][4];
    score_tile<kModel>(tile, queries + first_query * dim, count - first_query, table + at * stride,
                       rows - at, stride, dim, found);
    for (int i = 0; i < 4; ++i) {
      const i64 query = first_query + y + i;
      if (query >= count) continue;
      const double mine = scores[query];
      for (int j = 0; j < 4; ++j) {
        const i64 row = at + x + 16 * j, id = first + row;
        if (row >= rows) continue;
        const double other = found[i][j];
        const bool above = isnan(mine) ? !isnan(other) : other > mine;
        const bool same = isnan(mine) ? isnan(other) : other == mine;
        if (!above && !same) continue;
        if (id == answers[query]) continue;
        if (indptr && holds(known, indptr[query], indptr[query + 1], id)) continue;
        greater[i] += above;
        equal[i] += same;
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int apart = 8; apart; apart /= 2) {
      greater[i] += __shfl_xor_sync(0xFFFFFFFFu, greater[i], apart);
      equal[i] += __shfl_xor_sync(0xFFFFFFFFu, equal[i], apart);
    }
    const i64 query = first_query + y + i;
    if (x == 0 && query < count) {
      if (greater[i]) atomicAdd(counts + query * 2, static_cast<unsigned long long>(greater[i]));
      if (equal[i]) atomicAdd(counts + query * 2 + 1, static_cast<unsigned long long>(equal[i]));
    }
  }
}

// Write all scores, (count, rows); NaN for known answers.
template <int kModel, typename Id>
__global__ void __launch_bounds__(kThreads)
    write_scores(const float* __restrict__ queries, i64 count, const float* __restrict__ table,
                 i64 rows, i64 stride, int dim, i64 first, const i64* __restrict__ indptr,
                 const Id* __restrict__ known, int splits, double* __restrict__ out) {
  Tile& tile = *reinterpret_cast<Tile*>(dynamic_shared());
  const i64 first_query = static_cast<i64>(blockIdx.x / splits) * kTile;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16 * 4;
  for (i64 at = static_cast<i64>(blockIdx.x % splits) * kTile; at < rows;
       at += static_cast<i64>(splits) * kTile) {
    double found[4][4];
    score_tile<kModel>(tile, queries + first_query * dim, count - first_query, table + at * stride,
                       rows - at, stride, dim, found);
    for (int i = 0; i < 4; ++i) {
      const i64 query = first_query + y + i;
      if (query >= count) continue;
      for (int j = 0; j < 4; ++j) {
        const i64 row = at + x + 16 * j;
        if (row >= rows) continue;
        const bool out_of_it =
            indptr && holds(known, indptr[query], indptr[query + 1], first + row);
        out[query * rows + row] = out_of_it ? no_number() : found[i][j];
      }
    }
  }
}

struct Found {
  double score;
  i64 id;  // -1: none
};

// Whether a comes before b: the better one, of equals the lower id.
__device__ __forceinline__ bool before(Found a, Found b) {
  if (a.id < 0 || b.id < 0) return b.id < 0 && a.id >= 0;
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// One block per query: the best k of ``scores`` and of the earlier best, one after another.
__global__ void __launch_bounds__(kThreads)
    keep_best(const double* __restrict__ scores, i64 rows, i64 first, int k,
              const double* __restrict__ old_scores, const i64* __restrict__ old_ids,
              double* __restrict__ best_scores, i64* __restrict__ best_ids) {
  __shared__ double warp_score[kThreads / 32];
  __shared__ i64 warp_id[kThreads / 32];
  const i64 query = blockIdx.x;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  Found last = {0.0, -1};
  for (int place = 0; place < k; ++place) {
    Found mine = {0.0, -1};
    auto look = [&](Found one) {
      if (isnan(one.score) || (place && !before(last, one))) return;
      if (before(one, mine)) mine = one;
    };
    // Once none is left, none is found again.
    if (place == 0 || last.id >= 0) {
      for (i64 i = threadIdx.x; i < rows; i += kThreads) look({scores[query * rows + i], first + i});
      for (int i = threadIdx.x; i < k; i += kThreads) {
        look({old_scores[query * k + i], old_ids[query * k + i]});
      }
    }
    for (int apart = 16; apart; apart /= 2) {
      const Found other = {__shfl_xor_sync(0xFFFFFFFFu, mine.score, apart),
                           __shfl_xor_sync(0xFFFFFFFFu, mine.id, apart)};
      if (before(other, mine)) mine = other;
    }
    if (lane == 0) {
      warp_score[warp] = mine.score;
      warp_id[warp] = mine.id;
    }
    __syncthreads();
    for (int i = 0; i < kThreads / 32; ++i) {
      const Found other = {warp_score[i], warp_id[i]};
      if (before(other, mine)) mine = other;
    }
    __syncthreads();
    last = mine;
    if (threadIdx.x == 0) {
      best_scores[query * k + place] = mine.id < 0 ? -infinity() : mine.score;
      best_ids[query * k + place] = mine.id;
    }
  }
}
