// Before and after the tiles: queries of edges and scores of their answers; their gradients.
//
// A warp has an edge, both of its nodes and all of its sides. It reads all inputs before it
// computes, 32 values per piece.
#include "embed/batch_edges.cuh"
#include "embed/losses.cuh"
#include "embed/models.cuh"
#include "embed/notes.cuh"
#include "embed/optimizer.cuh"
#include "embed/tensor_cores.cuh"
#include "grid.cuh"

// instance: pack_rows<DOT, 4>
// instance: pack_rows<TRANSE_L1, 1>
// instance: pack_rows<TRANSE_L2, 4>
// instance: pack_queries<DOT, 4>
// instance: pack_queries<DISTMULT, 16>
// instance: pack_queries<COMPLEX, 2>
// instance: pack_queries<COMPLEX, 8>
// instance: pack_queries<TRANSE_L1, 1>
// instance: pack_queries<TRANSE_L2, 4>
// instance: pack_queries<ROTATE, 8>
// instance: finish_rows<DOT, SOFTMAX>
// instance: finish_rows<DISTMULT, CONTRASTIVE>
// instance: finish_rows<COMPLEX, SELF_ADVERSARIAL>
// instance: finish_rows<TRANSE_L1, MARGIN>
// instance: finish_rows<TRANSE_L2, LOGISTIC>
// instance: edge_gradients<DOT, true, ADAGRAD, 4>
// instance: edge_gradients<DISTMULT, true, SGD, 1>
// instance: edge_gradients<COMPLEX, true, ADAGRAD, 2>
// instance: edge_gradients<COMPLEX, false, ADAM, 4>
// instance: edge_gradients<TRANSE_L1, false, ADAGRAD, 4>
// instance: edge_gradients<TRANSE_L2, false, ADAM, 2>
// instance: edge_gradients<ROTATE, true, ADAGRAD, 4>

using namespace penstock;
using i64 = long long;

// Round a value to a half of its row's scale; add the square of the result to ``square``.
template <int kModel>
__device__ __forceinline__ Half packed(float x, float scale, float& square) {
  const Half half = to_half(x * (1.0f / scale));  // a power of 2: only the half is rounded
  if (is_distance<kModel>) {
    const float rounded = to_float(half) * scale;
    square += rounded * rounded;
  }
  return half;
}

// Write the rows that ``ids`` names one after another: ``width`` halves each, the last of which are
// zeros, or ``dim`` unchanged values.
template <int kModel, int kPieces>
__global__ void pack_rows(const float* __restrict__ nodes, i64 stride, int dim,
                          const int* __restrict__ ids, i64 count, int width, void* __restrict__ out,
                          Note* __restrict__ notes) {
  constexpr bool kHalves = is_product<kModel>;
  const i64 warps = thread_count() / 32;
  const int lane = threadIdx.x & 31;
  for (i64 i = thread_number() / 32; i < count; i += warps) {
    const int id = ids[i];
    const float* row = nodes + id * stride;
    float x[kPieces], largest = 0.0f;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int k = lane + 32 * j;
      x[j] = k < dim ? row[k] : 0.0f;
      largest = fmaxf(largest, fabsf(x[j]));
    }
    const float scale = kHalves ? scale_of(warp_max(largest)) : 1.0f;
    float square = 0.0f;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int k = lane + 32 * j;
      if (k >= (kHalves ? width : dim)) continue;
      if (kHalves) {
        static_cast<Half*>(out)[i * width + k] = packed<kModel>(x[j], scale, square);
      } else {
        static_cast<float*>(out)[i * dim + k] = x[j];
      }
    }
    if (kHalves && is_distance<kModel>) square = warp_sum(square);
    if (lane == 0) notes[i] = {id, scale, square, 0.0f};
  }
}

