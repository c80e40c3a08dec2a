// R-MAT: names and meaning are naive/rmat.py's. Whatever is decided is decided in integers, or in
// exactly rounded steps, so that every bit is what the CPU draws.
#include "grid.cuh"
#include "philox.cuh"

// instance: rmat_edges<true>
// instance: rmat_edges<false>
// instance: rmat_weights<true>
// instance: rmat_weights<false>
// instance: rmat_relations<true>
// instance: rmat_relations<false>
// instance: mark_ends<true>
// instance: mark_ends<false>

using penstock::philox4x32;
using penstock::thread_count;
using penstock::thread_number;
using penstock::u32;
using penstock::u64;

namespace {

constexpr int kLevels = 8;  // quadrants chosen from one Philox draw, 16 bits each

__device__ __forceinline__ void choose(u32 bits, u32 a, u32 ab, u32 abc, u32& u, u32& v) {
  const u32 down = bits >= ab;
  const u32 right = (bits >= a) ^ down ^ (bits >= abc);
  u = u << 1 | down;
  v = v << 1 | right;
}

// The first word drawn for a pair of ends; without Ordered both directions draw the same.
template <bool Ordered>
__device__ __forceinline__ u32 pair_word(u64 seed, u32 stream, int source, int target) {
  u32 first = source, second = target;
  if (!Ordered && first > second) {
    first = target;
    second = source;
  }
  return philox4x32(seed, stream, static_cast<u64>(first) << 32 | second, 0).x;
}

}  // namespace

template <bool Named>
__global__ void rmat_edges(u64 seed, u32 stream, int scale, u32 a, u32 ab, u32 abc, u64 first,
                           long long count, const int* __restrict__ names,
                           int* __restrict__ sources, int* __restrict__ targets) {
  const int steps = (scale + kLevels - 1) / kLevels;
  const int extra = steps * kLevels - scale;  // levels drawn beyond scale, dropped at the end
  for (long long i = thread_number(); i < count; i += thread_count()) {
    u32 u = 0, v = 0;
    for (int step = 0; step < steps; ++step) {
      const uint4 words = philox4x32(seed, stream, first + i, step);
      const u32 each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        choose(each[word] & 0xFFFFu, a, ab, abc, u, v);
        choose(each[word] >> 16, a, ab, abc, u, v);
      }
    }
    u >>= extra;
    v >>= extra;
    sources[i] = Named ? names[u] : static_cast<int>(u);
    targets[i] = Named ? names[v] : static_cast<int>(v);
  }
}

template <bool Ordered>
__global__ void rmat_weights(u64 seed, u32 stream, const int* __restrict__ sources,
                             const int* __restrict__ targets, long long count, double low,
                             double width, float top, float* __restrict__ weights) {
  for (long long i = thread_number(); i < count; i += thread_count()) {
    const u32 word = pair_word<Ordered>(seed, stream, sources[i], targets[i]);
    const double share = penstock::uniform(word);
    // Not fused: the CPU rounds twice.
    const double weight = __dadd_rn(low, __dmul_rn(share, width));
    weights[i] = fminf(__double2float_rn(weight), top);
  }
}

template <bool Ordered>
__global__ void rmat_relations(u64 seed, u32 stream, const int* __restrict__ sources,
                               const int* __restrict__ targets, long long count, u32 relations,
                               int* __restrict__ drawn) {
  for (long long i = thread_number(); i < count; i += thread_count()) {
    drawn[i] = __umulhi(pair_word<Ordered>(seed, stream, sources[i], targets[i]), relations);
  }
}

// Every writer writes the same value, so it does not matter who is last.
template <bool KeepLoops>
__global__ void mark_ends(const int* __restrict__ sources, const int* __restrict__ targets,
                          long long count, bool* __restrict__ touched) {
  for (long long i = thread_number(); i < count; i += thread_count()) {
    if (KeepLoops || sources[i] != targets[i]) {
      touched[sources[i]] = true;
      touched[targets[i]] = true;
    }
  }
}
