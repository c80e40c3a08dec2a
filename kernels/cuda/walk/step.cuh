// One step of a walk, for kernels with one walk per thread. kernels/walk_rules.py defines the
// draws; doubles are multiplied with __dmul_rn, so that they are not contracted.
//
// A step's cost is its random reads of 32-byte sectors. Hence two kinds of records, made by
// walk/tables.cu, each in one sector:
//   a row    {int64 offset, int32 count, float bound}
//   an edge  for REJECTION {target, weight}, 8 bytes with ids of 4, 16 with ids of 8;
//            for ALIAS {target, chance, other's place, other's target}, 16 or 32 bytes
#pragma once
#include "philox.cuh"

namespace penstock {

using i64 = long long;

enum Sampler { kDirect = 0, kRejection = 1, kIts = 2, kAlias = 3 };

constexpr int kTrials = 32;
constexpr int kWalkBits = 40;
constexpr int kLanes = 32;
constexpr u32 kAll = 0xFFFFFFFFu;
constexpr double kTwo32 = 4294967296.0;
constexpr i64 kEarliest = -0x7FFFFFFFFFFFFFFFll - 1;  // before any time

// The arrays that a step reads. Null if there is no such array.
template <typename Id>
struct Graph {
  const int4* rows;      // records, node * groups + group
  const int4* adjacent;  // records of the rows of ``ascending``
  const Id* ascending;   // for a second-order walk: neighbours in ascending order
  const Id* indices;
  const int4* edges;  // records, for REJECTION and ALIAS
  const float* weights;
  const double* prefix;
  const i64* times;
  int groups;
};

// What a step does: walk_rules.WalkRules.
struct Rules {
  u64 seed;
  u32 step_stream, stop_stream;
  u64 stop_below, restart_below;
  double return_factor, far_factor, largest_factor;
  bool symmetric;
  const int* schema;  // null without one
  int schema_length;
  bool cyclic, timed;
  i64 earliest, latest;
};

struct Row {
  i64 offset;
  int count;
  float bound;
};

__device__ __forceinline__ i64 join(int low, int high) {
  return static_cast<i64>(static_cast<u32>(low) | static_cast<u64>(static_cast<u32>(high)) << 32);
}

__device__ __forceinline__ Row read_row(const int4* __restrict__ rows, i64 row) {
  const int4 record = __ldg(rows + row);
  return {join(record.x, record.y), record.z, __int_as_float(record.w)};
}

__device__ __forceinline__ u64 wide_word(const uint4& words) {
  return static_cast<u64>(words.y) << 32 | words.x;
}

__device__ __forceinline__ u64 counted(u64 walk, int step) {
  return walk | static_cast<u64>(step) << kWalkBits;
}

// How many of ``values[0 .. count)`` are below, or with ``Equal`` not above, a value.
template <bool Equal, typename Value>
__device__ __forceinline__ int count_below(const Value* __restrict__ values, int count,
                                           Value value) {
  int low = 0;
  while (count > 0) {
    const int half = count >> 1;
    const Value here = __ldg(values + low + half);
    const bool below = Equal ? here <= value : here < value;
    low = below ? low + half + 1 : low;
    count = below ? count - half - 1 : half;
  }
  return low;
}

template <typename Id>
__device__ __forceinline__ bool contains(const Id* __restrict__ ids, i64 offset, int count, Id id) {
  const int place = count_below<false>(ids + offset, count, id);
  return place < count && __ldg(ids + offset + place) == id;
}

// -- candidates -----------------------------------------------------------------------------------

// The range of a row's edges from which a step is chosen.
struct Range {
  i64 low;
  int count;
  float bound;  // the largest weight of the whole row
  bool whole;   // it begins at the start of the row
};

template <bool General, typename Id>
__device__ __forceinline__ Range candidates(const Graph<Id>& graph, const Rules& rules, i64 node,
                                            int step, i64 now) {
  if (!General) {
    const Row row = read_row(graph.rows, node);
    return {row.offset, row.count, row.bound, true};
  }
  int group = 0;
  if (rules.schema) {
    if (step > rules.schema_length && !rules.cyclic) return {0, 0, 0.0f, true};
    group = __ldg(rules.schema + (step - 1) % rules.schema_length);
  }
  const Row row = read_row(graph.rows, node * graph.groups + group);
  Range range = {row.offset, row.count, row.bound, true};
  if (graph.times && row.count > 0) {
    const i64 earliest = rules.timed && now > rules.earliest ? now : rules.earliest;
    const i64* times = graph.times + row.offset;
    const int late = count_below<true>(times, row.count, rules.latest);
    const int early = count_below<false>(times, late, earliest);
    range.low += early;
    range.count = late - early;
    range.whole = early == 0;
  }
  return range;
}

// -- proposals ------------------------------------------------------------------------------------

template <typename Id>
struct Proposal {
  i64 edge;
  Id target;
};

enum Outcome { kTaken, kAgain, kNothing };

__device__ __forceinline__ float edge_weight(const int4* edges, i64 edge, int) {
  return __ldg(reinterpret_cast<const float*>(edges) + 2 * edge + 1);
}
__device__ __forceinline__ float edge_weight(const int4* edges, i64 edge, i64) {
  return __ldg(reinterpret_cast<const float*>(edges) + 4 * edge + 2);
}

__device__ __forceinline__ float read_edge(const int4* edges, i64 edge, int& target) {
  const int2 record = __ldg(reinterpret_cast<const int2*>(edges) + edge);
  target = record.x;
  return __int_as_float(record.y);
}
__device__ __forceinline__ float read_edge(const int4* edges, i64 edge, i64& target) {
  const int4 record = __ldg(edges + edge);
  target = join(record.x, record.y);
  return __int_as_float(record.z);
}

__device__ __forceinline__ void choose_slot(const int4* edges, i64 low, u32 word,
                                            Proposal<int>& proposal) {
  const int4 record = __ldg(edges + proposal.edge);
  proposal.target = record.x;
  if (!(word < static_cast<double>(__int_as_float(record.y)) * kTwo32)) {
    proposal = {low + record.z, record.w};
  }
}
__device__ __forceinline__ void choose_slot(const int4* edges, i64 low, u32 word,
                                            Proposal<i64>& proposal) {
  const int4 record = __ldg(edges + 2 * proposal.edge);
  proposal.target = join(record.x, record.y);
  if (!(word < static_cast<double>(__int_as_float(record.z)) * kTwo32)) {
    const int4 other = __ldg(edges + 2 * proposal.edge + 1);
    proposal = {low + record.w, join(other.x, other.y)};
  }
}

template <typename Id>
__device__ __forceinline__ Outcome propose_its(const Graph<Id>& graph, const Range& range, u64 wide,
                                               Proposal<Id>& proposal) {
  const double* prefix = graph.prefix + range.low;
  const double before = range.whole ? 0.0 : __ldg(prefix - 1);
  const double total = __ldg(prefix + range.count - 1) - before;
  if (!(total > 0.0)) return kNothing;
  const double passed = before + (wide >> 11) * 0x1p-53 * total;
  int place = count_below<true>(prefix, range.count, passed);
  if (place == range.count) --place;
  // Sums are rounded: never take an edge without weight.
  const float* weights = graph.weights + range.low;
  int with_weight = place;
  while (with_weight >= 0 && !(__ldg(weights + with_weight) > 0.0f)) --with_weight;
  if (with_weight < 0) {
    with_weight = place + 1;
    while (with_weight < range.count && !(__ldg(weights + with_weight) > 0.0f)) ++with_weight;
    if (with_weight == range.count) return kNothing;
  }
  proposal.edge = range.low + with_weight;
  proposal.target = __ldg(graph.indices + proposal.edge);
  return kTaken;
}

// One draw's proposal. For REJECTION, decide_exactly follows TRIALS failed draws.
template <int sampler, typename Id>
__device__ __forceinline__ Outcome propose(const Graph<Id>& graph, const Range& range,
                                           const uint4& words, Proposal<Id>& proposal) {
  const u64 wide = wide_word(words);
  if (sampler == kIts) return propose_its(graph, range, wide, proposal);
  proposal.edge = range.low + static_cast<i64>(__umul64hi(wide, static_cast<u64>(range.count)));
  if (sampler == kDirect) proposal.target = __ldg(graph.indices + proposal.edge);
  if (sampler == kAlias) choose_slot(graph.edges, range.low, words.z, proposal);
  if (sampler == kRejection) {
    const float weight = read_edge(graph.edges, proposal.edge, proposal.target);
    const double drawn = __dmul_rn(static_cast<double>(words.z), static_cast<double>(range.bound));
    if (!(drawn < __dmul_rn(static_cast<double>(weight), kTwo32))) return kAgain;
  }
  return kTaken;
}

// -- the exact decision ---------------------------------------------------------------------------

// Weights as integers, whose sums are exact in any order.
template <typename Id>
struct Shares {
  const int4* edges;
  i64 low;
  double scale;

