// Walks on one part of a graph, a thread each: names and meaning are naive/walk.py's.
#include "grid.cuh"
#include "walk/step.cuh"

// instance: advance_walkers<int, 0>
// instance: advance_walkers<int, 1>
// instance: advance_walkers<int, 2>
// instance: advance_walkers<int, 3>
// instance: advance_walkers<long long, 0>
// instance: advance_walkers<long long, 1>
// instance: advance_walkers<long long, 2>
// instance: advance_walkers<long long, 3>

using namespace penstock;

namespace {

// The rows of this part: walk_rules.Owned.
struct Owned {
  int rank;
  const int* assignment;
  const void* local;
  bool wide;  // local has 8 bytes each

  __device__ __forceinline__ bool has(i64 node) const { return __ldg(assignment + node) == rank; }
  __device__ __forceinline__ i64 row(i64 node) const {
    return wide ? __ldg(static_cast<const i64*>(local) + node)
                : static_cast<i64>(__ldg(static_cast<const int*>(local) + node));
  }
};

template <typename Id, int sampler>
struct Walker {
  const Graph<Id>& graph;
  const Rules& rules;
  const Owned& owned;
  const int length;
  const bool second_order;

  bool going;
  u64 walk;
  Id start, node, previous, candidate;
  u32 coin;
  int step, draw, to, trial;
  i64 now, then;
  Range range;
  Id* path;

  __device__ __forceinline__ void wait_for(int part) {
    going = false;
    to = part;
  }

  __device__ __forceinline__ void write(Id next) {
    path[step++] = node = next;
    draw = 0;
  }

  // Between two draws: judge the candidate, stop, restart, find candidates.
  __device__ __forceinline__ void prepare() {
    if (candidate >= 0) {
      bool accepted = true;
      if (second_order && previous >= 0) {
        const Verdict verdict = judge_by_coin(rules, coin, candidate == previous);
        accepted = verdict == kAccepted;
        if (verdict == kIfNear || verdict == kIfFar) {
          const bool here = owned.has(previous);
          if (!here && !(rules.symmetric && owned.has(candidate))) {
            return wait_for(__ldg(owned.assignment + previous));
          }
          const Row row = read_row(graph.adjacent, owned.row(here ? previous : candidate));
          const bool near =
              contains(graph.ascending, row.offset, row.count, here ? candidate : previous);
          accepted = near == (verdict == kIfNear);
        }
      }
      if (accepted) {
        previous = node;
        now = then;
        write(candidate);
      }
      candidate = -1;
    }
    if (!goes_on()) return wait_for(-1);
    const int part = __ldg(owned.assignment + node);
    if (part != owned.rank) return wait_for(part);
    range = candidates<true>(graph, rules, owned.row(node), step, now);
    trial = 0;
    if (range.count == 0) return wait_for(-1);
    if ((sampler == kRejection || sampler == kAlias) && range.bound == 0.0f) {
      coin = 0;
      wait_for(-1);
    }
  }

  __device__ __forceinline__ bool goes_on() {
    while (step < length) {
      if (draw > 0) return true;  // in the middle of a step: already checked
      const uint4 words = philox4x32(rules.seed, rules.stop_stream, counted(walk, step), 0);
      if (words.x < rules.stop_below) return false;
      if (!(words.y < rules.restart_below)) return true;
      previous = -1;
      now = kEarliest;
      write(start);
    }
    return false;
  }

  // One draw.
  __device__ __forceinline__ void round() {
    Proposal<Id> proposal = {-1, -1};
    Outcome outcome = kAgain;
    uint4 words = {0, 0, 0, 0};
    bool asks = false;
    if (going) {
      words = philox4x32(rules.seed, rules.step_stream, counted(walk, step), draw++);
      coin = words.w;
      asks = sampler == kRejection && trial == kTrials;
      if (!asks) outcome = propose<sampler>(graph, range, words, proposal);
      ++trial;
    }
    if (sampler == kRejection) {
      decide_together(graph, asks, range, wide_word(words), proposal);
      if (asks) outcome = proposal.edge < 0 ? kNothing : kTaken;
    }
    if (!going || outcome == kAgain) return;
    if (outcome == kNothing) return wait_for(-1);
    candidate = proposal.target;
    then = graph.times ? __ldg(graph.times + proposal.edge) : kEarliest;
    prepare();
  }
};

}  // namespace

template <typename Id, int sampler>
__launch_bounds__(256, 3) __global__
    void advance_walkers(const int4* rows, const int4* adjacent, const Id* ascending, const Id* indices,
                    const int4* edges, const float* weights, const double* prefix,
                    const i64* times, int groups, u64 seed, u32 step_stream, u32 stop_stream,
                    u64 stop_below, u64 restart_below, double return_factor, double far_factor,
                    double largest_factor, int symmetric, const int* schema, int schema_length,
                    int cyclic, int timed, i64 earliest, i64 latest, int length, int second_order,
                    int rank, const int* assignment, const void* local, int wide, i64 count,
                    const i64* walk, const i64* slot, const Id* start, Id* node, Id* previous,
                    Id* candidate, u32* coin, int* step, int* draw, i64* now, i64* then, int* to,
                    Id* paths) {
  const Graph<Id> graph = {rows,  adjacent, ascending, indices, edges,
                           weights, prefix,   times,     groups};
  const Rules rules = {seed,          step_stream, stop_stream,   stop_below,     restart_below,
                       return_factor, far_factor,  largest_factor, symmetric != 0, schema,
                       schema_length, cyclic != 0, timed != 0,    earliest,       latest};
  const Owned owned = {rank, assignment, local, wide != 0};
  const int lane = threadIdx.x % kLanes;
  for (i64 first = thread_number() - lane; first < count; first += thread_count()) {
    const i64 i = first + lane;
    const bool mine = i < count;
    Walker<Id, sampler> walker = {graph, rules, owned, length, second_order != 0};
    walker.going = mine;
    if (mine) {
      walker.walk = walk[i];
      walker.start = start[i];
      walker.node = node[i];
      walker.previous = previous[i];
      walker.candidate = candidate[i];
      walker.coin = coin[i];
      walker.step = step[i];
      walker.draw = draw[i];
      walker.now = now[i];
      walker.then = then[i];
      walker.path = paths + slot[i] * length;
      walker.prepare();
    }
    while (__any_sync(kAll, walker.going)) walker.round();
    if (!mine) continue;
    node[i] = walker.node;
    previous[i] = walker.previous;
    candidate[i] = walker.candidate;
    coin[i] = walker.coin;
    step[i] = walker.step;
    draw[i] = walker.draw;
    now[i] = walker.now;
    then[i] = walker.then;
    to[i] = walker.to;
  }
}
