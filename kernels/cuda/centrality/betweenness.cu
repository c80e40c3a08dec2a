// Brandes' betweenness of small graphs, of SOURCES sources at once: a lane each.
//
// A warp takes a node. Which sources reached it in a level is a mask of bits, so that 32 lanes look
// at 32 edges at a time, and only those that a shortest path of some source takes are added up:
// then a lane belongs to a source, whose path counts lie side by side, and 32 / SOURCES edges are
// added at a time. Both passes gather, the forward one over incoming edges, the backward one over
// outgoing ones: nobody needs atomics, and sums are of one order in every run. In the backward pass
// a node's share (1 + dependency) / paths takes the place of its paths, which nobody needs any more.
//
// instance: betweenness<int, float, unsigned char, 16, true, false, false>
// instance: betweenness<int, float, unsigned char, 16, false, false, false>
// instance: betweenness<int, float, unsigned short, 16, false, false, true>
// instance: betweenness<int, double, unsigned short, 16, false, false, false>
// instance: betweenness<int, double, unsigned short, 8, false, false, true>
// instance: betweenness<int, double, unsigned int, 32, false, true, false>
// instance: betweenness<long long, double, unsigned int, 32, false, true, true>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::Team;

constexpr unsigned WARP_LANES = ~0u;

template <bool LEFT, typename A, typename B>
struct Choose { typedef A type; };
template <typename A, typename B>
struct Choose<false, A, B> { typedef B type; };

// Add up what lies at ``other * SOURCES + source`` in ``values``, of the edges whose mask has the
// lane's source. Each lane brings the other end of an edge, and its mask: 0 where it has none.
template <typename Real, typename Offset, int SOURCES, bool PACKED>
__device__ __forceinline__ Real gather(const Real* values, int other, unsigned mask, int lanes) {
  constexpr int SLOTS = 32 / SOURCES;
  const int lane = threadIdx.x & 31, source = lane % SOURCES, slot = lane / SOURCES;
  const unsigned packed = static_cast<unsigned>(other) << 16 | mask;  // both in one shuffle
  Real sum = 0;
  auto add = [&](int from) {
    unsigned its_mask, its_node;
    if (PACKED) {
      const unsigned its = __shfl_sync(WARP_LANES, packed, from);
      its_mask = its, its_node = its >> 16;
    } else {
      its_mask = __shfl_sync(WARP_LANES, mask, from);
      its_node = __shfl_sync(WARP_LANES, static_cast<unsigned>(other), from);
    }
    if (its_mask >> source & 1)
      sum += values[static_cast<Offset>(its_node) * SOURCES + source];
  };
  unsigned rest = __ballot_sync(WARP_LANES, mask != 0);
  const int useful = __popc(rest);
  if (2 * useful > lanes) {
#pragma unroll 4
    for (int i = 0; i < lanes; i += SLOTS) add(i + slot);
  } else if (useful) {
    // A slot takes every SLOTS-th of the bits; lane `idle` has none.
    const int idle = __ffs(~rest) - 1;
    for (int i = 0; i < slot; ++i) rest &= rest - 1;
    for (int i = 0; i < useful; i += SLOTS) {
      add(rest ? __ffs(rest) - 1 : idle);
      for (int k = 0; k < SLOTS; ++k) rest &= rest - 1;
    }
  }
  return sum;
}

// The rows of a graph that a warp goes through: while one is computed, the first 32 indices of the
// next one, and the bounds of the one after that, are on their way.
template <typename Id, typename Offset>
struct Rows {
  const long long* indptr;
  const Id* indices;
  Offset base;
  unsigned first_node;  // its low bits: differences within a graph fit in them
  int nodes, step, lane;
  Offset begin, stop, next_begin, next_stop, far_begin, far_stop;
  int other, next_other;  // the other end of the lane's edge, of the first 32 of a row

