// Brandes' betweenness of small graphs, from SOURCES sources at once: one lane each.
//
// A warp takes a node, and 32 / SOURCES of its edges at a time. Both passes gather level by level:
// the forward pass gathers path counts over incoming edges, the backward pass shares
// (1 + dependency) / paths over outgoing ones. No atomics are needed, and sums have the same order
// in every run. Levels are not looked up: a node without paths so far has neighbours of the last
// level, of no level, and of the level being found; in the backward pass those of the next level
// are the last ones with a share. Values of even levels are positive, of odd levels negative, and 0
// means none so far. Path counts of the forward pass are kept in device memory for the backward
// pass.
//
// Loads from shared memory bound both passes, so counts may be narrower than shares: as floats,
// integers below 2^24 are exact. Then the forward pass has all SOURCES at once, and the backward
// pass as many at a time as fit into the same memory.
//
// instance: betweenness<int, float, float, unsigned char, 32, true, false, false>
// instance: betweenness<int, float, float, unsigned char, 32, false, false, false>
// instance: betweenness<int, float, double, unsigned char, 32, true, false, false>
// instance: betweenness<int, float, double, unsigned char, 32, false, false, false>
// instance: betweenness<int, float, double, unsigned char, 32, false, false, true>
// instance: betweenness<int, float, double, unsigned char, 16, false, false, false>
// instance: betweenness<int, double, double, unsigned char, 16, true, false, true>
// instance: betweenness<int, double, double, unsigned char, 16, false, false, false>
// instance: betweenness<int, double, double, unsigned char, 8, false, false, true>
// instance: betweenness<int, double, double, unsigned int, 32, false, true, false>
// instance: betweenness<long long, double, double, unsigned int, 32, false, true, true>
#include "centrality/team.cuh"

using penstock::Item;
using penstock::Team;

constexpr unsigned WARP_LANES = ~0u;

template <bool LEFT, typename A, typename B>
struct Choose { typedef A type; };
template <typename A, typename B>
struct Choose<false, A, B> { typedef B type; };

__device__ __forceinline__ bool above(float value) { return value > 0; }
__device__ __forceinline__ bool below(float value) { return value < 0; }
__device__ __forceinline__ bool above(double value) { return __double2hiint(value) > 0; }
__device__ __forceinline__ bool below(double value) { return __double2hiint(value) < 0; }

// Add up the values of a sign at ``other * SOURCES + source``, of the lanes' edges; edges beyond
// `lanes` name a node whose values are 0, so that always four loads are in flight.
template <bool POSITIVE, typename Real, typename Offset, int SOURCES>
__device__ __forceinline__ Real gather(const Real* values, unsigned other, int lanes) {
  constexpr int SLOTS = 32 / SOURCES, TOGETHER = 4;
  const int lane = threadIdx.x & 31, source = lane % SOURCES, slot = lane / SOURCES;
  Real sum = 0;
  for (int i = 0; i < lanes; i += TOGETHER * SLOTS) {
    Real value[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
      const unsigned node = __shfl_sync(WARP_LANES, other, i + k * SLOTS + slot);
      value[k] = values[static_cast<Offset>(node) * SOURCES + source];
    }
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k)
      if (POSITIVE ? above(value[k]) : below(value[k])) sum += value[k];
  }
  return POSITIVE ? sum : -sum;
}

template <typename Real, typename Offset, int SOURCES>
__device__ __forceinline__ Real gather(bool positive, const Real* values, unsigned other,
                                       int lanes) {
  return positive ? gather<true, Real, Offset, SOURCES>(values, other, lanes)
                  : gather<false, Real, Offset, SOURCES>(values, other, lanes);
}

// The rows of a graph for a warp, largest first, in alternating direction, so that all warps have
// about equal numbers of edges. While one is computed, the first 32 indices of the next one, and
// the bounds of the one after that, are loaded.
template <typename Id, typename Offset, typename Node>
struct Rows {
  const long long* indptr;
  const Id* indices;
  const Node* order;  // null: in their order
  Offset base;
  unsigned first_node;  // its low bits: enough for differences within a graph
  int nodes, last, warps, warp, lane;
  int node, next_node, far_node;
  Offset begin, stop, next_begin, next_stop, far_begin, far_stop;
  unsigned other, next_other;  // the other end of the lane's edge, of the first 32 of a row