// The same for queries, with the score of the answer: one side's follow the other's.
template <int kModel, int kPieces>
__global__ void pack_queries(const float* __restrict__ nodes, i64 stride, int dim,
                             const float* __restrict__ relation_values, i64 relation_stride,
                             const int* __restrict__ heads, const int* __restrict__ tails,
                             const int* __restrict__ relations, int inverse, i64 count, int sides,
                             int head_sides, int width, void* __restrict__ out,
                             Note* __restrict__ notes) {
  constexpr bool kHalves = is_product<kModel>;
  const int lane = threadIdx.x & 31, half = dim / 2;
  const int values = is_complex<kModel> ? half : dim;
  const Edges edges = {heads, tails, relations, inverse, head_sides};
  const i64 warps = thread_count() / 32;
  for (i64 e = thread_number() / 32; e < count; e += warps) {
    const int ends[2] = {heads[e], tails[e]};
    Value x[2][kPieces];
#pragma unroll
    for (int end = 0; end < 2; ++end) {
      const float* row = nodes + ends[end] * stride;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int k = lane + 32 * j;
        x[end][j] = {0.0f, 0.0f};
        if (k < values) x[end][j] = value_of<kModel>(row, k, half);
      }
    }
    for (int side = 0; side < sides; ++side) {
      const bool head = edges.asks_head(side), swapped = edges.is_head(side);
      const float* r = nullptr;
      if (kModel != DOT) r = relation_values + edges.relation(e, side) * relation_stride;
      Value query[kPieces];
      float sum = 0.0f, largest = 0.0f;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int k = lane + 32 * j;
        query[j] = {0.0f, 0.0f};
        if (k >= values) continue;
        const Value given = swapped ? x[1][j] : x[0][j], answer = swapped ? x[0][j] : x[1][j];
        query[j] = query_of<kModel>(given, relation_of<kModel>(r, k, half), head);
        sum += score_term<kModel>(query[j].re, query[j].im, answer.re, answer.im);
        largest = fmaxf(largest, fmaxf(fabsf(query[j].re), fabsf(query[j].im)));
      }
      sum = warp_sum(sum);
      const float scale = kHalves ? scale_of(warp_max(largest)) : 1.0f;
      float square = 0.0f;
      const i64 at = side * count + e;
      if (kHalves) {
        Half* to = static_cast<Half*>(out) + at * width;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          const int k = lane + 32 * j;
          if (k >= values) continue;
          to[k] = packed<kModel>(query[j].re, scale, square);
          if (is_complex<kModel>) to[k + half] = packed<kModel>(query[j].im, scale, square);
        }
        for (int k = dim + lane; k < width; k += 32) to[k] = 0;
      } else {
        float* to = static_cast<float*>(out) + at * dim;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          const int k = lane + 32 * j;
          if (k >= values) continue;
          to[k] = query[j].re;
          if (is_complex<kModel>) to[k + half] = query[j].im;
        }
      }
      if (kHalves && is_distance<kModel>) square = warp_sum(square);
      if (lane == 0) notes[at] = {ends[swapped ? 0 : 1], scale, square, score_of<kModel>(sum)};
    }
  }
}

// Add the gradient of ``weight * size^power`` at x to slope; return the penalty.
template <int kModel>
__device__ __forceinline__ float penalise(Value x, float weight, int power, Value& slope) {
  if (weight == 0.0f) return 0.0f;
  const float square = x.re * x.re + x.im * x.im;
  const float size = is_complex<kModel> ? sqrtf(square) : fabsf(x.re);
  const float by = weight * power * (power == 3 ? size : 1.0f);
  slope.re += by * x.re;
  slope.im += by * x.im;
  return weight * (power == 3 ? square * size : square);
}

// Finish the sums of rows, one thread each. sums (splits, rows, 3): largest, sum, extra; ``known``
// of notes is written. edge_weights (edges + 1): as in product.cu, or null
template <int kModel, int kLoss>
__global__ void finish_rows(const float* __restrict__ sums, i64 rows, int splits, float margin,
                            float temperature, float share,
                            const float* __restrict__ edge_weights, i64 edges,
                            Note* __restrict__ notes, RowWeights* __restrict__ weights) {
  const LossNumbers numbers = {margin, temperature, share};
  for (i64 at = thread_number(); at < rows; at += thread_count()) {
    RowSums row = {lowest(), 0.0f, 0.0f};
    for (int split = 0; split < splits; ++split) {
      const float* piece = sums + (split * rows + at) * 3;
      join<kLoss>(row, {piece[0], piece[1], piece[2]});
    }
    const float p = notes[at].known;
    const RowEnd end = finish_row<kLoss>(row, p, numbers);
    notes[at].known = end.known;
    const float by_unit =
        is_distance<kModel> ? -end.by_positive * unit_scale<kModel>(p) : end.by_positive;
    weights[at] = {end.scale, end.base, by_unit, end.loss};
    if (edge_weights) weights[at].multiply(edge_weights[at % edges] * edge_weights[edges]);
  }
}

