// Weighted shortest paths of small graphs, from SOURCES sources at once: one lane each.
//
// Distances are relaxed over incoming edges until none changes. An edge is tight if it is on a
// shortest path: numbers of paths, and then shares in the backward pass, are summed over tight
// edges until none changes, too. Weights are positive, so tight edges form no cycle, unless one is
// lost in a sum's rounding: a graph that has not converged after one round per node is
// marked.
//
// instance: weighted_paths<int, 8, true, false>
// instance: weighted_paths<int, 32, false, false>
// instance: weighted_paths<long long, 32, false, true>
// instance: weighted_betweenness<int, 8, true, false, false>
// instance: weighted_betweenness<int, 16, false, false, true>
// instance: weighted_betweenness<long long, 32, false, true, false>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::infinite;
using penstock::Team;

// Edges into (or out of) nodes, and their lengths.
template <typename Id>
struct Edges {
  const long long* indptr;
  const Id* indices;
  const double* weights;
};

// Calls use(edge, other, length) for the edges of a node, all SOURCES lanes of its group together.
template <int SOURCES, typename Id, typename Use>
__device__ __forceinline__ void for_edges(const Edges<Id>& edges, const Item& item, int node,
                                          int lane, unsigned mates, Use use) {
  const long long stop = edges.indptr[item.first_node + node + 1];
  for (long long e = edges.indptr[item.first_node + node]; e < stop; e += SOURCES) {
    const int many = static_cast<int>(min(static_cast<long long>(SOURCES), stop - e));
    const int mine = lane < many ? edges.indices[e + lane] - item.first_node : 0;
    const double long_is = lane < many ? edges.weights[e + lane] : 0;
    for (int i = 0; i < many; ++i) {
      const int other = __shfl_sync(mates, mine, i, SOURCES);
      use(e + i, other, __shfl_sync(mates, long_is, i, SOURCES));
    }
  }
}

// Writes the distances from each lane's source to `far`, (nodes, SOURCES).
template <int SOURCES, bool WARP, typename Id>
__device__ __forceinline__ void relax(const Edges<Id>& in, const Item& item, int source,
                                      unsigned mates, double* far) {
  typedef Team<WARP> T;
  const int lane = T::rank() % SOURCES, group = T::rank() / SOURCES, groups = T::size() / SOURCES;
  for (int i = T::rank(); i < item.nodes * SOURCES; i += T::size()) far[i] = infinite();
  T::sync();
  if (group == 0 && source >= 0) far[source * SOURCES + lane] = 0;
  T::sync();
  bool changed;
  do {
    changed = false;
    for (int node = group; node < item.nodes; node += groups) {
      double best = far[node * SOURCES + lane];
      const double before = best;
      for_edges<SOURCES>(in, item, node, lane, mates, [&](long long, int other, double by) {
        best = min(best, far[other * SOURCES + lane] + by);
      });
      if (best < before) {
        far[node * SOURCES + lane] = best;
        changed = true;
      }
    }
  } while (T::any(changed));
}

// The sum over the lanes of a group.
template <int SOURCES, typename Number>
__device__ __forceinline__ Number over_lanes(Number value, unsigned mates) {
  for (int step = SOURCES / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(mates, value, step, SOURCES);
  return value;
}

// in        edges into each node, and their weights
// distances if not null, (nodes, nodes) of each graph at starts[graph]; infinite beforehand
// Others as in breadth_first.cu.
template <typename Id, int SOURCES, bool WARP, bool GLOBAL>
__global__ void weighted_paths(const Item* items, long long count, const long long* in_indptr,
                               const Id* in_indices, const double* in_weights,
                               const long long* sources, char* scratch, long long stride,
                               long long* reached, double* total, double* inverse,
                               double* eccentricity, double* distances, const long long* starts) {
  typedef Team<WARP> T;
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  const Edges<Id> in = {in_indptr, in_indices, in_weights};
  const int rank = T::rank(), size = T::size();
  const int lane = rank % SOURCES, group = rank / SOURCES, groups = size / SOURCES;
  const unsigned mates = (~0u >> (32 - SOURCES)) << ((threadIdx.x & 31) / SOURCES * SOURCES);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // reads of the previous item are complete
    double* sums = reinterpret_cast<double*>(memory);
    double* inverses = sums + n;
    double* far = inverses + n;
    unsigned long long* farthest = reinterpret_cast<unsigned long long*>(far + n * SOURCES);
    int* counts = reinterpret_cast<int*>(farthest + SOURCES);
    for (int node = rank; node < n; node += size) sums[node] = inverses[node] = counts[node] = 0;
    for (long long first = item.first_source; first < item.last_source; first += SOURCES) {
      T::sync();
      const bool used = first + lane < item.last_source;
      const int source = used ? static_cast<int>(sources[first + lane] - item.first_node) : -1;
      if (rank < SOURCES) farthest[rank] = 0;
      relax<SOURCES, WARP>(in, item, source, mates, far);
      double most = 0;
      for (int node = group; node < n; node += groups) {
        const double here = far[node * SOURCES + lane];
        const bool there = used && node != source && here < infinite();
        if (used) most = max(most, here);
        const int many = over_lanes<SOURCES>(there ? 1 : 0, mates);
        const double sum = over_lanes<SOURCES>(there ? here : 0.0, mates);
        const double inverted = over_lanes<SOURCES>(there && here > 0 ? 1 / here : 0.0, mates);
        if (lane == 0) counts[node] += many, sums[node] += sum, inverses[node] += inverted;
        if (distances && used)
          distances[starts[item.graph] + static_cast<long long>(source) * n + node] = here;
      }
      // The largest of non-negative numbers has the largest bits.
      atomicMax(&farthest[lane], static_cast<unsigned long long>(__double_as_longlong(most)));
      T::sync();
      if (group == 0 && used)
        eccentricity[first + lane] = __longlong_as_double(static_cast<long long>(farthest[lane]));
    }
    T::sync();
    for (int node = rank; node < n; node += size) {
      reached[item.slot + node] = counts[node];
      total[item.slot + node] = sums[node];
      inverse[item.slot + node] = inverses[node];
    }
  }
}

