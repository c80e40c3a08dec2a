// Walks, one per thread. A warp's lanes go through one loop with one draw each per round, so that a
// lane that takes its first proposal does not wait for those that need several; a lane whose walk
// has ended takes the next one, so that walks may differ in length.
#include "walk/step.cuh"

// instance: walk_plain<int, 0, false>
// instance: walk_plain<int, 0, true>
// instance: walk_plain<int, 1, false>
// instance: walk_plain<int, 1, true>
// instance: walk_plain<int, 3, false>
// instance: walk_plain<int, 3, true>
// instance: walk_general<int, 0, false>
// instance: walk_general<int, 0, true>
// instance: walk_general<int, 1, false>
// instance: walk_general<int, 1, true>
// instance: walk_general<int, 2, false>
// instance: walk_general<int, 2, true>
// instance: walk_general<int, 3, false>
// instance: walk_general<int, 3, true>
// instance: walk_general<long long, 0, false>
// instance: walk_general<long long, 0, true>
// instance: walk_general<long long, 1, false>
// instance: walk_general<long long, 1, true>
// instance: walk_general<long long, 2, false>
// instance: walk_general<long long, 2, true>
// instance: walk_general<long long, 3, false>
// instance: walk_general<long long, 3, true>

using namespace penstock;

namespace {

constexpr int kIdle = 8;  // lanes without a walk from which a warp fetches new ones

// Nodes are written to a path four at a time if they have 4 bytes, else one by one.
template <typename Id>
struct Path {
  Id* nodes;
  __device__ __forceinline__ void put(int place, Id node, bool) { nodes[place] = node; }
  __device__ __forceinline__ void end(int, bool) {}
};

template <>
struct Path<int> {
  int* nodes;
  int4 held;
  __device__ __forceinline__ void put(int place, int node, bool fours) {
    if (!fours) {
      nodes[place] = node;
      return;
    }
    const int slot = place & 3;
    if (slot == 0) held = make_int4(node, -1, -1, -1);
    if (slot == 1) held.y = node;
    if (slot == 2) held.z = node;
    if (slot == 3) {
      held.w = node;
      *reinterpret_cast<int4*>(nodes + place - 3) = held;
    }
  }
  __device__ __forceinline__ void end(int count, bool fours) {
    if (fours && (count & 3)) *reinterpret_cast<int4*>(nodes + (count & ~3)) = held;
  }
};

template <typename Id, int sampler, bool SecondOrder, bool General>
struct Walker {
  const Graph<Id>& graph;
  const Rules& rules;
  const int length;
  const bool fours;

  bool walking;
  u64 walk;
  Id start, node, previous;  // previous: -1 if there is none
  int step, draw, trial;
  i64 now;
  Range range;
  Row of_previous;
  Path<Id> path;

  __device__ __forceinline__ void begin(u64 number, Id first, Id* nodes) {
    walk = number;
    start = node = first;
    previous = -1;
    now = kEarliest;
    step = 1;
    walking = true;
    path.nodes = nodes;
    path.put(0, first, fours);
    prepare();
  }

  __device__ __forceinline__ void end() {
    walking = false;
    path.end(step, fours);
  }

  // At a node: whether the walk continues, and its candidates.
  __device__ __forceinline__ void prepare() {
    if (General && (rules.stop_below | rules.restart_below)) {
      while (step < length) {
        const uint4 words = philox4x32(rules.seed, rules.stop_stream, counted(walk, step), 0);
        if (words.x < rules.stop_below) return end();
        if (!(words.y < rules.restart_below)) break;
        path.put(step++, start, fours);
        node = start;
        previous = -1;
        now = kEarliest;
      }
    }
    if (step >= length) return end();
    range = candidates<General>(graph, rules, node, step, now);
    settle();
  }

  __device__ __forceinline__ void settle() {
    draw = trial = 0;
    const bool weightless = (sampler == kRejection || sampler == kAlias) && range.bound == 0.0f;
    if (range.count == 0 || weightless) end();
  }

  // One draw.
  __device__ __forceinline__ void round() {
    Proposal<Id> proposal = {-1, -1};
    Outcome outcome = kAgain;
    uint4 words = {0, 0, 0, 0};
    bool asks = false;
    if (walking) {
      words = philox4x32(rules.seed, rules.step_stream, counted(walk, step), draw);
      ++draw;
      asks = sampler == kRejection && (SecondOrder ? trial : draw - 1) == kTrials;
      if (!asks) outcome = propose<sampler>(graph, range, words, proposal);
      ++trial;
    }
    if (sampler == kRejection) {
      decide_together(graph, asks, range, wide_word(words), proposal);
      if (asks) outcome = proposal.edge < 0 ? kNothing : kTaken;
    }
    if (!walking || outcome == kAgain) return;
    if (outcome == kNothing) return end();
    if (SecondOrder) return judge(proposal, words.w);
    move(proposal);
    prepare();
  }