  __device__ __forceinline__ Rows(const long long* every_indptr, const Id* every_index,
                                  const Item& item, int step, int lane)
      : indptr(every_indptr + item.first_node), indices(every_index + indptr[0]),
        base(static_cast<Offset>(indptr[0])), first_node(static_cast<unsigned>(item.first_node)),
        nodes(item.nodes), step(step), lane(lane) {}
  __device__ __forceinline__ void bounds(int node, Offset* from, Offset* to) const {
    *from = *to = 0;
    if (node < nodes) {
      *from = static_cast<Offset>(indptr[node]) - base;
      *to = static_cast<Offset>(indptr[node + 1]) - base;
    }
  }
  __device__ __forceinline__ int load(Offset at, Offset end) const {
    return at + lane < end ? static_cast<unsigned>(indices[at + lane]) - first_node : 0;
  }
  __device__ __forceinline__ void start(int node) {
    bounds(node, &begin, &stop);
    bounds(node + step, &next_begin, &next_stop);
    other = load(begin, stop);
  }
  __device__ __forceinline__ void ahead(int node) {
    next_other = load(next_begin, next_stop);
    bounds(node + 2 * step, &far_begin, &far_stop);
  }
  __device__ __forceinline__ void shift() {
    begin = next_begin, stop = next_stop, other = next_other;
    next_begin = far_begin, next_stop = far_stop;
  }
};

__device__ __forceinline__ double inverse(double value) { return __drcp_rn(value); }
__device__ __forceinline__ float inverse(float value) { return __frcp_rn(value); }

// in_*, out_*   edges into and out of each node; for an undirected graph the same
// scratch       in place of shared memory if not null: `stride` bytes a block
// nodes         a value for each node of an item, at its slot
// arcs          of the outgoing edges, added to; a graph must be one item
// overflow      of each graph, set where paths are more than a Real can count
template <typename Id, typename Real, typename Level, int SOURCES, bool WARP, bool GLOBAL,
          bool EDGES>