// in, out   edges into and out of each node, and their weights
// failed    of each graph, set if paths or shares do not converge
// Others as in betweenness.cu.
template <typename Id, int SOURCES, bool WARP, bool GLOBAL, bool EDGES>
__global__ void weighted_betweenness(const Item* items, long long count,
                                     const long long* in_indptr, const Id* in_indices,
                                     const double* in_weights, const long long* out_indptr,
                                     const Id* out_indices, const double* out_weights,
                                     const long long* sources, char* scratch, long long stride,
                                     bool endpoints, double* nodes, double* arcs,
                                     unsigned char* failed) {
  typedef Team<WARP> T;
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  const Edges<Id> in = {in_indptr, in_indices, in_weights};
  const Edges<Id> out = {out_indptr, out_indices, out_weights};
  const int rank = T::rank(), size = T::size();
  const int lane = rank % SOURCES, group = rank / SOURCES, groups = size / SOURCES;
  const unsigned mates = (~0u >> (32 - SOURCES)) << ((threadIdx.x & 31) / SOURCES * SOURCES);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // reads of the previous item are complete
    double* sums = reinterpret_cast<double*>(memory);
    double* far = sums + n;
    double* paths = far + n * SOURCES;
    double* shares = paths + n * SOURCES;
    int* reach = reinterpret_cast<int*>(shares + n * SOURCES);
    for (int node = rank; node < n; node += size) sums[node] = 0;
    for (long long first = item.first_source; first < item.last_source; first += SOURCES) {
      T::sync();
      const bool used = first + lane < item.last_source;
      const int source = used ? static_cast<int>(sources[first + lane] - item.first_node) : -1;
      if (rank < SOURCES) reach[rank] = 0;
      relax<SOURCES, WARP>(in, item, source, mates, far);
      for (int i = rank; i < n * SOURCES; i += size) paths[i] = shares[i] = 0;
      T::sync();

      int round = 0;
      bool changed;
      do {
        changed = false;
        for (int node = group; node < n; node += groups) {
          const int place = node * SOURCES + lane;
          const double here = far[place];
          double sum = node == source ? 1 : 0;
          for_edges<SOURCES>(in, item, node, lane, mates, [&](long long, int other, double by) {
            const int from = other * SOURCES + lane;
            if (node != source && here < infinite() && far[from] + by == here) sum += paths[from];
          });
          if (sum != paths[place]) {
            paths[place] = sum;
            changed = true;
          }
        }
      } while (T::any(changed) && ++round <= n);
      bool converged = round <= n;

      round = 0;
      do {
        changed = false;
        for (int node = group; node < n; node += groups) {
          const int place = node * SOURCES + lane;
          const double here = far[place];
          double sum = 0;
          for_edges<SOURCES>(out, item, node, lane, mates, [&](long long, int other, double by) {
            const int to = other * SOURCES + lane;
            if (other != source && here + by == far[to] && here < infinite()) sum += shares[to];
          });
          const double share = paths[place] > 0 ? 1 / paths[place] + sum : 0;
          if (share != shares[place]) {
            shares[place] = share;
            changed = true;
          }
        }
      } while (converged && T::any(changed) && ++round <= n);
      converged = converged && round <= n;
      if (!converged && rank == 0) failed[item.graph] = 1;
      T::sync();

      int reached = 0;
      for (int node = group; node < n; node += groups) {
        const int place = node * SOURCES + lane;
        const double here = far[place];
        const bool there = used && here < infinite();
        double sum = 0;
        for_edges<SOURCES>(out, item, node, lane, mates, [&](long long e, int other, double by) {
          const int to = other * SOURCES + lane;
          const bool tight = there && other != source && here + by == far[to];
          const double share = tight ? shares[to] : 0;
          sum += share;
          if (EDGES) {
            const double part = over_lanes<SOURCES>(tight ? paths[place] * share : 0.0, mates);
            if (lane == 0 && part != 0) arcs[e] += part;
          }
        });
        const bool mine = there && node != source;
        reached += mine;
        const double ends = endpoints ? 1.0 : 0.0;
        const double added = over_lanes<SOURCES>(mine ? paths[place] * sum + ends : 0.0, mates);
        if (lane == 0) sums[node] += added;
      }
      if (endpoints && reached) atomicAdd(&reach[lane], reached);
      T::sync();
      if (group == 0 && used) sums[source] += reach[lane];  // sources are distinct
    }
    T::sync();
    for (int node = rank; node < n; node += size) nodes[item.slot + node] = sums[node];
  }
}