  __device__ __forceinline__ Rows(const long long* every_indptr, const Id* every_index,
                                  const Item& item, const Node* order, int last, int warps,
                                  int warp, int lane)
      : indptr(every_indptr + item.first_node), indices(every_index + indptr[0]), order(order),
        base(static_cast<Offset>(indptr[0])), first_node(static_cast<unsigned>(item.first_node)),
        nodes(item.nodes), last(last), warps(warps), warp(warp), lane(lane) {}
  __device__ __forceinline__ int place(int turn) const {
    const int at = turn * warps + (turn & 1 ? warps - 1 - warp : warp);
    return at >= last ? nodes : order ? static_cast<int>(order[at]) : at;
  }
  __device__ __forceinline__ void bounds(int node, Offset* from, Offset* to) const {
    *from = *to = 0;
    if (node < nodes) {
      *from = static_cast<Offset>(indptr[node]) - base;
      *to = static_cast<Offset>(indptr[node + 1]) - base;
    }
  }
  __device__ __forceinline__ unsigned load(Offset at, Offset end) const {
    return at + lane < end ? static_cast<unsigned>(indices[at + lane]) - first_node : nodes;
  }
  __device__ __forceinline__ void start() {
    node = place(0);
    next_node = place(1);
    bounds(node, &begin, &stop);
    bounds(next_node, &next_begin, &next_stop);
    other = load(begin, stop);
  }
  __device__ __forceinline__ void ahead(int turn) {
    next_other = load(next_begin, next_stop);
    far_node = place(turn + 2);
    bounds(far_node, &far_begin, &far_stop);
  }
  __device__ __forceinline__ void shift() {
    node = next_node, begin = next_begin, stop = next_stop, other = next_other;
    next_node = far_node, next_begin = far_begin, next_stop = far_stop;
  }
};

// Whether a count of paths is exact, if shares have more digits, or else finite.
template <bool EXACT>
__device__ __forceinline__ bool counted(float count) {
  return EXACT ? count < 16777216.0f : isfinite(count);
}
template <bool EXACT>
__device__ __forceinline__ bool counted(double count) { return isfinite(count); }

__device__ __forceinline__ double inverse(double value) { return __drcp_rn(value); }
__device__ __forceinline__ float inverse(float value) { return __frcp_rn(value); }

constexpr int BINS = 256;

// Write a block's order of the nodes 0 .. n: most edges first, nodes without incoming edges last;
// return the number of the others. heads: memory for BINS numbers.
template <typename Node>
__device__ int sort_rows(const long long* in, const long long* out, int n, int* heads,
                         Node* order) {
  auto bin = [&](int node) {
    const long long coming = in[node + 1] - in[node];
    const long long edges = coming + out[node + 1] - out[node];
    return coming == 0 ? BINS - 1 : static_cast<int>(max(0LL, BINS - 2 - edges));
  };
  for (int i = threadIdx.x; i < BINS; i += blockDim.x) heads[i] = 0;
  __syncthreads();
  for (int node = threadIdx.x; node < n; node += blockDim.x) atomicAdd(&heads[bin(node)], 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr int EACH = BINS / 32;
    const int lane = threadIdx.x;
    int mine = 0;
    for (int i = 0; i < EACH; ++i) mine += heads[lane * EACH + i];
    int before = mine;
    for (int step = 1; step < 32; step *= 2) {
      const int less = __shfl_up_sync(WARP_LANES, before, step);
      if (lane >= step) before += less;
    }
    before -= mine;
    for (int i = 0; i < EACH; ++i) {
      const int here = heads[lane * EACH + i];
      heads[lane * EACH + i] = before;
      before += here;
    }
  }
  __syncthreads();
  const int known = heads[BINS - 1];
  __syncthreads();
  for (int node = threadIdx.x; node < n; node += blockDim.x)
    order[atomicAdd(&heads[bin(node)], 1)] = static_cast<Node>(node);
  __syncthreads();
  return known;
}

// in_*, out_*   edges into and out of each node; for an undirected graph the same
// scratch       instead of shared memory if not null: `stride` bytes per block
// stashes       for path counts: `stash_stride` bytes per team
// nodes         a value for each node of an item, at its slot
// arcs          of the outgoing edges, added to; a graph must be one item
// failed        of each graph, set if its paths overflow a Count, or its levels
//               a Level
template <typename Id, typename Count, typename Real, typename Level, int SOURCES, bool WARP,
          bool GLOBAL, bool EDGES>
