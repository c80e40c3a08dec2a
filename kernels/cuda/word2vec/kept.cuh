// The kept words of a piece of a sentence, read 32 places at a time, and their windows' negatives.
#pragma once
#include "word2vec/columns.cuh"

namespace penstock {

constexpr int kQueue = 64;        // kept words in shared memory: twice the half window, and 33
constexpr int kFirstIndex = 32;   // of a piece's first centre; words of its context precede it
constexpr u32 kAlways = ~u32{0};  // as a threshold: the word is kept

// kernels/word2vec_rules.py's Noise, and the counters of draws.
struct Draws {
  const u32* __restrict__ chance;
  const int* __restrict__ alias;
  const u32* __restrict__ keep;  // or null: every word is kept
  u32 vocabulary;
  u64 seed;
  u32 sample_stream, negative_stream;
  int negatives, a_window, shared_places;  // a_window: draws of Philox

  __device__ __forceinline__ int of(u32 slot_word, u32 coin) const {
    const u32 slot = __umulhi(slot_word, vocabulary);
    return coin < __ldg(chance + slot) ? static_cast<int>(slot) : __ldg(alias + slot);
  }
};

struct Kept {
  const Draws& draws;
  const int lane;
  int* words;       // (kQueue,) in shared memory, as the next two
  u32* places;      // modulo 2**32, as draws count them
  int* negatives;   // (64,): of the windows from batch to batch_end

  const int* tokens;  // of the sentence
  u64 which;
  i64 length, high, next;  // the sentence's; the piece's end; the next place to be read
  int ahead;               // this lane's token of the next place
  int tail, end;           // kept words that were read, and centres among them
  int batch, batch_end;
  u32 counted;             // this lane's words without negative numbers

  __device__ __forceinline__ bool keeps(int token, i64 place) const {
    if (token < 0) return false;
    if (!draws.keep) return true;
    const u32 below = __ldg(draws.keep + token);
    return below == kAlways ||
           philox4x32(draws.seed, draws.sample_stream, which, static_cast<u32>(place)).x < below;
  }

  __device__ __forceinline__ int token_at(i64 place) const {
    return place < length ? __ldg(tokens + place) : -1;
  }

  // Whether the piece from low has a centre.
  __device__ __forceinline__ bool begin(i64 low) {
    next = low;
    tail = end = batch = batch_end = kFirstIndex;
    counted = 0;
    ahead = token_at(next + lane);
    while (tail == kFirstIndex && next < high) read();
    return end > kFirstIndex;
  }

  // 32 places more.
  __device__ __forceinline__ void read() {
    const int token = ahead;
    const i64 place = next + lane;
    next += kLanes;
    ahead = token_at(next + lane);
    const bool kept = keeps(token, place);
    const u32 mask = __ballot_sync(kAll, kept), own = __ballot_sync(kAll, place < high);
    if (kept) {
      const int index = tail + __popc(mask & ((1u << lane) - 1)) & (kQueue - 1);
      words[index] = token;
      places[index] = static_cast<u32>(place);
    }
    counted += token >= 0 && place < high;
    tail += __popc(mask);
    end += __popc(mask & own);
    __syncwarp();
  }

  // Read the words up to the index, or to the sentence's end.
  __device__ __forceinline__ void reach(int index) {
    while (tail <= index && next < length) read();
  }

  // Read the last kept words before low, at most count; return their number.
  __device__ __forceinline__ int look_back(i64 low, int count) {
    int found = 0;
    while (found < count && low > 0) {
      const i64 from = low > kLanes ? low - kLanes : 0, place = from + lane;
      const int token = place < low ? __ldg(tokens + place) : -1;
      const bool kept = keeps(token, place);
      const u32 mask = __ballot_sync(kAll, kept);
      const int after = found + __popc(mask >> lane) - 1;  // kept ones between it and the piece
      if (kept && after < count) words[kFirstIndex - 1 - after] = token;
      found += __popc(mask);
      low = from;
    }
    __syncwarp();
    return found < count ? found : count;
  }

  // Whether the windows at two words share their negatives.
  __device__ __forceinline__ bool share(int one, int other) const {
    const u32 by = draws.shared_places;
    return places[one & (kQueue - 1)] / by == places[other & (kQueue - 1)] / by;
  }

  // The lane's output row of the window at a word: the centre's, then those of its negatives; -1
  // for none.
  __device__ __forceinline__ int target(int index) {
    const int centre = words[index & (kQueue - 1)];
    if (draws.negatives == 0) return lane == 0 ? centre : -1;
    if (index >= batch_end) draw(index);
    if (lane == 0) return centre;
    if (lane > draws.negatives) return -1;
    const int drawn = negatives[(index - batch) * 2 * draws.a_window + lane - 1];
    return drawn == centre ? -1 : drawn;
  }

  // The negatives of as many windows as a warp's lanes can draw for.
  __device__ __forceinline__ void draw(int index) {
    batch = index;
    const int windows = kLanes / draws.a_window;
    batch_end = batch + windows < tail ? batch + windows : tail;
    const int window = batch + lane / draws.a_window;
    __syncwarp();
    if (window < batch_end) {
      u32 place = places[window & (kQueue - 1)];
      place -= place % draws.shared_places;
      const u32 step = place * draws.a_window + lane % draws.a_window;
      const uint4 drawn = philox4x32(draws.seed, draws.negative_stream, which, step);
      negatives[2 * lane] = draws.of(drawn.x, drawn.y);
      negatives[2 * lane + 1] = draws.of(drawn.z, drawn.w);
    }
    __syncwarp();
  }
};

}  // namespace penstock
