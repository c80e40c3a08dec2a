// Walks whose steps read the whole row: FlowWalker's blocks, with other samplers.
//
// A block keeps a pool of walks in shared memory; each takes one step per turn; the block refills
// it from one counter. A turn: each thread moves a walk to its current node and draws for it; warps
// sample from short rows, eight lanes from the shortest; then all threads together add up one long
// row after another, and a warp picks for each walk on that row, while the others continue with the
// next.
#include "walk/reservoir_pool.cuh"

// instance: walk_reservoir<int, 0, 0>
// instance: walk_reservoir<int, 1, 0>
// instance: walk_reservoir<int, 2, 0>
// instance: walk_reservoir<int, 0, 1>
// instance: walk_reservoir<int, 1, 1>
// instance: walk_reservoir<int, 2, 1>
// instance: walk_reservoir<int, 0, 2>
// instance: walk_reservoir<int, 1, 2>
// instance: walk_reservoir<int, 2, 2>
// instance: walk_reservoir<long long, 0, 0>
// instance: walk_reservoir<long long, 1, 0>
// instance: walk_reservoir<long long, 2, 0>
// instance: walk_reservoir<long long, 0, 1>
// instance: walk_reservoir<long long, 1, 1>
// instance: walk_reservoir<long long, 2, 1>
// instance: walk_reservoir<long long, 0, 2>
// instance: walk_reservoir<long long, 1, 2>
// instance: walk_reservoir<long long, 2, 2>

using namespace penstock;

#ifndef RESIDENT_BLOCKS  // per multiprocessor; for experiments
#define RESIDENT_BLOCKS 4
#endif

// The block's sums over a long row; double, so that warps may pick while others add.
struct Sums {
  double own[2][THREADS], inclusive[2][THREADS];
  double of_warps[WARPS];
  i64 last_of_warps[WARPS];
};

// Whether ascending ``row`` holds an id: lanes compare places evenly apart, in rounds.
template <int Width, typename Id>
__device__ __forceinline__ bool holds(const Graph<Id>& graph, Id row, Id id) {
  const Lanes<Width> lanes;
  i64 low = graph.near_indptr[row], high = graph.near_indptr[row + 1];
  while (high - low > Width) {
    const i64 apart = (high - low + Width - 1) / Width, place = low + (lanes.rank() + 1) * apart - 1;
    const int below = __popc(lanes.votes(place < high && graph.near_indices[place] < id));
    low += below * apart;
    high = low + apart < high ? low + apart : high;
  }
  const i64 place = low + lanes.rank();
  return lanes.votes(place < high && graph.near_indices[place] == id);
}

// Whether a second-order walk takes a proposal.
template <int Width, typename Id>
__device__ __forceinline__ bool judge(const Graph<Id>& graph, Id previous, Id target, u32 coin) {
  constexpr double ALL = 4294967296.0;
  const double low = graph.far_factor < 1 ? graph.far_factor : 1;
  const double high = graph.far_factor < 1 ? 1 : graph.far_factor;
  const double height = coin * (high > graph.return_factor ? high : graph.return_factor);
  if (target == previous) return height < graph.return_factor * ALL;
  if (height < low * ALL) return true;
  if (height >= high * ALL) return false;
  Id row = previous, id = target;
  if (graph.flags & SYMMETRIC) {
    const i64 here = graph.near_indptr[row + 1] - graph.near_indptr[row];
    if (graph.near_indptr[id + 1] - graph.near_indptr[id] < here) {
      row = target;
      id = previous;
    }
  }
  return height < (holds<Width>(graph, row, id) ? 1 : graph.far_factor) * ALL;
}

// The edge of one of ``propose``'s proposals for a draw.
template <int Width, typename Id, typename Propose>
__device__ __forceinline__ i64 judged(const Graph<Id>& graph, const Job<Id>& job,
                                      const Pool<Id>& pool, int slot, const Propose& propose) {
  const Id previous = pool.previous[slot];
  u64 wide = pool.wide[slot];
  u32 coin = pool.coin[slot];
  for (int n = 1;; ++n) {
    const i64 edge = propose(wide);
    if (edge < 0 || previous < 0 || !(graph.flags & JUDGED)) return edge;
    if (judge<Width>(graph, previous, graph.indices[edge], coin)) return edge;
    if (n == TRIALS) return UNDECIDED;
    const u64 which = job.which(pool.walk[slot], pool.step[slot]);
    const uint4 words = philox4x32(job.seed, job.step_stream, which, n);
    wide = wide_of(words);
    coin = words.w;
  }
}