__global__ void __launch_bounds__(1024)
    betweenness(const Item* items, long long count, const long long* in_indptr,
                const Id* in_indices, const long long* out_indptr, const Id* out_indices,
                const long long* sources, char* scratch, long long stride, bool endpoints,
                double* nodes, double* arcs, unsigned char* overflow) {
  typedef Team<WARP> T;
  // Of an edge or a value in a graph; one whose nodes fit in a block has fewer edges than 2^31.
  typedef typename Choose<GLOBAL, unsigned long long, unsigned>::type Offset;
  constexpr bool PACKED = SOURCES <= 16 && !GLOBAL;  // a block has memory for fewer nodes than 2^16
  constexpr int SLOTS = 32 / SOURCES;
  constexpr unsigned EVERY = ~0u >> (32 - SOURCES);
  constexpr Level UNSEEN = static_cast<Level>(~0u);
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // with what is read of the item before
    const long long cells = static_cast<long long>(n) * SOURCES;
    double* sums = reinterpret_cast<double*>(memory);
    Real* paths = reinterpret_cast<Real*>(sums + n);
    unsigned* seen = reinterpret_cast<unsigned*>(paths + cells);
    unsigned* now = seen + n;  // which sources reached a node in the last level
    unsigned* then = now + n;
    int* reach = reinterpret_cast<int*>(then + n);
    Level* levels = reinterpret_cast<Level*>(reach + SOURCES);
    const int rank = T::rank(), size = T::size();
    const int warp = rank / 32, warps = size / 32;
    const int lane = rank % 32, mine = lane % SOURCES, slot = lane / SOURCES;

    for (int node = rank; node < n; node += size) sums[node] = 0;
    for (long long first = item.first_source; first < item.last_source; first += SOURCES) {
      T::sync();
      for (long long i = rank; i < cells; i += size) levels[i] = UNSEEN;
      for (int node = rank; node < n; node += size) seen[node] = now[node] = 0;
      if (rank < SOURCES) reach[rank] = 0;
      T::sync();
      const int width = static_cast<int>(min(static_cast<long long>(SOURCES), item.last_source - first));
      const unsigned all = EVERY >> (SOURCES - width);
      const int source =
          mine < width ? static_cast<int>(sources[first + mine] - item.first_node) : -1;
      if (rank < width) {
        const Offset cell = static_cast<Offset>(source) * SOURCES + rank;
        levels[cell] = 0;
        paths[cell] = 1;
        seen[source] = now[source] = 1u << rank;  // sources are distinct
      }
      T::sync();

      int level = 1, reached = 0;
      Rows<Id, Offset> in(in_indptr, in_indices, item, warps, lane);
      for (;; ++level) {
        bool any = false;
        in.start(warp);
        for (int node = warp; node < n; node += warps, in.shift()) {
          const unsigned open = all & ~seen[node];
          unsigned found = 0;
          in.ahead(node);
          if (open) {
            Real sum = 0;
            int other = in.other;
            for (Offset e = in.begin; e < in.stop; e += 32) {
              const int many = min(static_cast<Offset>(32), in.stop - e);
              if (e > in.begin) other = in.load(e, in.stop);
              const unsigned mask = lane < many ? now[other] & open : 0;
              found |= mask;
              sum += gather<Real, Offset, SOURCES, PACKED>(paths, other, mask, many);
            }
            found = __reduce_or_sync(WARP_LANES, found);
            if (found) {
              for (int step = SOURCES; step < 32; step *= 2)
                sum += __shfl_xor_sync(WARP_LANES, sum, step);
              if (slot == 0 && found >> mine & 1) {
                const Offset cell = static_cast<Offset>(node) * SOURCES + mine;
                levels[cell] = level;
                paths[cell] = sum;
                ++reached;
                if (!isfinite(sum)) overflow[item.graph] = 1;
              }
              if (lane == 0) seen[node] |= found;
              any = true;
            }
          }
          if (lane == 0) then[node] = found;
        }
        if (!T::any(any)) break;
        unsigned* before = now;
        now = then;
        then = before;
      }
      // So many nodes are ends of the source's paths: whole numbers, as their order may differ.
      if (endpoints && reached) atomicAdd(&reach[mine], reached);
      T::sync();
      if (rank < width) sums[source] += reach[rank];  // sources are distinct
      T::sync();

      const int deepest = level - 1;
      Rows<Id, Offset> out(out_indptr, out_indices, item, warps, lane);
      for (level = deepest; level >= (EDGES ? 0 : 1); --level) {
        out.start(warp);
        for (int node = warp; node < n; node += warps, out.shift()) {
          const Offset cell = static_cast<Offset>(node) * SOURCES + mine;
          out.ahead(node);
          const bool here = levels[cell] == level;
          const unsigned those = __ballot_sync(WARP_LANES, here) & EVERY;
          if (lane == 0) then[node] = those;
          if (!those) continue;
          const Real own = here ? paths[cell] : Real(0);
          Real sum = 0;
          if (level < deepest) {
            int other = out.other;
            for (Offset e = out.begin; e < out.stop; e += 32) {
              const int many = min(static_cast<Offset>(32), out.stop - e);
              if (e > out.begin) other = out.load(e, out.stop);
              const unsigned mask = lane < many ? now[other] & those : 0;
              sum += gather<Real, Offset, SOURCES, PACKED>(paths, other, mask, many);
              if (EDGES)
                for (int i = 0; i < many; i += SLOTS) {
                  const unsigned its = __shfl_sync(WARP_LANES, mask, i + slot);
                  const int far = __shfl_sync(WARP_LANES, other, i + slot);
                  double part = 0;
                  if (its >> mine & 1)
                    part = static_cast<double>(own) * paths[static_cast<Offset>(far) * SOURCES + mine];
                  for (int step = SOURCES / 2; step > 0; step /= 2)
                    part += __shfl_xor_sync(WARP_LANES, part, step);
                  if (mine == 0 && part != 0) arcs[out_indptr[item.first_node] + e + i + slot] += part;
                }
            }
            for (int step = SOURCES; step < 32; step *= 2)
              sum += __shfl_xor_sync(WARP_LANES, sum, step);
          }
          const Real dependency = own * sum;
          if (here && slot == 0) paths[cell] = inverse(own) + sum;  // (1 + dependency) / own
          double added = here && node != source ? dependency + (endpoints ? 1.0 : 0.0) : 0.0;
          for (int step = SOURCES / 2; step > 0; step /= 2)
            added += __shfl_xor_sync(WARP_LANES, added, step);
          if (lane == 0) sums[node] += added;
        }
        T::sync();
        unsigned* before = now;
        now = then;
        then = before;
      }
    }
    T::sync();
    for (int node = rank; node < n; node += size) nodes[item.slot + node] = sums[node];
  }
}
