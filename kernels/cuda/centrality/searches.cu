// Brandes' betweenness of one large graph, from SOURCES sources at once, by the whole GPU.
//
// Values of a node for all sources lie side by side in a sector of memory, which an edge gathers. As
// in betweenness.cu, both passes gather level by level, and the sign of a value is the parity of its
// level: sums are the same in every run. A level is searched from its nodes, whose neighbours are
// marked, or if they are many from all nodes that are not found yet.
//
// instance: mark<int>
// instance: mark<long long>
// instance: count_paths<int>
// instance: count_paths<long long>
// instance: share_back<int>
// instance: share_back<long long>
#include "centrality/rows.cuh"

using penstock::ALL;
using penstock::over_rows;
using penstock::THREADS;
using penstock::WARPS;

constexpr int SOURCES = 4, SLOTS = 32 / SOURCES;
constexpr int LONGEST = 2048;  // edges of a row for one warp; a block takes longer ones

// Of a row's edges, add up the lane's source's values of a sign; the sum comes to all lanes of the
// source, of the block's first warp if all warps share the row.
template <typename Id>
__device__ __forceinline__ double gathered(const Id* indices, long long begin, long long end,
                                           int warp, int warps, const double* values,
                                           bool positive) {
  __shared__ double of_warps[WARPS][SOURCES];
  const int lane = threadIdx.x % 32, source = lane % SOURCES, slot = lane / SOURCES;
  double sum = 0;
  auto load = [&](long long e) { return e + lane < end ? __ldcs(indices + e + lane) : Id(0); };
  Id mine = load(begin + 32 * warp);
  for (long long e = begin + 32 * warp; e < end; e += 32 * warps) {
    const int many = static_cast<int>(min(32LL, end - e));
    const Id next = load(e + 32 * warps);  // on its way while values are gathered
    double value[SOURCES];
#pragma unroll
    for (int k = 0; k < SOURCES; ++k) {
      const int i = k * SLOTS + slot;
      const Id other = __shfl_sync(ALL, mine, i);
      value[k] = i < many ? values[static_cast<long long>(other) * SOURCES + source] : 0;
    }
#pragma unroll
    for (int k = 0; k < SOURCES; ++k)
      if (positive ? value[k] > 0 : value[k] < 0) sum += value[k];
    mine = next;
  }
  for (int step = SOURCES; step < 32; step *= 2) sum += __shfl_xor_sync(ALL, sum, step);
  if (warps > 1) {
    if (slot == 0) of_warps[warp][source] = sum;
    __syncthreads();
    if (warp == 0)
      for (int i = 1; i < WARPS; ++i) sum += of_warps[i][source];
    __syncthreads();  // before the next long row
  }
  return fabs(sum);
}

__device__ __forceinline__ bool any_is(const int4& its, int level) {
  return its.x == level || its.y == level || its.z == level || its.w == level;
}

// levels  (nodes, SOURCES) of each node from each source: UNSEEN, or below that for no source
// stamps  (nodes,) the last level in which a node was listed
// found   nodes that are first marked with `level`, in any order; size: their number
constexpr int UNSEEN = -1;

template <typename Id>
__global__ void __launch_bounds__(THREADS)
    mark(long long count, const long long* list, const long long* indptr, const Id* indices,
         int level, int* levels, int* stamps, long long* found, unsigned long long* size) {
  const int4* each = reinterpret_cast<const int4*>(levels);
  const int lane = threadIdx.x % 32;
  over_rows(
      count, list, indptr, LONGEST, [](long long) { return true; },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        const int4 own = each[row];
        for (long long e = begin + 32 * warp; e < end; e += 32 * warps) {
          bool first = false;
          long long other = 0;
          if (e + lane < end) {
            other = static_cast<long long>(__ldcs(indices + e + lane));
            const int4 its = each[other];
            bool fresh = false;
            auto reach = [&](int from, int to, int source) {
              if (from != level - 1 || to != UNSEEN) return;
              levels[other * SOURCES + source] = level;  // as do others that reach it
              fresh = true;
            };
            reach(own.x, its.x, 0);
            reach(own.y, its.y, 1);
            reach(own.z, its.z, 2);
            reach(own.w, its.w, 3);
            first = fresh && atomicExch(&stamps[other], level) != level;
          }
          const unsigned firsts = __ballot_sync(ALL, first);
          if (firsts == 0) continue;
          unsigned long long place = 0;
          if (lane == 0) place = atomicAdd(size, static_cast<unsigned long long>(__popc(firsts)));
          place = __shfl_sync(ALL, place, 0) + __popc(firsts & ((1u << lane) - 1));
          if (first) found[place] = other;
        }
      });
}

// Count the paths to nodes of `level`: those marked with it, or if not MARKED those that are unseen
// and have a neighbour of the level before.
//
// indptr, indices  edges into each node; out_indptr: of its edges out
// totals           added to: nodes found from each source, and edges out of the nodes
template <typename Id>
__global__ void __launch_bounds__(THREADS)
    count_paths(long long count, const long long* list, const long long* indptr,
                const Id* indices, const long long* out_indptr, int level, bool marked,
                int* levels, double* paths, unsigned long long* totals) {
  const int wanted = marked ? level : UNSEEN;
  const int lane = threadIdx.x % 32;
  unsigned long long reached = 0, edges = 0;
  over_rows(
      count, list, indptr, LONGEST,
      [&](long long row) { return any_is(reinterpret_cast<const int4*>(levels)[row], wanted); },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        const double sum = gathered(indices, begin, end, warp, warps, paths, level & 1);
        if (warp > 0) return;
        bool here = false;
        if (lane < SOURCES && sum > 0) {
          const long long cell = row * SOURCES + lane;
          here = levels[cell] == wanted;
          if (here) {
            levels[cell] = level;
            paths[cell] = level & 1 ? -sum : sum;
            ++reached;
          }
        }
        if (__any_sync(ALL, here) && lane == 0) edges += out_indptr[row + 1] - out_indptr[row];
      });
  if (reached) atomicAdd(&totals[lane], reached);
  if (edges) atomicAdd(&totals[SOURCES], edges);
}

// Share the dependencies of nodes of `level`: of each, (1 + dependency) / paths, and add the
// dependency to its sum, and 1 for each source if paths have `endpoints`.
//
// indptr, indices  edges out of each node
template <typename Id>
__global__ void __launch_bounds__(THREADS)
    share_back(long long count, const long long* list, const long long* indptr, const Id* indices,
               int level, bool deepest, bool endpoints, const int* levels, const double* paths,
               double* shares, double* sums) {
  const int lane = threadIdx.x % 32;
  over_rows(
      count, list, indptr, LONGEST,
      [&](long long row) { return any_is(reinterpret_cast<const int4*>(levels)[row], level); },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        const double sum = gathered(indices, begin, deepest ? begin : end, warp, warps, shares,
                                    level & 1);
        if (warp > 0) return;
        double added = 0;
        const long long cell = row * SOURCES + lane;
        if (lane < SOURCES && levels[cell] == level) {
          const double own = fabs(paths[cell]), share = 1 / own + sum;
          shares[cell] = level & 1 ? -share : share;
          added = own * sum + (endpoints ? 1.0 : 0.0);
        }
        for (int step = SOURCES / 2; step > 0; step /= 2)
          added += __shfl_xor_sync(ALL, added, step);
        if (lane == 0) sums[row] += added;
      });
}
