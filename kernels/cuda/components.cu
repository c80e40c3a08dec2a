// Connected components: trees that threads join by an atomic exchange of a root's parent.
//
// As in Afforest (Sutton, Ben-Nun and Barak, 2018): see cpu/components.py. A parent is never larger
// than its child, so the root of a tree is its smallest node, in any order of threads.
//
// instance: join_first<int>
// instance: join_first<long long>
// instance: join_edges<int>
// instance: join_edges<long long>
// instance: shorten<int>
// instance: shorten<long long>
#include "grid.cuh"

using penstock::thread_count;
using penstock::thread_number;

constexpr int TOGETHER = 1024;  // edges of a warp

// Parents change while they are read: past the cache of a multiprocessor, which would keep old ones.
template <typename Id>
__device__ __forceinline__ Id parent_of(const Id* parent, Id node) {
  return *static_cast<const volatile Id*>(parent + node);
}

__device__ __forceinline__ int exchange(int* at, int old, int with) {
  return atomicCAS(at, old, with);
}
__device__ __forceinline__ long long exchange(long long* at, long long old, long long with) {
  return static_cast<long long>(atomicCAS(reinterpret_cast<unsigned long long*>(at),
                                          static_cast<unsigned long long>(old),
                                          static_cast<unsigned long long>(with)));
}

template <typename Id>
__device__ void link(Id* parent, Id a, Id b) {
  Id up = parent_of(parent, a), down = parent_of(parent, b);
  while (up != down) {
    const Id high = max(up, down), low = min(up, down);
    Id above = parent_of(parent, high);
    if (above == high) above = exchange(parent + high, high, low);
    if (above == high || above == low) return;
    up = parent_of(parent, above);
    down = parent_of(parent, low);
  }
}

// Join each node with its neighbour number `which`, by the edges low .. high of this rank.
template <typename Id>
__global__ void join_first(long long nodes, long long low, long long high, const long long* indptr,
                           const Id* indices, int which, Id* parent) {
  for (long long node = thread_number(); node < nodes; node += thread_count()) {
    const long long edge = indptr[node] + which;
    if (low <= edge && edge < min(high, indptr[node + 1])) link(parent, static_cast<Id>(node), indices[edge]);
  }
}

// The same of its neighbours from number `skip` on, but not of the nodes below `giant`, a root.
template <typename Id>
__global__ void join_edges(long long nodes, long long begin, long long stop,
                           const long long* indptr, const Id* indices, int skip, long long giant,
                           Id* parent) {
  const int lane = threadIdx.x % 32;
  for (long long first = begin + thread_number() / 32 * TOGETHER; first < stop;
       first += thread_count() / 32 * TOGETHER) {
    long long low = 0, high = nodes;  // the last row that begins at `first` or before
    while (high - low > 1) {
      const long long middle = (low + high) / 2;
      if (indptr[middle] <= first) low = middle; else high = middle;
    }
    long long row = low, from = 0, end = -1;
    bool known = false;
    const long long last = min(first + TOGETHER, stop);
    for (long long edge = first + lane; edge < last; edge += 32) {
      if (edge >= end) {
        while (edge >= (end = indptr[row + 1])) ++row;
        from = indptr[row] + skip;
        known = parent[row] == giant;  // which does not change below a root
      }
      if (!known && edge >= from) link(parent, static_cast<Id>(row), __ldcs(indices + edge));
    }
  }
}

// Make each node's root its parent.
template <typename Id>
__global__ void shorten(long long nodes, Id* parent) {
  for (long long node = thread_number(); node < nodes; node += thread_count()) {
    Id up = parent_of(parent, static_cast<Id>(node)), above;
    while ((above = parent_of(parent, up)) != up) up = above;
    parent[node] = up;
  }
}
