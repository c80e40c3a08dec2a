// Strongly connected components: numbers that spread along edges, both ways.
//
// As in ECL-SCC (Alabandi, Sands, Biros and Burtscher, 2023): each node has a number of its own, and
// learns the largest number of the nodes that reach it, and of those that it reaches. If both are
// one node's, it is in that node's component. Edges between nodes that learned others are cut, and
// the nodes that are left learn again.
//
// instance: spread<int>
// instance: spread<long long>
#include "centrality/rows.cuh"

using penstock::ALL;
using penstock::over_rows;
using penstock::THREADS;

constexpr int LONGEST = 2048;  // edges of a row for one warp

template <typename Id>
struct Of;
template <>
struct Of<int> {
  using Number = unsigned;
  using Pair = uint2;
};
template <>
struct Of<long long> {
  using Number = unsigned long long;
  using Pair = ulonglong2;
};

// Spread what a node learned along its edges, once, in any order of threads.
//
// list            (count,) the nodes that are left
// mask, inverse   the node of a number is (number ^ mask) * inverse
// before          what nodes had learned when edges were cut; null: none are
// now             what they have learned: of those that reach a node (x), and that it reaches (y)
// grew            set if a number grew
template <typename Id>
__global__ void __launch_bounds__(THREADS)
    spread(long long count, const long long* list, const long long* indptr, const Id* indices,
           typename Of<Id>::Number mask, typename Of<Id>::Number inverse,
           const typename Of<Id>::Pair* before, typename Of<Id>::Pair* now, int* grew) {
  using Number = typename Of<Id>::Number;
  using Pair = typename Of<Id>::Pair;
  const int lane = threadIdx.x % 32;
  bool mine = false;
  // Others write: past the cache of a multiprocessor, which would keep old numbers.
  auto learned = [&](long long node) { return __ldcg(now + node); };
  auto node_of = [&](Number number) { return static_cast<long long>((number ^ mask) * inverse); };
  auto raise = [&](Number* number, Number to) { mine |= atomicMax(number, to) < to; };
  over_rows(
      count, list, indptr, LONGEST, [&](long long row) { return indptr[row] < indptr[row + 1]; },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        const Pair own = learned(row), group = before ? before[row] : own;
        // What reaches a node that reaches this one: long paths take few launches.
        const Number into = max(own.x, learned(node_of(own.x)).x);
        Number out = max(own.y, learned(node_of(own.y)).y);
        for (long long e = begin + 32 * warp + lane; e < end; e += 32 * warps) {
          const long long other = static_cast<long long>(__ldcs(indices + e));
          if (before) {
            const Pair its = before[other];
            if (its.x != group.x || its.y != group.y) continue;
          }
          const Pair its = learned(other);
          if (its.x < into) raise(&now[other].x, into);
          out = max(out, its.y);
        }
        for (int step = 16; step > 0; step /= 2) out = max(out, __shfl_xor_sync(ALL, out, step));
        if (lane == 0 && into > own.x) raise(&now[row].x, into);
        if (lane == 0 && out > own.y) raise(&now[row].y, out);
      });
  if (__syncthreads_or(mine) && threadIdx.x == 0) *grew = 1;
}