// The optimizer's state of some values of a row, loaded early.
template <int kModel, int kOptimizer, int kGroup>
struct States {
  static constexpr int kParts = is_complex<kModel> ? 2 : 1;
  float first[kGroup][kParts], second[kGroup][kParts];

  __device__ __forceinline__ void read(const float* state, int from, int dim) {
    const int half = dim / 2, values = is_complex<kModel> ? half : dim;
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int k = from + 32 * j;
        first[j][part] = second[j][part] = 0.0f;
        if (kOptimizer == SGD || k >= values) continue;
        first[j][part] = state[k + part * half];
        if (kOptimizer == ADAM) second[j][part] = state[k + part * half + dim];
      }
    }
  }
};

// Change a row by its gradient.
template <int kModel, int kOptimizer, int kGroup>
__device__ __forceinline__ void change(const Value (&x)[kGroup], const Value (&slope)[kGroup],
                                       States<kModel, kOptimizer, kGroup>& states, int from,
                                       int dim, float* row, float* state, const Rates& rates) {
  const int half = dim / 2, values = is_complex<kModel> ? half : dim;
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    if (from + 32 * j >= values) continue;
#pragma unroll
    for (int part = 0; part < states.kParts; ++part) {
      const int k = from + 32 * j + part * half;
      float& first = states.first[j][part];
      float& second = states.second[j][part];
      row[k] = changed<kOptimizer>(part ? x[j].im : x[j].re, part ? slope[j].im : slope[j].re,
                                   first, second, rates);
      if (kOptimizer != SGD) state[k] = first;
      if (kOptimizer == ADAM) state[k + dim] = second;
    }
  }
}

