// Breadth-first searches of one large graph by the whole GPU, from up to 256 sources at once.
//
// Each source is a bit of a node's WORDS words, which lie in a sector of memory: an edge gathers the
// bits of all sources. A level is searched from its nodes, which mark their neighbours, or if they
// are many from all nodes that some source has not reached.
//
// instance: push<int>
// instance: push<long long>
// instance: pull<int>
// instance: pull<long long>
// instance: settle
// instance: in_all
#include "centrality/rows.cuh"
#include "grid.cuh"

using penstock::ALL;
using penstock::over_rows;
using penstock::THREADS;
using penstock::WARPS;

typedef unsigned long long Word;
constexpr int WORDS = 4, SLOTS = 32 / WORDS;
constexpr int LONGEST = 2048;  // edges of a row for one warp

// now   (nodes, WORDS) the sources that reached a node in the last level; seen: or before
// then  those that reach it in this one, 0 before

// stamps  (nodes,) the last level in which a node was listed
// found   nodes that are reached, in any order; size: their number
template <typename Id>
__global__ void __launch_bounds__(THREADS)
    push(long long count, const long long* list, const long long* indptr, const Id* indices,
         int level, const Word* now, const Word* seen, Word* then, int* stamps, long long* found,
         unsigned long long* size) {
  const int lane = threadIdx.x % 32, word = lane % WORDS, slot = lane / WORDS;
  over_rows(
      count, list, indptr, LONGEST, [](long long) { return true; },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        const Word own = now[row * WORDS + word];
        for (long long e = begin + SLOTS * warp; e < end; e += SLOTS * warps) {
          bool fresh = false;
          long long other = 0;
          if (e + slot < end) {
            other = static_cast<long long>(indices[e + slot]);
            const Word more = own & ~seen[other * WORDS + word];
            fresh = more != 0;
            if (fresh) atomicOr(&then[other * WORDS + word], more);
          }
          const unsigned of_slot = __ballot_sync(ALL, fresh) >> (slot * WORDS) & ((1u << WORDS) - 1);
          const bool first = word == 0 && of_slot && atomicExch(&stamps[other], level) != level;
          const unsigned firsts = __ballot_sync(ALL, first);
          if (firsts == 0) continue;
          unsigned long long place = 0;
          if (lane == 0) place = atomicAdd(size, static_cast<unsigned long long>(__popc(firsts)));
          place = __shfl_sync(ALL, place, 0) + __popc(firsts & ((1u << lane) - 1));
          if (first) found[place] = other;
        }
      });
}

// indptr, indices  edges into each node
// width            number of sources
template <typename Id>
__global__ void __launch_bounds__(THREADS)
    pull(long long count, const long long* indptr, const Id* indices, int width, const Word* now,
         const Word* seen, Word* then) {
  __shared__ Word of_warps[WARPS][WORDS];
  const int lane = threadIdx.x % 32, word = lane % WORDS, slot = lane / WORDS;
  auto sources = [&](int which) {
    const int bits = min(max(width - 64 * which, 0), 64);
    return bits == 0 ? Word(0) : ~Word(0) >> (64 - bits);
  };
  const Word mine = sources(word);
  over_rows(
      count, nullptr, indptr, LONGEST,
      [&](long long row) {
        bool open = false;
        for (int i = 0; i < WORDS; ++i) open |= seen[row * WORDS + i] != sources(i);
        return open;
      },
      [&](long long row, long long begin, long long end, int warp, int warps) {
        const Word open = mine & ~seen[row * WORDS + word];
        Word sum = 0;
        for (long long e = begin + 32 * warp; e < end; e += 32 * warps) {
          const long long at = e + lane;
          const Id other = at < end ? __ldcs(indices + at) : Id(0);
          const int many = static_cast<int>(min(32LL, end - e));
          Word value[WORDS];
#pragma unroll
          for (int k = 0; k < WORDS; ++k) {
            const int i = k * SLOTS + slot;
            const Id its = __shfl_sync(ALL, other, i);
            value[k] = i < many ? now[static_cast<long long>(its) * WORDS + word] : 0;
          }
#pragma unroll
          for (int k = 0; k < WORDS; ++k) sum |= value[k];
          Word all = sum;
          for (int step = WORDS; step < 32; step *= 2) all |= __shfl_xor_sync(ALL, all, step);
          if (__all_sync(ALL, (open & ~all) == 0)) break;
        }
        for (int step = WORDS; step < 32; step *= 2) sum |= __shfl_xor_sync(ALL, sum, step);
        if (warps > 1) {
          if (slot == 0) of_warps[warp][word] = sum;
          __syncthreads();
          if (warp == 0)
            for (int i = 1; i < WARPS; ++i) sum |= of_warps[i][word];
          __syncthreads();  // before the next long row
        }
        if (warp == 0 && slot == 0) then[row * WORDS + word] = sum & open;
      });
}

// Add what `then` found to the sums of nodes, all or listed ones.
//
// flags  (WORDS + 1,) set: the sources that found a node; added to: the edges out of the nodes
__global__ void __launch_bounds__(THREADS)
    settle(long long count, const long long* list, const long long* out_indptr, int level,
           const Word* then, Word* seen, long long* reached, double* total, double* inverse,
           Word* flags) {
  __shared__ Word of_block[WORDS + 1];
  if (threadIdx.x <= WORDS) of_block[threadIdx.x] = 0;
  __syncthreads();
  Word some[WORDS] = {}, edges = 0;
  for (long long i = penstock::thread_number(); i < count; i += penstock::thread_count()) {
    const long long node = list ? list[i] : i;
    int many = 0;
    for (int word = 0; word < WORDS; ++word) {
      const Word more = then[node * WORDS + word];
      if (!more) continue;
      seen[node * WORDS + word] |= more;
      some[word] |= more;
      many += __popcll(more);
    }
    if (!many) continue;
    reached[node] += many;
    total[node] += static_cast<double>(many) * level;
    inverse[node] += static_cast<double>(many) / level;
    edges += out_indptr[node + 1] - out_indptr[node];
  }
  for (int word = 0; word < WORDS; ++word)
    if (some[word]) atomicOr(&of_block[word], some[word]);
  if (edges) atomicAdd(&of_block[WORDS], edges);
  __syncthreads();
  if (threadIdx.x < WORDS && of_block[threadIdx.x]) atomicOr(&flags[threadIdx.x], of_block[threadIdx.x]);
  if (threadIdx.x == WORDS && of_block[WORDS]) atomicAdd(&flags[WORDS], of_block[WORDS]);
}

// Leave in `flags` the sources that every node has seen.
__global__ void __launch_bounds__(THREADS) in_all(long long nodes, const Word* seen, Word* flags) {
  Word all[WORDS];
  for (int word = 0; word < WORDS; ++word) all[word] = ~Word(0);
  for (long long node = penstock::thread_number(); node < nodes; node += penstock::thread_count())
    for (int word = 0; word < WORDS; ++word) all[word] &= seen[node * WORDS + word];
  for (int word = 0; word < WORDS; ++word) {
    for (int half = 16; half > 0; half /= 2) all[word] &= __shfl_xor_sync(ALL, all[word], half);
    if (threadIdx.x % 32 == 0 && ~all[word]) atomicAnd(&flags[word], all[word]);
  }
}
