// The walks of a block: a pool in shared memory, one step per turn, refilled from one counter.
#pragma once

#include "walk/reservoir_samplers.cuh"

namespace penstock {

constexpr int POOL = 256;  // at most; one thread each
constexpr int TRIALS = 32;                           // of walk_rules.py
constexpr i64 NEVER = -9223372036854775807ll - 1;    // earlier than any time
constexpr i64 WALK_ENDS = -1, UNDECIDED = -2;        // instead of an edge
constexpr i64 NONE_YET = -1, NONE_LEFT = -2;         // instead of a walk
constexpr int EXACT = 0, MIDDLE = 1, TINY = 2, LONG = 3, LISTS = 4;

// The walks to make.
template <typename Id>
struct Job {
  const int* schema;
  u64 seed;
  u32 step_stream, stop_stream;
  i64 stop_below, restart_below;
  i64 walks;
  int length, tiny_to, long_from;
  const i64* numbers;
  const Id* starts;
  u64* counter;
  Id* paths;

  __device__ __forceinline__ u64 which(i64 walk, int step) const {
    return static_cast<u64>(numbers[walk]) | static_cast<u64>(step) << 40;
  }
};

// The walks to sample for in a turn, by kind of row.
struct Queue {
  int sizes[LISTS], next, next_tiny;
  unsigned char slots[LISTS][POOL];
};

// The walks of a block, with the turn's draw, row and edge of each.
template <typename Id>
struct Pool {
  i64 walk[POOL], low[POOL], edge[POOL], now[POOL];
  u64 wide[POOL];
  u32 coin[POOL];
  int count[POOL], step[POOL], wanted[POOL];
  Id node[POOL], previous[POOL];
  Queue queues[2];
  // for the places of the list of long rows: the first that has the same row, whether others do
  unsigned char leader[POOL];
  bool shared[POOL];
};

// A number unique among threads.
__device__ __forceinline__ u64 take_number(u64* counter) {
  const u32 together = __activemask(), lane = threadIdx.x % 32;
  const int first = __ffs(together) - 1;
  u64 number = 0;
  if (lane == first) number = atomicAdd(counter, static_cast<u64>(__popc(together)));
  return __shfl_sync(together, number, first) + __popc(together & ((1u << lane) - 1));
}

// Move a walk to its edge's target, or start others until one has a row to choose from, and draw
// for it. False: no walk is left.
template <typename Id, int Kind, int Method>
__device__ __forceinline__ bool advance(const Graph<Id>& graph, const Job<Id>& job, Pool<Id>& pool,
                                        Queue& queue, int slot) {
  i64 walk = pool.walk[slot];
  if (walk == NONE_LEFT) return false;
  if (walk >= 0 && pool.edge[slot] == UNDECIDED) {
    queue.slots[EXACT][atomicAdd(&queue.sizes[EXACT], 1)] = slot;
    return true;
  }
  Id node = pool.node[slot], previous = node;
  i64 now = pool.now[slot];
  int step = pool.step[slot];
  bool walks_on = walk >= 0 && pool.edge[slot] >= 0;
  if (walks_on) {
    const i64 edge = pool.edge[slot];
    node = graph.indices[edge];
    if (graph.times) now = graph.times[edge];
    job.paths[walk * job.length + step++] = node;
  }
  i64 low;
  int count, wanted = 0;
  for (;; walks_on = false) {
    if (!walks_on) {
      walk = static_cast<i64>(take_number(job.counter));
      if (walk >= job.walks) {
        pool.walk[slot] = NONE_LEFT;
        return false;
      }
      node = job.starts[walk];
      previous = -1;
      now = NEVER;
      step = 1;
      job.paths[walk * job.length] = node;
    }
    bool stops = false;
    if (job.stop_below > 0 || job.restart_below > 0) {
      for (; step < job.length; ++step) {
        const uint4 words = philox4x32(job.seed, job.stop_stream, job.which(walk, step), 0);
        stops = words.x < job.stop_below;
        if (stops || words.y >= job.restart_below) break;
        node = job.starts[walk];
        previous = -1;
        now = NEVER;
        job.paths[walk * job.length + step] = node;
      }
    }
    if (stops || step >= job.length) continue;
    if (graph.schema_length) {
      if (step > graph.schema_length && !(graph.flags & CYCLIC)) continue;
      wanted = job.schema[(step - 1) % graph.schema_length];
    }
    low = graph.indptr[node];
    count = static_cast<int>(graph.indptr[node + 1] - low);
    if (count) break;
  }
  const uint4 words = philox4x32(job.seed, job.step_stream, job.which(walk, step), 0);
  pool.walk[slot] = walk;
  pool.node[slot] = node;
  pool.previous[slot] = previous;
  pool.now[slot] = now;
  pool.step[slot] = step;
  pool.low[slot] = low;
  pool.count[slot] = count;
  pool.wanted[slot] = wanted;
  pool.wide[slot] = wide_of(words);
  pool.coin[slot] = words.w;
  const bool alike = Method == LANES && Kind == PLAIN && !graph.weights;
  if (alike && (previous < 0 || !(graph.flags & JUDGED))) {
    pool.edge[slot] = low + static_cast<i64>(__umul64hi(wide_of(words), count));
    return true;
  }
  const bool tiny = Method == LANES && count <= job.tiny_to;
  const int list = tiny ? TINY : alike || count < job.long_from ? MIDDLE : LONG;
  queue.slots[list][atomicAdd(&queue.sizes[list], 1)] = slot;
  return true;
}

template <int Kind, typename Id>
__device__ __forceinline__ Candidates<Id, Kind> candidates_of(const Graph<Id>& graph,
                                                              const Pool<Id>& pool, int slot,
                                                              bool factors) {
  const i64 now = pool.now[slot];
  const bool later = graph.flags & TIMED && now > graph.earliest;
  return {graph,           pool.low[slot],      pool.count[slot],
          pool.wanted[slot], pool.step[slot],     pool.previous[slot],
          later ? now : graph.earliest, factors};
}

}  // namespace penstock