  __device__ __forceinline__ u64 at(int place) const {
    const double weight = edge_weight(edges, low + place, Id());
    return __double2ull_rz(__dmul_rn(weight, scale));
  }
  // The sum over from .. to, by a warp.
  __device__ __forceinline__ u64 sum(int from, int to) const {
    u64 total = 0;
#pragma unroll 4
    for (int i = from + static_cast<int>(threadIdx.x % kLanes); i < to; i += kLanes) total += at(i);
    for (int apart = kLanes / 2; apart; apart /= 2) {
      total += __shfl_xor_sync(kAll, total, apart);
    }
    return total;
  }
};

// A whole warp decides for one of its lanes. Returns the edge, or -1 if all shares are 0.
template <typename Id>
__device__ __forceinline__ i64 decide_exactly(const int4* edges, i64 low, int count, float bound,
                                           u64 wide) {
  constexpr int kBlock = 1024;
  const int lane = threadIdx.x % kLanes;
  const i64 bits = 62 - (32 - __clz(count));
  const double power = __longlong_as_double((1023 + bits) << 52);
  const Shares<Id> shares = {edges, low, __ddiv_rn(power, static_cast<double>(bound))};
  const u64 total = shares.sum(0, count);
  if (total == 0) return -1;
  const u64 passed = __umul64hi(wide, total);
  u64 before = 0;
  for (int from = 0; from < count; from += kBlock) {
    const u64 block = shares.sum(from, count - from < kBlock ? count : from + kBlock);
    if (before + block <= passed) {
      before += block;
      continue;
    }
    for (int i = from; i < count; i += kLanes) {
      u64 running = i + lane < count ? shares.at(i + lane) : 0;
      for (int apart = 1; apart < kLanes; apart *= 2) {
        const u64 left = __shfl_up_sync(kAll, running, apart);
        if (lane >= apart) running += left;
      }
      const u32 past = __ballot_sync(kAll, before + running > passed);
      if (past) return low + i + __ffs(past) - 1;
      before += __shfl_sync(kAll, running, kLanes - 1);
    }
  }
  return -1;
}

// Decide for every lane of the warp that asks. Sets its proposal, edge -1 if there is none.
template <typename Id>
__device__ __forceinline__ void decide_together(const Graph<Id>& graph, bool asks,
                                                const Range& range, u64 wide,
                                                Proposal<Id>& proposal) {
  u32 asking = __ballot_sync(kAll, asks);
  while (asking) {
    const int who = __ffs(asking) - 1;
    asking &= asking - 1;
    const i64 edge = decide_exactly<Id>(
        graph.edges, __shfl_sync(kAll, range.low, who), __shfl_sync(kAll, range.count, who),
        __shfl_sync(kAll, range.bound, who), __shfl_sync(kAll, wide, who));
    if (static_cast<int>(threadIdx.x % kLanes) == who) {
      proposal.edge = edge;
      if (edge >= 0) read_edge(graph.edges, edge, proposal.target);
    }
  }
}

// -- judging --------------------------------------------------------------------------------------

enum Verdict { kRefused = 0, kAccepted = 1, kIfNear = 2, kIfFar = 3 };

// The decision on a candidate by the coin alone.
__device__ __forceinline__ Verdict judge_by_coin(const Rules& rules, u32 coin, bool leads_back) {
  const double drawn = __dmul_rn(static_cast<double>(coin), rules.largest_factor);
  if (leads_back) return drawn < rules.return_factor * kTwo32 ? kAccepted : kRefused;
  const bool near = drawn < kTwo32, far = drawn < rules.far_factor * kTwo32;
  if (near == far) return near ? kAccepted : kRefused;
  return near ? kIfNear : kIfFar;
}

// Is the candidate a neighbour of the previous node? Searches the shorter row if both can answer.
template <typename Id>
__device__ __forceinline__ bool is_near(const Graph<Id>& graph, bool symmetric, Id previous,
                                        const Row& of_previous, Id candidate,
                                        const Row& of_candidate) {
  const bool swap = symmetric && of_candidate.count < of_previous.count;
  return contains(graph.ascending, swap ? of_candidate.offset : of_previous.offset,
                  swap ? of_candidate.count : of_previous.count, swap ? previous : candidate);
}

}  // namespace penstock
