// Breadth-first searches of small graphs, from 64 sources at once: one bit of a word each.
//
// A team takes a graph, 64 sources at a time. In a level, LANES threads gather a node's new bits
// over its incoming edges; words are in shared memory, or in global memory if the graph is too
// large.
//
// instance: breadth_first<int, true, false>
// instance: breadth_first<int, false, false>
// instance: breadth_first<int, false, true>
// instance: breadth_first<long long, true, false>
// instance: breadth_first<long long, false, true>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::infinite;
using penstock::Team;

typedef unsigned long long Word;
constexpr int LANES = 8;  // threads per node, a divisor of a warp

// indptr, indices  edges into each node; indices are nodes of the batch
// scratch          instead of shared memory if not null: `stride` bytes per block
// reached, total, inverse   a value for each node of an item, at its slot
// eccentricity     of each source in the list
// distances        if not null, (nodes, nodes) of each graph at starts[graph], -1 beforehand
template <typename Id, bool WARP, bool GLOBAL>
__global__ void breadth_first(const Item* items, long long count, const long long* indptr,
                              const Id* indices, const long long* sources, char* scratch,
                              long long stride, long long* reached, double* total, double* inverse,
                              double* eccentricity, int* distances, const long long* starts) {
  typedef Team<WARP> T;
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // reads of the previous item are complete
    double* sums = reinterpret_cast<double*>(memory);
    double* inverses = sums + n;
    Word* seen = reinterpret_cast<Word*>(inverses + n);
    Word* now = seen + n;
    Word* then = now + n;
    Word* flags = then + n;  // which sources found any node, and which found all
    int* counts = reinterpret_cast<int*>(flags + 2);
    const int rank = T::rank(), size = T::size();
    const int lane = rank % LANES, group = rank / LANES, groups = size / LANES;
    const unsigned mates = ((1u << LANES) - 1) << ((threadIdx.x & 31) / LANES * LANES);

    for (int node = rank; node < n; node += size) {
      sums[node] = inverses[node] = 0;
      counts[node] = 0;
    }
    for (long long first = item.first_source; first < item.last_source; first += 64) {
      const int width = static_cast<int>(min(64LL, item.last_source - first));
      for (int node = rank; node < n; node += size) seen[node] = now[node] = 0;
      if (rank == 0) flags[0] = 0, flags[1] = ~0ull >> (64 - width);
      T::sync();
      for (int i = rank; i < width; i += size) {
        const int node = static_cast<int>(sources[first + i] - item.first_node);
        seen[node] = now[node] = 1ull << i;  // sources are distinct
        eccentricity[first + i] = 0;
        if (distances) distances[starts[item.graph] + static_cast<long long>(node) * n + node] = 0;
      }
      T::sync();
      for (int level = 1;; ++level) {
        Word mine = 0;
        for (int node = group; node < n; node += groups) {
          const Word open = ~seen[node];
          Word found = 0;
          const long long stop = indptr[item.first_node + node + 1];
          for (long long e = indptr[item.first_node + node] + lane; e < stop; e += LANES)
            found |= now[indices[e] - item.first_node];
          found &= open;
          for (int step = LANES / 2; step > 0; step /= 2)
            found |= __shfl_xor_sync(mates, found, step, LANES);
          if (lane == 0) then[node] = found;
          mine |= found;
        }
        if (mine) atomicOr(&flags[0], mine);
        if (!T::any(mine != 0)) break;
        const Word some = flags[0];
        for (int node = rank; node < n; node += size) {
          const Word found = then[node];
          now[node] = found;
          seen[node] |= found;
          const int many = __popcll(found);
          if (many) {
            counts[node] += many;
            sums[node] += static_cast<double>(many) * level;
            inverses[node] += static_cast<double>(many) / level;
          }
          if (distances)  // threads of a warp write side by side in a source's row
            for (Word rest = some; rest; rest &= rest - 1) {
              const int i = __ffsll(rest) - 1;
              if (!(found >> i & 1)) continue;
              const long long source = sources[first + i] - item.first_node;
              distances[starts[item.graph] + source * n + node] = level;
            }
        }
        for (int i = rank; i < width; i += size)
          if (some >> i & 1) eccentricity[first + i] = level;
        T::sync();
        if (rank == 0) flags[0] = 0;
        T::sync();
      }
      Word all = ~0ull;
      for (int node = rank; node < n; node += size) all &= seen[node];
      atomicAnd(&flags[1], all);
      T::sync();
      for (int i = rank; i < width; i += size)
        if (!(flags[1] >> i & 1)) eccentricity[first + i] = infinite();
      T::sync();
    }
    for (int node = rank; node < n; node += size) {
      reached[item.slot + node] = counts[node];
      total[item.slot + node] = sums[node];
      inverse[item.slot + node] = inverses[node];
    }
  }
}