// One warp per edge, for all sides at once. Rows of tables are ``stride`` values apart. A node with
// only this gradient is changed at once; other gradients are kept for update.cu.
// vectors  (splits, sides, count, dim): sums of weighted negatives, or of unit vectors of distances
//   sums     (splits, sides, count, 3): read if there are several splits
//   weights  (sides, count)
//   alone    (2, count): whether the gradient of a head, of a tail, is the only one of its row; or
//            null: none is, and no row is changed
//   slopes   out: (2, count, dim) heads' gradients and then tails', of those not alone
//   in_relations  out: (slots count, relation_width); slots: 1, or one slot per side
//   losses   (count), out
template <int kModel, bool kExponential, int kOptimizer, int kGroup>
__global__ void
    __launch_bounds__(256, is_complex<kModel> && kGroup > 2 ? 2 : kModel == DOT && kOptimizer != ADAM ? 4 : 3)
    edge_gradients(float* nodes, i64 stride, float* state, i64 state_stride, int dim,
                               const float* __restrict__ relation_values, i64 relation_stride,
                               int relation_width, const int* __restrict__ heads,
                               const int* __restrict__ tails, const int* __restrict__ relations,
                               int inverse, i64 count, int sides, int head_sides, int splits,
                               const float* __restrict__ vectors, const float* __restrict__ sums,
                               const RowWeights* __restrict__ weights,
                               const bool* __restrict__ alone, float node_penalty,
                               float relation_penalty, int power, int slots,
                               const Rates* __restrict__ rates_at, float* __restrict__ slopes, float* __restrict__ in_relations,
                               double* __restrict__ losses) {
  const int lane = threadIdx.x & 31, half = dim / 2;
  const int values = is_complex<kModel> ? half : dim;
  const Rates rates = *rates_at;
  const Edges edges = {heads, tails, relations, inverse, head_sides};
  const i64 warps = thread_count() / 32, per_split = sides * count;
  for (i64 e = thread_number() / 32; e < count; e += warps) {
    const i64 nodes_of[2] = {heads[e], tails[e]};
    float* rows[2] = {nodes + nodes_of[0] * stride, nodes + nodes_of[1] * stride};
    float* own[2] = {state + nodes_of[0] * state_stride, state + nodes_of[1] * state_stride};
    const bool is_alone[2] = {alone && alone[e], alone && alone[count + e]};
    double loss = 0.0;
    float penalty = 0.0f;
    for (int from = lane; from < values; from += 32 * kGroup) {
      Value x[2][kGroup], in_node[2][kGroup], in_relation[kGroup];
      States<kModel, kOptimizer, kGroup> states[2];
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        const int k = from + 32 * j;
        x[0][j] = x[1][j] = in_node[0][j] = in_node[1][j] = in_relation[j] = {0.0f, 0.0f};
        if (k < values) {
          x[0][j] = value_of<kModel>(rows[0], k, half);
          x[1][j] = value_of<kModel>(rows[1], k, half);
        }
      }
#pragma unroll
      for (int end = 0; end < 2; ++end) {
        if (is_alone[end]) states[end].read(own[end], from, dim);
      }
      for (int side = 0; side < sides; ++side) {
        const i64 at = side * count + e;
        const bool head = edges.asks_head(side), swapped = edges.is_head(side);
        const RowWeights weight = weights[at];
        if (from == lane) loss += weight.loss;
        Value slope[kGroup];
#pragma unroll
        for (int j = 0; j < kGroup; ++j) slope[j] = {0.0f, 0.0f};
        for (int split = 0; split < splits; ++split) {
          const i64 piece = split * per_split + at;
          float scale = weight.scale;
          if (kExponential && splits > 1) scale *= __expf(sums[piece * 3] - weight.base);
#pragma unroll
          for (int j = 0; j < kGroup; ++j) {
            const int k = from + 32 * j;
            if (k >= values) continue;
            const Value part = value_of<kModel>(vectors + piece * dim, k, half);
            slope[j].re += scale * part.re;
            slope[j].im += scale * part.im;
          }
        }
        const float* row = nullptr;
        if (kModel != DOT) row = relation_values + edges.relation(e, side) * relation_stride;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          const int k = from + 32 * j;
          if (k >= values) continue;
          const Value given = swapped ? x[1][j] : x[0][j], answer = swapped ? x[0][j] : x[1][j];
          const Value r = relation_of<kModel>(row, k, half);
          const Value q = query_of<kModel>(given, r, head);
          Value in_answer;
          if (is_distance<kModel>) {
            const Value away = unit<kModel>(q, answer);
            slope[j].re += weight.by_unit * away.re;
            slope[j].im += weight.by_unit * away.im;
            in_answer = {-weight.by_unit * away.re, -weight.by_unit * away.im};
          } else {
            slope[j].re += weight.by_unit * answer.re;
            slope[j].im += weight.by_unit * answer.im;
            in_answer = {weight.by_unit * q.re, weight.by_unit * q.im};
          }
          Value in_given, in_r;
          query_slopes<kModel>(given, r, slope[j], head, in_given, in_r);
          penalty += penalise<kModel>(given, node_penalty, power, in_given);
          penalty += penalise<kModel>(answer, node_penalty, power, in_answer);
          if (kModel != DOT && kModel != ROTATE) {
            penalty += penalise<kModel>(r, relation_penalty, power, in_r);
          }
          const Value in_head = swapped ? in_answer : in_given;
          const Value in_tail = swapped ? in_given : in_answer;
          in_node[0][j].re += in_head.re;
          in_node[0][j].im += in_head.im;
          in_node[1][j].re += in_tail.re;
          in_node[1][j].im += in_tail.im;
          in_relation[j].re += in_r.re;
          in_relation[j].im += in_r.im;
          if (kModel != DOT && (slots > 1 || side == sides - 1)) {
            float* to = in_relations + ((slots > 1 ? side : 0) * count + e) * relation_width;
            to[k] = in_relation[j].re;
            if (kModel == COMPLEX) to[k + half] = in_relation[j].im;
            in_relation[j] = {0.0f, 0.0f};
          }
        }
      }
#pragma unroll
      for (int end = 0; end < 2; ++end) {
        if (is_alone[end]) {
          change<kModel, kOptimizer, kGroup>(x[end], in_node[end], states[end], from, dim,
                                             rows[end], own[end], rates);
          continue;
        }
        float* to = slopes + (end * count + e) * dim;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          const int k = from + 32 * j;
          if (k >= values) continue;
          to[k] = in_node[end][j].re;
          if (is_complex<kModel>) to[k + half] = in_node[end][j].im;
        }
      }
    }
    if (node_penalty != 0.0f || relation_penalty != 0.0f) penalty = warp_sum(penalty);
    if (lane == 0) losses[e] = loss + penalty;
  }
}
