// Triangles of symmetric graphs: each is found once, from its node of the lowest degree.
//
// As in cpu/centrality/triangles.py, edges lead to the node of the higher degree, which leaves few at
// each node. A warp or a block has those of a node in shared memory, ascending, looks up the ends of
// its neighbours' edges there, and counts what it finds of each.
//
// instance: count_higher<int, false>
// instance: count_higher<int, true>
// instance: count_higher<long long, false>
// instance: direct<int, false>
// instance: direct<int, true>
// instance: direct<long long, false>
// instance: add_triangles<int, false>
// instance: add_triangles<int, true>
// instance: add_triangles<long long, false>
#include "centrality/rows.cuh"

using penstock::ALL;
using penstock::over_rows;
using penstock::THREADS;
using penstock::WARPS;

constexpr int LONGEST = 256;           // edges of a node for one warp
constexpr int HELD = WARPS * LONGEST;  // edges of a node that a block holds at a time
constexpr int LONGEST_TO_READ = 2048;  // as LONGEST, of rows that are only read

template <typename Id>
__device__ __forceinline__ bool is_higher(const long long* indptr, long long node, Id other) {
  const long long here = indptr[node + 1] - indptr[node], there = indptr[other + 1] - indptr[other];
  return here < there || (here == there && node < other);
}

__device__ __forceinline__ void add(long long* to, long long more) {
  if (more) atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(more));
}

__device__ __forceinline__ long long over_warp(long long sum) {
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(ALL, sum, half);
  return sum;
}

// multiplicities  of edges, which have no items unless SEVERAL: then all are 1
// counts          edges of each node to higher ones; these three are 0 before
template <typename Id, bool SEVERAL>
__global__ void __launch_bounds__(THREADS)
    count_higher(long long nodes, const long long* indptr, const Id* indices,
                 const signed char* multiplicities, long long* counts, long long* degree,
                 long long* mutual) {
  const int lane = threadIdx.x % 32;
  over_rows(
      nodes, nullptr, indptr, LONGEST_TO_READ, [](long long) { return true; },
      [&](long long node, long long begin, long long end, int warp, int warps) {
        long long edges = 0, both = 0, higher = 0;
        for (long long e = begin + 32 * warp + lane; e < end; e += 32 * warps) {
          const Id other = indices[e];
          if (other == node) continue;
          const int times = SEVERAL ? multiplicities[e] : 1;
          edges += times;
          both += times == 2;
          higher += is_higher(indptr, node, other);
        }
        edges = over_warp(edges), both = over_warp(both), higher = over_warp(higher);
        if (lane == 0) add(&degree[node], edges), add(&mutual[node], both), add(&counts[node], higher);
      });
}

// Write the edges to higher nodes, in their order.
template <typename Id, bool SEVERAL>
__global__ void __launch_bounds__(THREADS)
    direct(long long nodes, const long long* indptr, const Id* indices,
           const signed char* multiplicities, const long long* starts, Id* ends,
           signed char* times) {
  __shared__ long long of_warps[WARPS];
  const int lane = threadIdx.x % 32;
  over_rows(
      nodes, nullptr, indptr, LONGEST_TO_READ,
      [&](long long node) { return starts[node + 1] > starts[node]; },
      [&](long long node, long long begin, long long end, int warp, int warps) {
        const long long each = (end - begin + 32 * warps - 1) / (32 * warps) * 32;
        const long long first = min(end, begin + warp * each), last = min(end, first + each);
        auto chosen = [&](long long e) {
          return e < last && indices[e] != node && is_higher(indptr, node, indices[e]);
        };
        long long at = starts[node];
        if (warps > 1) {
          long long count = 0;
          for (long long e = first + lane; e < last; e += 32) count += chosen(e);
          count = over_warp(count);
          if (lane == 0) of_warps[warp] = count;
          __syncthreads();
          for (int i = 0; i < warp; ++i) at += of_warps[i];
        }
        for (long long e = first + lane; e - lane < last; e += 32) {
          const bool mine = chosen(e);
          const unsigned all = __ballot_sync(ALL, mine);
          if (mine) {
            const long long place = at + __popc(all & ((1u << lane) - 1));
            ends[place] = indices[e];
            if (SEVERAL) times[place] = multiplicities[e];
          }
          at += __popc(all);
        }
        if (warps > 1) __syncthreads();  // before the next long row
      });
}

// Add the triangles of each node's edges to higher ones to all three nodes, each as often as the
// product of its edges' multiplicities.
template <typename Id, bool SEVERAL>
__global__ void __launch_bounds__(THREADS)
    add_triangles(long long nodes, const long long* starts, const Id* ends, const signed char* times,
                  long long* closed) {
  __shared__ Id held[HELD];
  __shared__ int found[HELD];
  const int lane = threadIdx.x % 32;
  over_rows<true>(
      nodes, nullptr, starts, LONGEST,
      [&](long long node) { return starts[node + 1] - starts[node] > 1; },
      [&](long long node, long long begin, long long end, int warp, int warps) {
        const int most = warps > 1 ? HELD : LONGEST;
        Id* const its = held + (warps > 1 ? 0 : threadIdx.x / 32 * LONGEST);
        int* const count = found + (its - held);
        auto meet = [&] { if (warps > 1) __syncthreads(); else __syncwarp(); };
        long long of_node = 0;
        for (long long first = begin; first < end; first += most) {
          const int many = static_cast<int>(min(static_cast<long long>(most), end - first));
          for (int i = 32 * warp + lane; i < many; i += 32 * warps)
            its[i] = ends[first + i], count[i] = 0;
          meet();
          for (long long e = begin + warp; e < end; e += warps) {
            const Id other = ends[e];
            const long long last = starts[other + 1];
            long long together = 0;
            for (long long f = starts[other] + lane; f < last; f += 32) {
              const Id third = ends[f];
              int low = 0, high = many;  // the first not below `third`
              while (low < high) {
                const int middle = (low + high) / 2;
                if (its[middle] < third) low = middle + 1; else high = middle;
              }
              if (low == many || its[low] != third) continue;
              const int product = SEVERAL ? times[e] * times[f] * times[first + low] : 1;
              atomicAdd(&count[low], product);
              together += product;
            }
            together = over_warp(together);
            if (lane == 0) add(&closed[other], together);
            of_node += together;
          }
          meet();
          for (int i = 32 * warp + lane; i < many; i += 32 * warps) add(&closed[its[i]], count[i]);
          meet();
        }
        if (lane == 0) add(&closed[node], of_node);
      });
}