__global__ void __launch_bounds__(1024)
    betweenness(const Item* items, long long count, const long long* in_indptr,
                const Id* in_indices, const long long* out_indptr, const Id* out_indices,
                const long long* sources, char* stashes, long long stash_stride, char* scratch,
                long long stride, bool endpoints, double* nodes, double* arcs,
                unsigned char* failed) {
  typedef Team<WARP> T;
  // Of an edge or a value in a graph; one whose nodes fit in a block has fewer edges than 2^31.
  typedef typename Choose<GLOBAL, unsigned long long, unsigned>::type Offset;
  typedef typename Choose<GLOBAL, unsigned, unsigned short>::type Node;
  constexpr int BACK = SOURCES * sizeof(Count) / sizeof(Real);  // sources of a backward pass
  constexpr Level UNSEEN = static_cast<Level>(~0u);
  extern __shared__ char shared[];
  char* memory = GLOBAL ? scratch + blockIdx.x * stride : shared + T::place(stride);
  Count* stash = reinterpret_cast<Count*>(stashes + T::item() * stash_stride);
  for (long long number = T::item(); number < count; number += T::items()) {
    const Item item = items[number];
    const int n = item.nodes;
    T::sync();  // reads of the previous item are complete
    const Offset cells = static_cast<Offset>(n) * SOURCES;
    double* sums = reinterpret_cast<double*>(memory);
    Count* counts = reinterpret_cast<Count*>(sums + n);  // and those of an absent node: 0
    Real* values = reinterpret_cast<Real*>(counts);
    int* reach = reinterpret_cast<int*>(counts + cells + SOURCES);
    Node* order = reinterpret_cast<Node*>(reach + SOURCES);
    Level* levels = reinterpret_cast<Level*>(order + n);
    const int rank = T::rank(), size = T::size();
    const int warp = rank / 32, warps = size / 32;
    const int lane = rank % 32, mine = lane % SOURCES, slot = lane / SOURCES;
    bool wrong = false;
    int known = n;  // the number of nodes, the first ones, with incoming edges

    for (int node = rank; node < n; node += size) sums[node] = 0;
    if (WARP) {
      order = nullptr;
    } else {
      __shared__ int bins[GLOBAL ? BINS : 1];
      int* heads = GLOBAL ? bins : reinterpret_cast<int*>(counts);  // still free
      known = sort_rows(in_indptr + item.first_node, out_indptr + item.first_node, n, heads, order);
    }
    for (long long first = item.first_source; first < item.last_source; first += SOURCES) {
      const int width =
          static_cast<int>(min(static_cast<long long>(SOURCES), item.last_source - first));
      const bool used = mine < width;
      T::sync();
      for (Offset i = rank; i < cells + SOURCES; i += size) counts[i] = 0;
      for (Offset i = rank; i < cells; i += size) levels[i] = UNSEEN;
      if (rank < SOURCES) reach[rank] = 0;
      T::sync();
      if (rank < width) {
        const Offset its = static_cast<Offset>(sources[first + rank] - item.first_node);
        const Offset cell = its * SOURCES + rank;
        levels[cell] = 0;
        counts[cell] = 1;
      }
      T::sync();

      bool any = false;
      for (int i = warp; i < width; i += warps) {  // the first level: neighbours of a source
        const long long its = sources[first + i];
        int found = 0;
        for (long long e = out_indptr[its] + lane; e < out_indptr[its + 1]; e += 32) {
          if (out_indices[e] == its) continue;
          const Offset cell = static_cast<Offset>(out_indices[e] - item.first_node) * SOURCES + i;
          levels[cell] = 1;
          counts[cell] = -1;
          ++found;
        }
        if (found) any = true;
        if (endpoints && found) atomicAdd(&reach[i], found);
      }
      int level = 1, reached = 0;
      Rows<Id, Offset, Node> in(in_indptr, in_indices, item, order, known, warps, warp, lane);
      while (T::any(any)) {
        any = false;
        if (++level == UNSEEN) {
          wrong = true;
          break;
        }
        in.start();
        for (int turn = 0; turn * warps < known; ++turn, in.shift()) {
          const Offset cell = static_cast<Offset>(in.node) * SOURCES + mine;
          const bool open = used && in.node < n && counts[cell] == 0;
          in.ahead(turn);
          if (!__any_sync(WARP_LANES, open)) continue;
          Count sum = 0;
          unsigned other = in.other;
          for (Offset e = in.begin; e < in.stop; e += 32) {
            const int many = min(static_cast<Offset>(32), in.stop - e);
            if (e > in.begin) other = in.load(e, in.stop);
            sum += gather<Count, Offset, SOURCES>(level & 1, counts, other, many);
          }
          for (int step = SOURCES; step < 32; step *= 2)
            sum += __shfl_xor_sync(WARP_LANES, sum, step);
          if (open && sum > 0) {
            any = true;
            if (slot == 0) {
              counts[cell] = level & 1 ? -sum : sum;
              levels[cell] = level;
              stash[cell] = sum;
              ++reached;
              wrong |= !counted<(sizeof(Count) < sizeof(Real))>(sum);
            }
          }
        }
      }
      // The number of nodes at the ends of the source's paths: an integer, as their order may
      // differ.
      if (endpoints && reached) atomicAdd(&reach[mine], reached);
      if (T::any(wrong)) break;
      if (rank < width)  // sources are distinct
        sums[sources[first + rank] - item.first_node] += reach[rank];

      const int deepest = level - 1;
      for (int part = 0; BACK < SOURCES ? part < width : part == 0; part += BACK) {
        T::sync();  // reads of counts, or of the previous part's sums and shares, are complete
        for (Offset i = rank; i < static_cast<Offset>(n) * BACK; i += size) values[i] = 0;
        const int its = part + lane % BACK;  // the lane's source, of the first one's batch
        const int source =
            its < width ? static_cast<int>(sources[first + its] - item.first_node) : -1;
        T::sync();
        Rows<Id, Offset, Node> out(out_indptr, out_indices, item, order, n, warps, warp, lane);
        for (level = deepest; level >= (EDGES ? 0 : 1); --level) {
          out.start();
          for (int turn = 0; turn * warps < (level ? known : n); ++turn, out.shift()) {
            const int node = out.node;
            const Offset cell = static_cast<Offset>(node) * SOURCES + its;
            const bool here = node < n && levels[cell] == level;
            out.ahead(turn);
            if (!__any_sync(WARP_LANES, here)) continue;
            Real own = 1;
            if (here && level > 1) own = stash[cell];
            Real sum = 0;
            if (level < deepest) {
              unsigned other = out.other;
              for (Offset e = out.begin; e < out.stop; e += 32) {
                const int many = min(static_cast<Offset>(32), out.stop - e);
                if (e > out.begin) other = out.load(e, out.stop);
                sum += gather<Real, Offset, BACK>(level & 1, values, other, many);
                if (EDGES)
                  for (int i = 0; i < many; i += 32 / BACK) {
                    const int at = i + lane / BACK;
                    const unsigned far = __shfl_sync(WARP_LANES, other, at);
                    const Real share = values[static_cast<Offset>(far) * BACK + lane % BACK];
                    double added = 0;
                    if (here && (level & 1 ? above(share) : below(share)))
                      added = static_cast<double>(own) * fabs(static_cast<double>(share));
                    for (int step = BACK / 2; step > 0; step /= 2)
                      added += __shfl_xor_sync(WARP_LANES, added, step);
                    if (lane % BACK == 0 && added != 0)
                      arcs[out_indptr[item.first_node] + e + at] += added;
                  }
              }
              for (int step = BACK; step < 32; step *= 2)
                sum += __shfl_xor_sync(WARP_LANES, sum, step);
            }
            if (here && lane < BACK) {
              const Real share = inverse(own) + sum;  // (1 + dependency) / own
              values[static_cast<Offset>(node) * BACK + lane] = level & 1 ? -share : share;
            }
            double added = here && node != source ? own * sum + (endpoints ? 1.0 : 0.0) : 0.0;
            for (int step = BACK / 2; step > 0; step /= 2)
              added += __shfl_xor_sync(WARP_LANES, added, step);
            if (lane == 0) sums[node] += added;
          }
          T::sync();
        }
      }
    }
    if (wrong) failed[item.graph] = 1;
    T::sync();
    for (int node = rank; node < n; node += size) nodes[item.slot + node] = sums[node];
  }
}