// A step made by some lanes.
template <int Width, int Kind, int Method, typename Id>
__device__ __forceinline__ void short_row(const Graph<Id>& graph, const Job<Id>& job, Pool<Id>& pool,
                                          int slot) {
  const Lanes<Width> lanes;
  const auto candidates = candidates_of<Kind>(graph, pool, slot, graph.flags & FACTORS);
  i64 edge;
  if constexpr (Method == LANES) {
    const bool alike = Kind == PLAIN && !graph.weights;
    const int fours = candidates.fours();
    const double own = alike ? 0 : sum_of<Width == 8 ? 1 : AT_ONCE_OF[Kind]>(candidates, 0, 1, fours, lanes.rank(), Width);
    const double inclusive = lanes.inclusive(own), total = lanes.from(inclusive, Width - 1);
    edge = judged<Width>(graph, job, pool, slot, [&](u64 wide) -> i64 {
      if (alike) return candidates.low + static_cast<i64>(__umul64hi(wide, candidates.count));
      double goal = unit(wide) * total;
      const int lane = lane_of<Width>(own, inclusive, goal);
      if (lane < 0) return WALK_ENDS;
      return descend<Width>(candidates, lane, Width, (fours - lane + Width - 1) / Width, goal);
    });
  } else {
    const u64 which = job.which(pool.walk[slot], pool.step[slot]);
    edge = sample<Method>(lanes, candidates, Draws{job.seed, which, job.step_stream});
  }
  if (lanes.rank() == 0) pool.edge[slot] = edge;
}

// A step with TRIALS rejected proposals: every factor becomes part of its weight.
template <typename Id>
__device__ __forceinline__ void exact_row(const Graph<Id>& graph, const Job<Id>& job, Pool<Id>& pool,
                                          int slot) {
  const Lanes<32> lanes;
  const auto candidates = candidates_of<GENERAL>(graph, pool, slot, true);
  const u64 which = job.which(pool.walk[slot], pool.step[slot]);
  const uint4 words = philox4x32(job.seed, job.step_stream, which, TRIALS);
  const int fours = candidates.fours();
  const double own = sum_of<1>(candidates, 0, 1, fours, lanes.rank(), 32);
  const double inclusive = lanes.inclusive(own);
  double goal = unit(wide_of(words)) * lanes.from(inclusive, 31);
  const int lane = lane_of<32>(own, inclusive, goal);
  const i64 edge =
      lane < 0 ? WALK_ENDS : descend<32>(candidates, lane, 32, (fours - lane + 31) / 32, goal);
  if (lanes.rank() == 0) pool.edge[slot] = edge;
}

// A warp picks for one walk from the candidates of the whole block in its row.
template <int Kind, typename Id>
__device__ __forceinline__ void pick_of_long_row(const Graph<Id>& graph, const Job<Id>& job,
                                                 Pool<Id>& pool, int slot,
                                                 const double (&own)[THREADS],
                                                 const double (&inclusive)[THREADS]) {
  const Lanes<32> lanes;
  const auto candidates = candidates_of<Kind>(graph, pool, slot, graph.flags & FACTORS);
  const int fours = candidates.fours();
  const double of_warp = lanes.rank() < WARPS ? inclusive[lanes.rank() * 32 + 31] : 0;
  const double up_to_warp = lanes.inclusive(of_warp), total = lanes.from(up_to_warp, 31);
  const i64 edge = judged<32>(graph, job, pool, slot, [&](u64 wide) -> i64 {
    double goal = unit(wide) * total;
    const int warp = lane_of<32>(of_warp, up_to_warp, goal);
    if (warp < 0) return WALK_ENDS;
    const int first = warp * 32 + lanes.rank();
    const int lane = lane_of<32>(own[first], inclusive[first], goal);
    if (lane < 0) return WALK_ENDS;
    const int thread = warp * 32 + lane;
    return descend<32>(candidates, thread, THREADS, (fours - thread + THREADS - 1) / THREADS, goal);
  });
  if (lanes.rank() == 0) pool.edge[slot] = edge;
}

// Walks at the same row share its sums.
template <int Kind, typename Id>
__device__ __forceinline__ void find_leaders(Pool<Id>& pool, const Queue& queue) {
  const int place = threadIdx.x;
  if (place >= queue.sizes[LONG]) return;
  const int slot = queue.slots[LONG][place];
  int leader = place;
  for (int other = 0; Kind != GENERAL && other < place; ++other) {
    const int theirs = queue.slots[LONG][other];
    if (pool.low[theirs] == pool.low[slot] && pool.wanted[theirs] == pool.wanted[slot]) {
      leader = other;
      pool.shared[leader] = true;
      break;
    }
  }
  pool.leader[place] = leader;
}

