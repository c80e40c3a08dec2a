// Edges of rows, whose neighbours are ascending.
//
// instance: count_edges<int>
// instance: count_edges<long long>
#include "centrality/rows.cuh"

using penstock::ALL;
using penstock::over_rows;
using penstock::THREADS;

constexpr int LONGEST = 2048;  // edges of a row for one warp

// totals  added to: distinct entries of all rows, and those that are loops
template <typename Id>
__global__ void __launch_bounds__(THREADS)
    count_edges(long long nodes, const long long* indptr, const Id* indices,
                unsigned long long* totals) {
  const int lane = threadIdx.x % 32;
  unsigned long long distinct = 0, loops = 0;
  over_rows(
      nodes, nullptr, indptr, LONGEST, [](long long) { return true; },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        for (long long e = begin + 32 * warp + lane; e < end; e += 32 * warps) {
          const bool fresh = e == begin || indices[e - 1] != indices[e];
          distinct += fresh;
          loops += fresh && indices[e] == row;
        }
      });
  for (int half = 16; half > 0; half /= 2) {
    distinct += __shfl_xor_sync(ALL, distinct, half);
    loops += __shfl_xor_sync(ALL, loops, half);
  }
  if (lane == 0 && distinct) atomicAdd(&totals[0], distinct);
  if (lane == 0 && loops) atomicAdd(&totals[1], loops);
}
