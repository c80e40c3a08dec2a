// Which edges are kept apart for validation and test: the draws are naive/holdout.py's.
#include "grid.cuh"
#include "philox.cuh"

// instance: split_edges<true>
// instance: split_edges<false>

using penstock::u32;
using penstock::u64;

template <bool Directed>
__global__ void split_edges(const long long* __restrict__ sources,
                            const long long* __restrict__ targets,
                            const int* __restrict__ relations,  // null without relations
                            u64 seed, u32 stream, long long valid_from, long long test_from,
                            long long edges, signed char* __restrict__ splits) {
  for (long long e = penstock::thread_number(); e < edges; e += penstock::thread_count()) {
    u64 u = sources[e], v = targets[e];
    if (!Directed && u > v) {
      const u64 larger = u;
      u = v;
      v = larger;
    }
    const u64 which = (u << 32 | u >> 32) ^ v;
    const u32 step = relations ? static_cast<u32>(relations[e]) : 0u;
    const long long draw = penstock::philox4x32(seed, stream, which, step).x;
    splits[e] = (draw >= valid_from) + (draw >= test_from);
  }
}