template <typename Id, int Kind, int Method>
__device__ __forceinline__ void short_rows(const Graph<Id>& graph, const Job<Id>& job,
                                           Pool<Id>& pool, Queue& queue) {
  const int lane = threadIdx.x % 32;
  const auto fetch = [lane](int& next, int count) {
    int place = 0;
    if (lane == 0) place = atomicAdd(&next, count);
    return __shfl_sync(~0u, place, 0);
  };
  const int exact = queue.sizes[EXACT], middle = queue.sizes[MIDDLE], tiny = queue.sizes[TINY];
  for (int place; (place = fetch(queue.next, 1)) < exact + middle;) {
    if constexpr (Method == LANES && !PENSTOCK_EXPRESSION) {
      if (place < exact) {
        exact_row(graph, job, pool, queue.slots[EXACT][place]);
        continue;
      }
    }
    short_row<32, Kind, Method>(graph, job, pool, queue.slots[MIDDLE][place - exact]);
  }
  if constexpr (Method == LANES) {
    for (int place; (place = fetch(queue.next_tiny, 4)) < tiny;) {
      place += lane / 8;
      if (place < tiny) short_row<8, Kind, Method>(graph, job, pool, queue.slots[TINY][place]);
      __syncwarp();
    }
  }
}

template <typename Id, int Kind, int Method>
__device__ __forceinline__ void long_rows(const Graph<Id>& graph, const Job<Id>& job,
                                          Pool<Id>& pool, const Queue& queue, Sums& sums) {
  const int warp = threadIdx.x / 32, rows = queue.sizes[LONG];
  int half = 0;
  for (int place = 0; place < rows; ++place) {
    const int slot = queue.slots[LONG][place];
    if constexpr (Method == LANES) {
      if (pool.leader[place] != place) continue;
      half ^= 1;
      const auto candidates = candidates_of<Kind>(graph, pool, slot, graph.flags & FACTORS);
      const double own = sum_of<AT_ONCE_OF[Kind]>(candidates, 0, 1, candidates.fours(),
                                                  threadIdx.x, THREADS);
      sums.own[half][threadIdx.x] = own;
      sums.inclusive[half][threadIdx.x] = Lanes<32>().inclusive(own);
      __syncthreads();
      const int end = pool.shared[place] ? rows : place + 1;
      for (int walk = place + ((warp - place) & (WARPS - 1)); walk < end; walk += WARPS) {
        if (pool.leader[walk] != place) continue;
        pick_of_long_row<Kind>(graph, job, pool, queue.slots[LONG][walk], sums.own[half],
                               sums.inclusive[half]);
      }
    } else {
      const auto candidates = candidates_of<Kind>(graph, pool, slot, graph.flags & FACTORS);
      const u64 which = job.which(pool.walk[slot], pool.step[slot]);
      const i64 edge = sample<Method>(Block{sums.of_warps, sums.last_of_warps}, candidates,
                                      Draws{job.seed, which, job.step_stream});
      if (threadIdx.x == 0) pool.edge[slot] = edge;
    }
  }
}

template <typename Id, int Kind, int Method>
__launch_bounds__(THREADS, RESIDENT_BLOCKS) __global__ void
    walk_reservoir(const i64* indptr, const Id* indices, const float* weights, const int* relations,
                   const i64* times, const i64* near_indptr, const Id* near_indices,
                   const int* degrees, const int* labels, i64 edges, i64 earliest, i64 latest,
                   double return_factor, double far_factor, int flags, const int* schema,
                   int schema_length, u64 seed, u32 step_stream, u32 stop_stream, i64 stop_below,
                   i64 restart_below, const i64* numbers, const Id* starts, i64 walks, int length,
                   int slots, int tiny_to, int long_from, u64* counter, Id* paths) {
  const Graph<Id> graph{indptr,       indices, weights, relations, times,    near_indptr,
                        near_indices, degrees, labels,  edges,     earliest, latest,
                        return_factor, far_factor, flags, schema_length};
  const Job<Id> job{schema, seed,   step_stream, stop_stream, stop_below, restart_below, walks,
                    length, tiny_to, long_from,   numbers,     starts,     counter,       paths};
  __shared__ Pool<Id> pool;
  __shared__ Sums sums;
  if (threadIdx.x < POOL) pool.walk[threadIdx.x] = NONE_YET;
  if (threadIdx.x == 0) pool.queues[0] = pool.queues[1] = Queue{};
  __syncthreads();
  for (int turn = 0;; turn ^= 1) {
    Queue& queue = pool.queues[turn];
    bool walks_on = false;
    if (threadIdx.x < POOL) pool.shared[threadIdx.x] = false;
    if (threadIdx.x < slots) {
      walks_on = advance<Id, Kind, Method>(graph, job, pool, queue, threadIdx.x);
    }
    if (!__syncthreads_or(walks_on)) break;
    if (threadIdx.x < LISTS) pool.queues[turn ^ 1].sizes[threadIdx.x] = 0;
    if (threadIdx.x == 0) pool.queues[turn ^ 1].next = pool.queues[turn ^ 1].next_tiny = 0;
    find_leaders<Kind>(pool, queue);
    short_rows<Id, Kind, Method>(graph, job, pool, queue);
    __syncthreads();
    long_rows<Id, Kind, Method>(graph, job, pool, queue, sums);
    __syncthreads();
  }
}
