// Brandes' betweenness of graphs whose state fits in a block's shared memory: one source at a time.
//
// A team searches from a source, level by level, with a queue. GROUP lanes take a node of the level
// and push its paths along its edges; in the backward sweep they gather shares (1 + dependency) /
// paths, which replace paths. Every edge is read twice, for any number of levels. Paths are counted
// in 32 bits, whose sums are the same in any order; a graph with more paths, or more levels than a
// byte holds, is reported to the caller, which uses another kernel.
//
// instance: brandes<int, 4, true, false>
// instance: brandes<int, 4, true, true>
// instance: brandes<int, 4, false, true>
// instance: brandes<int, 4, false, false>
// instance: brandes<long long, 4, false, true>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::Team;

constexpr unsigned EVERY_LANE = ~0u;
constexpr unsigned char UNSEEN = 255;
constexpr int MOST_LEVELS = 254;

// Rows of the nodes queue[at], queue[at + step], ... before `last`, one after another: while one is
// computed, the bounds of the next one are loaded.
struct Rows {
  const long long* indptr;  // of the graph's first node
  const unsigned short* queue;
  long long base;
  int at, last, step;
  int node, next_node;
  unsigned begin, stop, next_begin, next_stop;

  __device__ __forceinline__ void fetch() {
    next_node = -1;
    if (at < last) {
      next_node = queue[at];
      next_begin = static_cast<unsigned>(indptr[next_node] - base);
      next_stop = static_cast<unsigned>(indptr[next_node + 1] - base);
      at += step;
    }
  }
  __device__ __forceinline__ void start(int first, int end) {
    at = first;
    last = end;
    node = -1;
    fetch();
  }
  __device__ __forceinline__ void next() {
    node = next_node, begin = next_begin, stop = next_stop;
    if (node >= 0) fetch();
  }
};

// indptr, indices   edges out of each node; indices are nodes of the batch
// stride            bytes of shared memory per team
// nodes             a value for each node of an item, at its slot
// arcs              of the edges, added to; a graph must be one item
// failed            of each graph, set if its values are invalid
template <typename Id, int GROUP, bool WARP, bool EDGES>
__global__ void __launch_bounds__(256)
    brandes(const Item* items, long long count, const long long* indptr, const Id* indices,
            const long long* sources, long long stride, bool endpoints, double* nodes,
            double* arcs, unsigned char* failed) {
  typedef Team<WARP> T;
  extern __shared__ char shared[];
  char* memory = shared + T::place(stride);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // reads of the previous item are complete
    double* sums = reinterpret_cast<double*>(memory);
    double* shares = sums + n;
    unsigned* paths = reinterpret_cast<unsigned*>(shares);  // of node i at 2 * i
    unsigned* tail = reinterpret_cast<unsigned*>(shares + n);
    unsigned short* starts = reinterpret_cast<unsigned short*>(tail + 1);  // of levels in the queue
    unsigned short* queue = starts + MOST_LEVELS + 2;
    unsigned char* levels = reinterpret_cast<unsigned char*>(queue + n);
    const int rank = T::rank(), size = T::size();
    const int lane = rank % GROUP, group = rank / GROUP, groups = size / GROUP;
    const unsigned mates = ((1u << GROUP) - 1) << ((threadIdx.x & 31) / GROUP * GROUP);
    const unsigned before = (1u << (threadIdx.x & 31)) - 1;
    const unsigned first_node = static_cast<unsigned>(item.first_node);

    Rows rows;
    rows.indptr = indptr + item.first_node;
    rows.queue = queue;
    rows.base = rows.indptr[0];
    rows.step = groups;
    const Id* ends = indices + rows.base;
    bool wrong = false;

    for (int node = rank; node < n; node += size) sums[node] = 0;
    for (long long i = item.first_source; i < item.last_source; ++i) {
      const int source = static_cast<int>(sources[i] - item.first_node);
      T::sync();
      for (int node = rank; node < n; node += size) {
        shares[node] = 0;  // and so are paths
        levels[node] = UNSEEN;
      }
      T::sync();
      if (rank == 0) {
        paths[2 * source] = 1;
        levels[source] = 0;
        queue[0] = static_cast<unsigned short>(source);
        starts[0] = 0;
        starts[1] = 1;
        *tail = 1;
      }
      T::sync();

      int level = 1;
      for (int from = 0, to = 1;;) {
        rows.start(from + group, to);
        rows.next();
        unsigned own = rows.node < 0 ? 0 : paths[2 * rows.node];
        while (__any_sync(EVERY_LANE, rows.node >= 0)) {
          bool first = false;
          unsigned other = 0;
          if (rows.node >= 0) {
            if (rows.begin + lane < rows.stop) {
              other = static_cast<unsigned>(ends[rows.begin + lane]) - first_node;
              if (levels[other] >= level) {
                const unsigned had = atomicAdd(&paths[2 * other], own);
                first = had == 0;
                wrong |= had + own < had;
              }
            }
            rows.begin += GROUP;
            if (rows.begin >= rows.stop) {
              rows.next();
              own = rows.node < 0 ? 0 : paths[2 * rows.node];
            }
          }
          const unsigned firsts = __ballot_sync(EVERY_LANE, first);
          if (firsts) {
            unsigned place = 0;
            if ((threadIdx.x & 31) == 0) place = atomicAdd(tail, __popc(firsts));
            place = __shfl_sync(EVERY_LANE, place, 0) + __popc(firsts & before);
            if (first && place < n) {  // beyond only if counts have wrapped
              queue[place] = static_cast<unsigned short>(other);
              levels[other] = static_cast<unsigned char>(level);
            }
          }
        }
        T::sync();
        from = to;
        to = min(static_cast<int>(*tail), n);
        T::sync();
        if (to == from) break;
        if (++level > MOST_LEVELS) {
          wrong = true;
          break;
        }
        if (rank == 0) starts[level] = static_cast<unsigned short>(to);
      }
      if (T::any(wrong)) break;
      // starts[k] .. starts[k + 1] are the nodes of level k; level - 1 is the last one.
      if (endpoints && rank == 0) sums[source] += starts[level] - 1;

      for (--level; level >= (EDGES ? 0 : 1); --level) {
        T::sync();
        rows.start(starts[level] + group, starts[level + 1]);
        rows.next();
        double sum = 0;
        while (__any_sync(EVERY_LANE, rows.node >= 0)) {
          if (rows.node < 0) continue;
          if (rows.begin + lane < rows.stop) {
            const unsigned other = static_cast<unsigned>(ends[rows.begin + lane]) - first_node;
            if (levels[other] == level + 1) {
              sum += shares[other];
              if (EDGES) arcs[rows.base + rows.begin + lane] += paths[2 * rows.node] * shares[other];
            }
          }
          rows.begin += GROUP;
          if (rows.begin >= rows.stop) {
            for (int step = GROUP / 2; step > 0; step /= 2)
              sum += __shfl_xor_sync(mates, sum, step);
            if (lane == 0) {
              const double own = paths[2 * rows.node];
              shares[rows.node] = __drcp_rn(own) + sum;  // (1 + dependency) / own
              if (rows.node != source) sums[rows.node] += own * sum + (endpoints ? 1.0 : 0.0);
            }
            sum = 0;
            rows.next();
          }
        }
      }
    }
    if (wrong) failed[item.graph] = 1;
    T::sync();
    for (int node = rank; node < n; node += size) nodes[item.slot + node] = sums[node];
  }
}