  __device__ __forceinline__ void judge(const Proposal<Id>& proposal, u32 coin) {
    Row of_candidate;
    bool known = false, accepted = true;
    if (previous >= 0) {
      const Verdict verdict = judge_by_coin(rules, coin, proposal.target == previous);
      accepted = verdict == kAccepted;
      if (verdict == kIfNear || verdict == kIfFar) {
        if (General) of_previous = read_row(graph.adjacent, previous);
        of_candidate = of_previous;
        if (!General || rules.symmetric) {
          of_candidate = read_row(graph.adjacent, proposal.target);
          known = true;
        }
        accepted = is_near(graph, rules.symmetric, previous, of_previous, proposal.target,
                           of_candidate) == (verdict == kIfNear);
      }
    }
    trial = 0;
    if (!accepted) return;
    of_previous = {range.low, range.count, range.bound};
    move(proposal);
    // The next step's row is the one that was just read.
    if (General || !known) return prepare();
    if (step >= length) return end();
    range = {of_candidate.offset, of_candidate.count, of_candidate.bound, true};
    settle();
  }

  __device__ __forceinline__ void move(const Proposal<Id>& proposal) {
    previous = node;
    node = proposal.target;
    if (General && graph.times) now = __ldg(graph.times + proposal.edge);
    path.put(step++, node, fours);
  }
};

// The grid takes walks from a counter, each warp one per lane.
template <int sampler, bool SecondOrder, bool General, typename Id>
__device__ __forceinline__ void walk_all(const Graph<Id>& graph, const Rules& rules, int length,
                                         u32 walks, const i64* __restrict__ numbers,
                                         const Id* __restrict__ starts, u64* counter, Id* paths) {
  const int lane = threadIdx.x % kLanes;
  const bool fours =
      sizeof(Id) == 4 && length % 4 == 0 && (reinterpret_cast<u64>(paths) & 15) == 0;
  Walker<Id, sampler, SecondOrder, General> walker = {graph, rules, length, fours};
  walker.walking = false;
  u32 next = 0, limit = 0;  // the warp's own share; a launch has fewer than 2**31 walks
  for (;;) {
    const u32 idle = __ballot_sync(kAll, !walker.walking);
    if (__popc(idle) >= kIdle) {
      if (next == limit && limit < walks) {
        u64 first = lane == 0 ? atomicAdd(counter, static_cast<u64>(kLanes)) : 0;
        first = __shfl_sync(kAll, first, 0);
        next = first < walks ? static_cast<u32>(first) : walks;
        limit = next + kLanes < walks ? next + kLanes : walks;
      }
      if (next == limit) {
        if (idle == kAll) return;
      } else {
        const u32 mine = next + __popc(idle & ((1u << lane) - 1));
        if (!walker.walking && mine < limit) {
          walker.begin(__ldg(numbers + mine), __ldg(starts + mine),
                       paths + static_cast<i64>(mine) * length);
        }
        next = next + __popc(idle) < limit ? next + __popc(idle) : limit;
      }
    }
    walker.round();
  }
}

}  // namespace

// Steps that need nothing but the row of the node: no stop, no schema, no times, rows that ascend.
template <typename Id, int sampler, bool SecondOrder>
__launch_bounds__(256, (sampler == kRejection ? 5 : 6) - SecondOrder) __global__
    void walk_plain(const int4* rows, const int4* adjacent, const Id* ascending, const Id* indices,
               const int4* edges, const float* weights, const double* prefix, const i64* times,
               int groups, u64 seed, u32 step_stream, u32 stop_stream, u64 stop_below,
               u64 restart_below, double return_factor, double far_factor, double largest_factor,
               int symmetric, const int* schema, int schema_length, int cyclic, int timed,
               i64 earliest, i64 latest, int length, u32 walks, const i64* numbers,
               const Id* starts, u64* counter, Id* paths) {
  const Graph<Id> graph = {rows, rows, indices, indices, edges, nullptr, nullptr, nullptr, 1};
  const Rules rules = {seed,       step_stream,    stop_stream,    0, 0, return_factor,
                       far_factor, largest_factor, symmetric != 0, nullptr, 0,
                       false,      false,          0,              0};
  walk_all<sampler, SecondOrder, false>(graph, rules, length, walks, numbers, starts, counter,
                                        paths);
}

template <typename Id, int sampler, bool SecondOrder>
__launch_bounds__(256, 4) __global__
    void walk_general(const int4* rows, const int4* adjacent, const Id* ascending, const Id* indices,
                 const int4* edges, const float* weights, const double* prefix, const i64* times,
                 int groups, u64 seed, u32 step_stream, u32 stop_stream, u64 stop_below,
                 u64 restart_below, double return_factor, double far_factor, double largest_factor,
                 int symmetric, const int* schema, int schema_length, int cyclic, int timed,
                 i64 earliest, i64 latest, int length, u32 walks, const i64* numbers,
                 const Id* starts, u64* counter, Id* paths) {
  const Graph<Id> graph = {rows,  adjacent, ascending, indices, edges,
                           weights, prefix,   times,     groups};
  const Rules rules = {seed,          step_stream, stop_stream,   stop_below,     restart_below,
                       return_factor, far_factor,  largest_factor, symmetric != 0, schema,
                       schema_length, cyclic != 0, timed != 0,    earliest,       latest};
  walk_all<sampler, SecondOrder, true>(graph, rules, length, walks, numbers, starts, counter,
                                       paths);
}
