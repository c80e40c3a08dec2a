// Closed walks of three steps of symmetric graphs: over the neighbours of a node's neighbours, each
// looked up in the node's own row, which is sorted.
//
// instance: closed_walks<int, false>
// instance: closed_walks<int, true>
// instance: closed_walks<long long, false>
#include "grid.cuh"

using penstock::thread_count;
using penstock::thread_number;

constexpr int LANES = 8;  // threads per node, a divisor of a warp

// multiplicities  of edges, which have no items unless SEVERAL: then all are 1
template <typename Id, bool SEVERAL>
__global__ void closed_walks(long long nodes, const long long* indptr, const Id* indices,
                             const signed char* multiplicities, long long* closed,
                             long long* degree, long long* mutual) {
  const int lane = threadIdx.x % LANES;
  const unsigned mates = ((1u << LANES) - 1) << ((threadIdx.x & 31) / LANES * LANES);
  for (long long node = thread_number() / LANES; node < nodes; node += thread_count() / LANES) {
    const long long start = indptr[node], stop = indptr[node + 1];
    long long walks = 0, edges = 0, both = 0;
    for (long long e = start; e < stop; ++e) {
      const Id other = indices[e];
      if (other == node) continue;
      const int count = SEVERAL ? multiplicities[e] : 1;
      edges += count;
      both += count == 2;
      for (long long f = indptr[other] + lane; f < indptr[other + 1]; f += LANES) {
        const Id third = indices[f];
        if (third == other || third == node) continue;
        long long low = start, high = stop;  // the first not below `third`
        while (low < high) {
          const long long middle = (low + high) / 2;
          if (indices[middle] < third) low = middle + 1; else high = middle;
        }
        if (low < stop && indices[low] == third)
          walks += SEVERAL ? count * multiplicities[f] * multiplicities[low] : 1;
      }
    }
    for (int half = LANES / 2; half > 0; half /= 2)
      walks += __shfl_xor_sync(mates, walks, half, LANES);
    if (lane == 0) closed[node] = walks, degree[node] = edges, mutual[node] = both;
  }
}
