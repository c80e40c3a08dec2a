// PageRank of small graphs by power iteration: one graph per team, gathered over incoming edges.
//
// Sums over a team have the same order in every run: a warp's by halves, then the warps' one by
// one.
//
// instance: pagerank<int, true, true, false>
// instance: pagerank<int, false, false, false>
// instance: pagerank<long long, false, false, true>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::Team;

constexpr int LANES = 8;  // threads per node, a divisor of a warp

// The sum over a team, which all of its threads get; `parts` has room for one number per warp.
template <bool WARP>
__device__ __forceinline__ double over_team(double value, double* parts) {
  typedef Team<WARP> T;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step, 32);
  if (WARP) return value;
  if (T::rank() % 32 == 0) parts[T::rank() / 32] = value;
  T::sync();
  value = 0;
  for (int warp = 0; warp < T::size() / 32; ++warp) value += parts[warp];
  T::sync();
  return value;
}

// in_*    edges into each node, and out_* out of it; weights have no items unless WEIGHTED
// ranks   (nodes,)
// steps   (graphs,): after how many steps a graph's ranks changed by less than `tolerance` per
// node;
//         -1: not after `most`
template <typename Id, bool WEIGHTED, bool WARP, bool GLOBAL>
__global__ void pagerank(const Item* items, long long count, const long long* in_indptr,
                         const Id* in_indices, const double* in_weights,
                         const long long* out_indptr, const double* out_weights,
                         char* scratch, long long stride, double damping,
                         double tolerance, int most, double* ranks, int* steps) {
  typedef Team<WARP> T;
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  const int rank = T::rank(), size = T::size();
  const int lane = rank % LANES, group = rank / LANES, groups = size / LANES;
  const unsigned mates = ((1u << LANES) - 1) << ((threadIdx.x & 31) / LANES * LANES);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // reads of the previous item are complete
    double* parts = reinterpret_cast<double*>(memory);
    double* now = parts + 32;
    double* gives = now + n;  // to each neighbour, per unit of weight
    double* sums = gives + n;
    for (int node = rank; node < n; node += size) {
      const long long start = out_indptr[item.first_node + node];
      const long long stop = out_indptr[item.first_node + node + 1];
      double sum = static_cast<double>(stop - start);
      if (WEIGHTED) {
        sum = 0;
        for (long long e = start; e < stop; ++e) sum += out_weights[e];
      }
      sums[node] = sum;
      now[node] = 1.0 / n;
    }
    T::sync();
    int found = n > 0 ? -1 : 1;
    for (int step = 1; n > 0 && step <= most; ++step) {
      double lost = 0;
      for (int node = rank; node < n; node += size) {
        gives[node] = sums[node] > 0 ? now[node] / sums[node] : 0;
        if (!(sums[node] > 0)) lost += now[node];
      }
      lost = over_team<WARP>(lost, parts) / n;
      T::sync();
      double change = 0;
      for (int node = group; node < n; node += groups) {
        const long long stop = in_indptr[item.first_node + node + 1];
        double sum = 0;
        for (long long e = in_indptr[item.first_node + node] + lane; e < stop; e += LANES) {
          const double part = gives[in_indices[e] - item.first_node];
          sum += WEIGHTED ? part * in_weights[e] : part;
        }
        for (int half = LANES / 2; half > 0; half /= 2)
          sum += __shfl_xor_sync(mates, sum, half, LANES);
        if (lane == 0) {
          const double next = damping * (sum + lost) + (1 - damping) / n;
          change += fabs(next - now[node]);
          now[node] = next;
        }
      }
      change = over_team<WARP>(change, parts);
      T::sync();
      if (change < n * tolerance) {
        found = step;
        break;
      }
    }
    for (int node = rank; node < n; node += size) ranks[item.slot + node] = now[node];
    if (rank == 0) steps[item.graph] = found;
  }
}
