// The edges that a step may take, and their weights, computed on the fly (naive/walk.py,
// transition).
#pragma once

#include "philox.cuh"

#ifndef PENSTOCK_EXPRESSION
// The user's weight of an edge; a prologue with PENSTOCK_EXPRESSION replaces it.
__device__ __forceinline__ double expression_weight(double weight, double, double, double, double,
                                                    double, double) {
  return weight;
}
#define PENSTOCK_EXPRESSION 0
#endif

namespace penstock {

using i64 = long long;

constexpr int PLAIN = 0;    // every edge of the row, by its weight
constexpr int RELATED = 1;  // only those of the relation that the schema names
constexpr int GENERAL = 2;  // with relations, times, factors or an expression

template <int Kind>
struct Kinds {
  using Weight = float;
};
template <>
struct Kinds<GENERAL> {
  using Weight = double;  // as in an expression
};

// flags: those of Rules, and whether proposals are judged, or factors are part of weights
constexpr int CYCLIC = 1, TIMED = 2, JUDGED = 4, FACTORS = 8, SYMMETRIC = 16, ASKS_NEAR = 32;

// Rows and Rules of kernels/walk_rules.py; null for None.
template <typename Id>
struct Graph {
  const i64* __restrict__ indptr;
  const Id* __restrict__ indices;
  const float* __restrict__ weights;
  const int* __restrict__ relations;
  const i64* __restrict__ times;
  const i64* __restrict__ near_indptr;
  const Id* __restrict__ near_indices;
  const int* __restrict__ degrees;
  const int* __restrict__ labels;
  i64 edges, earliest, latest;
  double return_factor, far_factor;
  int flags, schema_length;
};

// Whether an ascending row contains an id; ``from`` moves to the first place not below it.
template <typename Id>
__device__ __forceinline__ bool holds_from(const Id* row, i64& from, i64 end, Id id) {
  i64 leap = 1;
  while (from + leap <= end && row[from + leap - 1] < id) {
    from += leap;
    leap *= 2;
  }
  i64 high = from + leap - 1 < end ? from + leap - 1 : end;
  while (from < high) {
    const i64 middle = (from + high) / 2;
    if (row[middle] < id) {
      from = middle + 1;
    } else {
      high = middle;
    }
  }
  return from < end && row[from] == id;
}

// The candidates of one step. Edges are read in fours that begin at multiples of 4, so that four
// weights are one load; the v-th four is edges 4 * (low / 4 + v) and the next three.
template <typename Id, int Kind>
struct Candidates {
  const Graph<Id>& graph;
  i64 low;
  int count, wanted, step;
  Id previous;
  i64 earliest;
  bool factors;
  // end of the search for the last target, and that target: rows mostly ascend
  mutable i64 near_from = 0;
  mutable Id near_seen = -1;

  __device__ __forceinline__ int fours() const {
    return static_cast<int>(((low & 3) + count + 3) >> 2);
  }
  __device__ __forceinline__ i64 first_of(int four) const { return ((low >> 2) + four) << 2; }

  __device__ bool near(Id target) const {
    if (previous < 0) return false;
    const i64 begin = graph.near_indptr[previous], end = graph.near_indptr[previous + 1];
    if (target < near_seen || near_from < begin) near_from = begin;
    near_seen = target;
    return holds_from(graph.near_indices, near_from, end, target);
  }

  // The weight of an edge of the row.
  __device__ __forceinline__ typename Kinds<Kind>::Weight weight(i64 edge) const {
    if constexpr (Kind == GENERAL) {
      return general(edge);
    } else {
      if (Kind == RELATED && graph.relations[edge] != wanted) return 0;
      return graph.weights ? graph.weights[edge] : 1;
    }
  }

  __device__ double general(i64 edge) const {
    if (graph.schema_length && graph.relations[edge] != wanted) return 0;
    if (graph.times) {
      const i64 time = graph.times[edge];
      if (time < earliest || time > graph.latest) return 0;
    }
    double weight = graph.weights ? graph.weights[edge] : 1.0f;
    if (!PENSTOCK_EXPRESSION && (!factors || previous < 0 || weight == 0)) {
      return weight;
    }
    const Id target = graph.indices[edge];
    const bool back = previous >= 0 && target == previous;
    if (!PENSTOCK_EXPRESSION) {
      if (back) return weight * graph.return_factor;
      return near(target) ? weight : weight * graph.far_factor;
    }
    return expression_weight(weight, graph.relations ? graph.relations[edge] : 0,
                             graph.degrees ? graph.degrees[target] : 0, step, back,
                             graph.flags & ASKS_NEAR ? near(target) : false,
                             graph.labels ? graph.labels[target] : 0);
  }

  // The weights of ``Count`` fours, ``stride`` apart; 0 if not a candidate. Not for GENERAL. Loads
  // come before their uses.
  template <int Count>
  __device__ __forceinline__ void weights(int four, int stride, float (&out)[Count][4]) const {
    const int all = fours();
    // the last four may extend beyond the arrays
    const i64 whole_in_array = (graph.edges >> 2) - (low >> 2);
    const int whole = static_cast<int>(whole_in_array < all ? whole_in_array : all);
    const float4* from = reinterpret_cast<const float4*>(graph.weights) + ((low >> 2) + four);
    if constexpr (Kind == PLAIN) {
#pragma unroll
      for (int k = 0; k < Count; ++k) {
        float4 read = make_float4(0, 0, 0, 0);
        if (four + k * stride < whole) read = __ldg(from + k * stride);
        put(read, out[k]);
      }
    } else {
      const int4* kinds = reinterpret_cast<const int4*>(graph.relations) + ((low >> 2) + four);
      int4 kind[Count];
#pragma unroll
      for (int k = 0; k < Count; ++k) {
        kind[k] = make_int4(~wanted, ~wanted, ~wanted, ~wanted);
        if (four + k * stride < whole) kind[k] = __ldg(kinds + k * stride);
      }
#pragma unroll
      for (int k = 0; k < Count; ++k) {
        const bool x = kind[k].x == wanted, y = kind[k].y == wanted;
        const bool z = kind[k].z == wanted, w = kind[k].w == wanted;
        float4 read = make_float4(1, 1, 1, 1);
        if (graph.weights && (x || y || z || w)) read = __ldg(from + k * stride);
        put(make_float4(x ? read.x : 0, y ? read.y : 0, z ? read.z : 0, w ? read.w : 0), out[k]);
      }
    }
    if (four == 0 || four + (Count - 1) * stride >= all - 1) {  // the row may begin or end in these
      const int skipped = static_cast<int>(low & 3);
#pragma unroll
      for (int k = 0; k < Count; ++k) {
        const int v = four + k * stride;
        if (v == whole && whole < all) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (first_of(v) + j < graph.edges) out[k][j] = weight(first_of(v) + j);
          }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (static_cast<u32>(v * 4 + j - skipped) >= static_cast<u32>(count)) out[k][j] = 0;
        }
      }
    }
  }

  __device__ static __forceinline__ void put(float4 from, float (&to)[4]) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
  }
};

}  // namespace penstock
