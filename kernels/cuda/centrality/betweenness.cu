// Brandes' betweenness of small graphs, of SOURCES sources at once: a lane each.
//
// A node's levels and path counts of all sources lie side by side, so that the lanes of a group
// read them without conflicts. Both passes gather level by level, the forward one over incoming
// edges, the backward one over outgoing ones: nobody needs atomics, and sums are of one order in
// every run. In the backward pass a node's share (1 + dependency) / paths takes the place of its
// paths, which nobody needs any more.
//
// instance: betweenness<int, float, unsigned char, 32, true, false, false>
// instance: betweenness<int, float, unsigned char, 32, false, false, false>
// instance: betweenness<int, float, unsigned short, 16, false, false, true>
// instance: betweenness<int, double, unsigned short, 8, false, true, false>
// instance: betweenness<long long, double, unsigned short, 16, false, false, true>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::Team;

// in_*, out_*   edges into and out of each node; for an undirected graph the same
// scratch       in place of shared memory if not null: `stride` bytes a block
// nodes         a value for each node of an item, at its slot
// arcs          of the outgoing edges, added to; a graph must be one item
// overflow      of each graph, set where paths are more than a Real can count
template <typename Id, typename Real, typename Level, int SOURCES, bool WARP, bool GLOBAL,
          bool EDGES>
__global__ void betweenness(const Item* items, long long count, const long long* in_indptr,
                            const Id* in_indices, const long long* out_indptr,
                            const Id* out_indices, const long long* sources, char* scratch,
                            long long stride, bool endpoints, double* nodes, double* arcs,
                            unsigned char* overflow) {
  typedef Team<WARP> T;
  constexpr Level UNSEEN = static_cast<Level>(~0u);
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // with what is read of the item before
    double* sums = reinterpret_cast<double*>(memory);
    Real* paths = reinterpret_cast<Real*>(sums + n);
    int* reach = reinterpret_cast<int*>(paths + static_cast<long long>(n) * SOURCES);
    Level* levels = reinterpret_cast<Level*>(reach + SOURCES);
    const int rank = T::rank(), size = T::size();
    const int lane = rank % SOURCES, group = rank / SOURCES, groups = size / SOURCES;
    const unsigned mates = (~0u >> (32 - SOURCES)) << ((threadIdx.x & 31) / SOURCES * SOURCES);

    for (int node = rank; node < n; node += size) sums[node] = 0;
    for (long long first = item.first_source; first < item.last_source; first += SOURCES) {
      T::sync();
      for (int i = rank; i < n * SOURCES; i += size) levels[i] = UNSEEN;
      if (rank < SOURCES) reach[rank] = 0;
      T::sync();
      const bool used = first + lane < item.last_source;
      const int source = used ? static_cast<int>(sources[first + lane] - item.first_node) : -1;
      if (group == 0 && used) {
        levels[source * SOURCES + lane] = 0;
        paths[source * SOURCES + lane] = 1;
      }
      T::sync();

      int level = 1, reached = 0;
      for (;; ++level) {
        bool found = false;
        for (int node = group; node < n; node += groups) {
          const bool open = used && levels[node * SOURCES + lane] == UNSEEN;
          if (!__any_sync(mates, open)) continue;
          const long long stop = in_indptr[item.first_node + node + 1];
          Real sum = 0;
          for (long long e = in_indptr[item.first_node + node]; e < stop; e += SOURCES) {
            const int many = static_cast<int>(min(static_cast<long long>(SOURCES), stop - e));
            const int mine = lane < many ? in_indices[e + lane] - item.first_node : 0;
            for (int i = 0; i < many; ++i) {
              const int other = __shfl_sync(mates, mine, i, SOURCES) * SOURCES + lane;
              if (levels[other] == level - 1) sum += paths[other];
            }
          }
          if (open && sum > 0) {
            levels[node * SOURCES + lane] = level;
            paths[node * SOURCES + lane] = sum;
            found = true;
            ++reached;
            if (!isfinite(sum)) overflow[item.graph] = 1;
          }
        }
        if (!T::any(found)) break;
      }
      // So many nodes are ends of the source's paths: whole numbers, as their order may differ.
      if (endpoints && reached) atomicAdd(&reach[lane], reached);
      T::sync();
      if (group == 0 && used) sums[source] += reach[lane];  // sources are distinct
      T::sync();

      while (--level >= (EDGES ? 0 : 1)) {
        for (int node = group; node < n; node += groups) {
          const int here = node * SOURCES + lane;
          const bool mine_now = levels[here] == level;
          if (!__any_sync(mates, mine_now)) continue;
          const Real own = mine_now ? paths[here] : Real(0);
          const long long stop = out_indptr[item.first_node + node + 1];
          Real sum = 0;
          for (long long e = out_indptr[item.first_node + node]; e < stop; e += SOURCES) {
            const int many = static_cast<int>(min(static_cast<long long>(SOURCES), stop - e));
            const int mine = lane < many ? out_indices[e + lane] - item.first_node : 0;
            for (int i = 0; i < many; ++i) {
              const int other = __shfl_sync(mates, mine, i, SOURCES) * SOURCES + lane;
              const Real share = mine_now && levels[other] == level + 1 ? paths[other] : Real(0);
              sum += share;
              if (EDGES) {
                double part = static_cast<double>(own) * share;
                for (int step = SOURCES / 2; step > 0; step /= 2)
                  part += __shfl_xor_sync(mates, part, step, SOURCES);
                if (lane == 0 && part != 0) arcs[e + i] += part;
              }
            }
          }
          const Real dependency = own * sum;
          if (mine_now) paths[here] = (1 + dependency) / own;
          double added = mine_now && node != source ? dependency + (endpoints ? 1.0 : 0.0) : 0.0;
          for (int step = SOURCES / 2; step > 0; step /= 2)
            added += __shfl_xor_sync(mates, added, step, SOURCES);
          if (lane == 0) sums[node] += added;
        }
        T::sync();
      }
    }
    T::sync();
    for (int node = rank; node < n; node += size) nodes[item.slot + node] = sums[node];
  }
}
