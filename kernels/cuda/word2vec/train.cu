// Skip-gram training by the rules of kernels/word2vec_rules.py. A team has a piece of a sentence: a
// warp if 32 lanes hold a row, else the warps that do, a block. Input vectors of the words around
// the centre stay in shared memory, one slot each, from their entry into the window until they have
// left it; a word with two places has one slot. Output vectors stay in registers for a window
// (Single: centre and negatives are at most kRows) or are read from shared memory several times.
// Rows of the next window are copied while the pairs of this one are computed.
#include "word2vec/kept.cuh"

// instance: train<1, 1, true, false>
// instance: train<1, 1, false, false>
// instance: train<2, 2, true, false>
// instance: train<2, 2, true, true>
// instance: train<2, 2, false, false>
// instance: train<4, 1, true, false>
// instance: train<4, 1, false, false>
// instance: train<4, 4, true, false>
// instance: train<4, 4, true, true>
// instance: train<4, 4, false, false>

using namespace penstock;

namespace {

constexpr int kRows = 6;      // output vectors in registers
constexpr int kSteps = 8;  // floats from one context's gradients to the next's: kRows, aligned

// Choices of a launch, within the shared memory.
struct Shape {
  int half_window;
  int team;      // warps that share a sentence
  int stages;    // buffers of output vectors: 2 if they are copied ahead though not Single
  bool keeps;    // whether rows wait in shared memory for what is added to them, or are added to
                 // after every window
  int a_warp;    // floats of shared memory
};

template <int Each, int Vec, bool Single, bool Shared>
struct Trainer {
  using Row = float[Each];
  static constexpr int kWide = Columns<Each, Vec>::kWide;
  // Input vectors per batch of output vectors; fewer if changes wait for the next window, as
  // registers are full.
  static constexpr int kContexts = Shared ? 3 : 6;
  static constexpr int kPairs = kRows * kContexts;
  static constexpr int kHeld = held<kPairs>;

  const Shape& shape;
  const Draws& draws;
  float* const in;
  float* const out;
  const float* const in_share;   // of changes that are added to a row, or null: all
  const float* const out_share;
  const Columns<Each, Vec> columns;
  const int lane, warp;
  Kept kept;
  float* now;      // (slots, kWide): input vectors
  float* before;   // as they entered
  float* stage;    // (stages, targets, kWide): output vectors
  float* steps;    // (groups, contexts, kSteps): gradients
  float* sums;     // (2, team, kHeld, 32), of the block: scores, from each warp's columns
  int* contexts;   // (32,): how many places have its word | slot << 8 | floats from now to its row << 16
  SumPlace places[kHeld];

  float lr;
  int word, uses;  // the lane's slot: its word or -1, and how many places have it
  u32 untouched;   // slots whose row is in ``before`` only
  float in_part;   // in_share of the slot's word
  int target;      // the lane's output row
  float out_part;
  u32 stale;       // output rows that were copied before they were complete
  int parity;
  double loss;
  u64 pairs;

  __device__ __forceinline__ int targets() const { return draws.negatives + 1; }
  __device__ __forceinline__ int groups() const { return Single ? 1 : (targets() + kRows - 1) / kRows; }
  __device__ __forceinline__ float* stage_of(int index) const {
    return stage + (!Single && shape.stages == 2 && (index & 1) ? targets() * kWide : 0);
  }
  __device__ __forceinline__ const float* row_of(int context) const {
    return now + (contexts[context] >> 16);
  }
  __device__ __forceinline__ int slot_of(int context) const { return contexts[context] >> 8 & 0xFF; }
  __device__ __forceinline__ const float* steps_of(int group, int context) const {
    return steps + (group * 2 * shape.half_window + context) * kSteps;
  }

  // -- input vectors ------------------------------------------------------------------------------

  __device__ __forceinline__ void enter(int index) {
    const int entering = kept.words[index & (kQueue - 1)];
    const u32 same = __ballot_sync(kAll, word == entering);
    const u32 free = __ballot_sync(kAll, word < 0);
    const int slot = __ffs(same ? same : free) - 1;
    if (lane == slot) ++uses;
    if (same) return;
    if (lane == slot) {
      word = entering;
      in_part = in_share ? __ldg(in_share + entering) : 1.0f;
    }
    columns.copy_later((shape.keeps ? before : now) + slot * kWide, in, entering);
    if (shape.keeps) untouched |= 1u << slot;
  }

  __device__ __forceinline__ void leave(int index) {
    const bool mine = word == kept.words[index & (kQueue - 1)];
    if (mine) --uses;
    const u32 gone = __ballot_sync(kAll, mine && uses == 0);
    if (!gone) return;
    give_back(__ffs(gone) - 1);
    if (mine) word = -1;
  }

  __device__ __forceinline__ void give_back(int slot) {
    if (!shape.keeps || untouched >> slot & 1) return;
    Row value, old;
    columns.read(now + slot * kWide, value);
    columns.read(before + slot * kWide, old);
#pragma unroll
    for (int i = 0; i < Each; ++i) value[i] -= old[i];
    add_in(slot, value);
  }

  __device__ __forceinline__ void add_in(int slot, const Row& change) {
    const int row = __shfl_sync(kAll, word, slot);
    columns.add(in, row, change, in_share ? __shfl_sync(kAll, in_part, slot) : 1.0f);
  }

  // The row of a context has changed.
  __device__ __forceinline__ void put_in(int slot, const Row& value, const Row& change) {
    columns.write(now + slot * kWide, value);
    if (!shape.keeps) add_in(slot, change);
  }

  // -- output vectors -----------------------------------------------------------------------------

  // Copy the rows of this lane's targets; only the centre's if the others stay in registers.
  __device__ __forceinline__ void copy_targets(int index, bool centre_only) {
    float* const to = stage_of(index);
    if constexpr (Single) {  // lanes beyond the last target have none
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int row = __shfl_sync(kAll, target, k);
        if (row >= 0 && !(centre_only && k > 0)) columns.copy_later(to + k * kWide, out, row);
      }
    } else {
      for (int k = 0; k < targets(); ++k) {
        const int row = __shfl_sync(kAll, target, k);
        if (row >= 0) columns.copy_later(to + k * kWide, out, row);
      }
    }
    out_part = out_share && target >= 0 ? __ldg(out_share + target) : 1.0f;
  }

  // Which of the lanes' rows are among others.
  __device__ __forceinline__ u32 among(int rows, int others, bool same) const {
    bool hit = false;
    if constexpr (Single) {
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        hit |= rows == __shfl_sync(kAll, others, k) && !(same && k == lane);
      }
    } else {
      for (int k = 0; k < targets(); ++k) {
        hit |= rows == __shfl_sync(kAll, others, k) && !(same && k == lane);
      }
    }
    return __ballot_sync(kAll, hit && rows >= 0);
  }

  __device__ __forceinline__ void add_out(int k, int rows, float part, const Row& change) {
    const int row = __shfl_sync(kAll, rows, k);
    columns.add(out, row, change, out_share ? __shfl_sync(kAll, part, k) : 1.0f);
  }

  // -- pairs --------------------------------------------------------------------------------------

  // The scores of some contexts and the targets of a group, and their gradients.
  __device__ __forceinline__ void score(const float (&y)[kRows][Each], int group, int first,
                                        int count, u32 valid, float& lost) {
    float part[kPairs];
#pragma unroll
    for (int c = 0; c < kContexts; ++c) {
      if (first + c < count) {
        Row x;
        columns.read(row_of(first + c), x);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float sum = x[0] * y[r][0];
#pragma unroll
          for (int i = 1; i < Each; ++i) sum = fmaf(x[i], y[r][i], sum);
          part[c * kRows + r] = sum;
        }
      } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) part[c * kRows + r] = 0.0f;
      }
    }
    sum_across<kPairs>(part, lane);
    if (shape.team > 1) sum_team(part);
#pragma unroll
    for (int e = 0; e < kHeld; ++e) {
      const int c = first + places[e].index / kRows, r = places[e].index % kRows;
      const int k = group * kRows + r;
      if (c >= count) continue;
      float step = 0.0f;
      if (k < targets() && valid >> k & 1) {
        const int places_of_it = contexts[c] & 0xFF;
        const float many = static_cast<float>(places_of_it);
        // The pair's loss, softplus(-s), grows with -s.
        const float s = k == 0 ? part[e] : -part[e];
        const float small = __expf(-fabsf(s)), share = __fdividef(1.0f, 1.0f + small);
        const float slope = s >= 0 ? small * share : s < 0 ? share : s;  // NaN stays
        step = (k == 0 ? lr : -lr) * slope * many;
        if (places[e].only) {
          lost += many * (fmaxf(-s, 0.0f) + __logf(1.0f + small));
          pairs += places_of_it;
        }
      }
      steps[(group * 2 * shape.half_window + c) * kSteps + r] = step;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void sum_team(float (&part)[kPairs]) {
    float* const mine = sums + parity * shape.team * kHeld * kLanes;
#pragma unroll
    for (int e = 0; e < kHeld; ++e) mine[(warp * kHeld + e) * kLanes + lane] = part[e];
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kHeld; ++e) {
      part[e] = 0.0f;
      for (int w = 0; w < shape.team; ++w) part[e] += mine[(w * kHeld + e) * kLanes + lane];
    }
    parity ^= 1;
  }

  __device__ __forceinline__ void read_steps(int group, int context, float (&step)[kRows]) const {
    const float* const from = steps_of(group, context);
    const float4 four = *reinterpret_cast<const float4*>(from);
    const float2 two = *reinterpret_cast<const float2*>(from + 4);
    step[0] = four.x, step[1] = four.y, step[2] = four.z, step[3] = four.w;
    step[4] = two.x, step[5] = two.y;
  }

  // All pairs, the targets in registers: adds to them and to the contexts' rows.
  __device__ __forceinline__ void train_single(const float (&y)[kRows][Each],
                                               float (&change)[kRows][Each], int count, u32 valid,
                                               float& lost) {
    for (int first = 0; first < count; first += kContexts) {
      score(y, 0, first, count, valid, lost);
    }
#pragma unroll 2
    for (int c = 0; c < count; ++c) {
      const int slot = slot_of(c);
      Row x, moved;
      float step[kRows];
      columns.read(row_of(c), x);
      read_steps(0, c, step);
#pragma unroll
      for (int i = 0; i < Each; ++i) moved[i] = 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < Each; ++i) {
          change[r][i] = fmaf(step[r], x[i], change[r][i]);
          moved[i] = fmaf(step[r], y[r][i], moved[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < Each; ++i) x[i] += moved[i];
      put_in(slot, x, moved);
    }
  }

  // The same in three rounds, some targets or contexts at a time.
  __device__ __forceinline__ void train_groups(const float* from, int rows, float part, int count,
                                               u32 valid, float& lost) {
    for (int group = 0; group < groups(); ++group) {
      float y[kRows][Each];
      read_targets(from, group, valid, y);
      for (int first = 0; first < count; first += kContexts) {
        score(y, group, first, count, valid, lost);
      }
    }
    for (int group = 0; group < groups(); ++group) {
      float change[kRows][Each] = {};
      for (int c = 0; c < count; ++c) {
        Row x;
        float step[kRows];
        columns.read(row_of(c), x);
        read_steps(group, c, step);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < Each; ++i) change[r][i] = fmaf(step[r], x[i], change[r][i]);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int k = group * kRows + r;
        if (k < targets() && valid >> k & 1) add_out(k, rows, part, change[r]);
      }
    }
    for (int first = 0; first < count; first += kContexts) {
      float moved[kContexts][Each] = {};
      for (int k = 0; k < targets(); ++k) {
        if (!(valid >> k & 1)) continue;
        Row y;
        columns.read(from + k * kWide, y);
#pragma unroll
        for (int c = 0; c < kContexts; ++c) {
          if (first + c >= count) continue;
          const float step = steps_of(k / kRows, first + c)[k % kRows];
#pragma unroll
          for (int i = 0; i < Each; ++i) moved[c][i] = fmaf(step, y[i], moved[c][i]);
        }
      }
#pragma unroll
      for (int c = 0; c < kContexts; ++c) {
        if (first + c >= count) continue;
        const int slot = slot_of(first + c);
        Row x;
        columns.read(row_of(first + c), x);
#pragma unroll
        for (int i = 0; i < Each; ++i) x[i] += moved[c][i];
        put_in(slot, x, moved[c]);
      }
    }
  }

  // Zeros if there is no target: the memory there is undefined.
  __device__ __forceinline__ void read_targets(const float* from, int group, u32 valid,
                                               float (&y)[kRows][Each]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int k = group * kRows + r;
      if (k < targets() && valid >> k & 1) {
        columns.read(from + k * kWide, y[r]);
      } else {
#pragma unroll
        for (int i = 0; i < Each; ++i) y[r][i] = 0.0f;
      }
    }
  }

  // -- a piece ------------------------------------------------------------------------------------

  __device__ __forceinline__ void train_piece(i64 low) {
    if (!kept.begin(low)) return;
    const int width = shape.half_window;
    const int oldest = kFirstIndex - kept.look_back(low, width);
    kept.reach(kFirstIndex + width);
    word = -1;
    uses = 0;
    untouched = stale = 0;
    for (int p = oldest; p <= kFirstIndex + width && p < kept.tail; ++p) enter(p);
    target = kept.target(kFirstIndex);
    copy_targets(kFirstIndex, false);
    float change[kRows][Each];
    bool carried = false;  // the previous window's negatives' rows continue, with their changes
    for (int i = kFirstIndex; i < kept.end; ++i) {
      await_copies();
      float* const from = stage_of(i);
      for (; stale; stale &= stale - 1) {
        const int k = __ffs(stale) - 1;
        columns.copy_now(from + k * kWide, out, __shfl_sync(kAll, target, k));
      }
      const int rows = target;
      const float part = out_part;
      const u32 valid = __ballot_sync(kAll, rows >= 0);

      const int centre = kept.words[i & (kQueue - 1)];
      const int many = uses - (word == centre);
      const u32 slots = __ballot_sync(kAll, many > 0);
      const int count = __popc(slots);
      if (many > 0) {
        const int row = lane * kWide + (untouched >> lane & 1 ? static_cast<int>(before - now) : 0);
        contexts[__popc(slots & ((1u << lane) - 1))] = many | lane << 8 | row << 16;
      }
      __syncwarp();

      float y[kRows][Each];
      if constexpr (Single) {
        read_targets(from, 0, valid, y);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const bool goes_on = Shared && carried && r > 0;
#pragma unroll
          for (int j = 0; j < Each; ++j) {
            if (goes_on) {
              y[r][j] += change[r][j];
            } else {
              change[r][j] = 0.0f;
            }
          }
        }
      }

      kept.reach(i + width + 1);
      const bool more = i + 1 < kept.end;
      bool carry = false;
      if (more) {
        if (i + width + 1 < kept.tail) enter(i + width + 1);
        target = kept.target(i + 1);
        if (Single || shape.stages == 2) {
          stale = among(target, rows, false);
          if constexpr (Shared) {
            const u32 all = targets() < kLanes ? (1u << targets()) - 1 : kAll;
            carry = kept.share(i, i + 1) && draws.negatives > 0 && valid == all &&
                    __ballot_sync(kAll, target >= 0) == all && !among(rows, rows, true);
            if (carry) stale &= 1;
          }
          copy_targets(i + 1, carry);
        }
      }

      float lost = 0.0f;
      if constexpr (Single) {
        train_single(y, change, count, valid, lost);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (valid >> r & 1 && (r == 0 || !carry)) add_out(r, rows, part, change[r]);
        }
      } else {
        train_groups(from, rows, part, count, valid, lost);
        if (more && shape.stages < 2) copy_targets(i + 1, false);
      }
      loss += lost;
      untouched &= ~slots;
      carried = carry;
      if (i - width >= oldest) leave(i - width);
    }
    for (u32 left = __ballot_sync(kAll, word >= 0); left; left &= left - 1) {
      give_back(__ffs(left) - 1);
    }
  }
};

// The sentence of a piece: the last whose first piece is not beyond.
__device__ __forceinline__ i64 sentence_of(const i64* __restrict__ first_piece, i64 sentences,
                                           i64 piece, int lane) {
  i64 low = 0, high = sentences;  // first_piece[low] <= piece < first_piece[high]
  while (high - low > 1) {
    const i64 apart = (high - low + kLanes - 1) / kLanes, at = low + apart * (lane + 1);
    const bool beyond = at >= high || __ldg(first_piece + at) > piece;
    const int before = __ffs(__ballot_sync(kAll, beyond)) - 1;
    low += apart * before;
    high = low + apart < high ? low + apart : high;
  }
  return low;
}

}  // namespace

// tokens, offsets (null: rows of ``length``), lrs   the sentences; sentence s is number first + s,
//                                                   or that with epoch
// first_piece   (sentences + 1,): pieces of at most ``piece`` places before each sentence; null with
//               rows, which have ``row_pieces`` each
// counter       zero at first; pieces taken, ``take`` at a time
// losses        (teams,); counts (3, teams): pairs, words, kept
template <int Each, int Vec, bool Single, bool Shared>
__launch_bounds__(256, 2) __global__
    void train(float* in, float* out, int dimension, const float* __restrict__ in_share,
               const float* __restrict__ out_share, const int* __restrict__ tokens,
               const i64* __restrict__ offsets, i64 length, const float* __restrict__ lrs,
               i64 sentences, u64 first, u64 epoch, const i64* __restrict__ first_piece,
               i64 row_pieces, int piece, int take, u64* counter, const u32* __restrict__ chance,
               const int* __restrict__ alias, const u32* __restrict__ keep, u32 vocabulary,
               u64 seed, u32 sample_stream, u32 negative_stream, int half_window, int negatives,
               int shared_windows, int fours, int team, int stages, int keeps, int a_warp, double* losses,
               u64* counts) {
  extern __shared__ __align__(16) float memory[];
  __shared__ u64 taken;
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const Shape shape = {half_window, team, stages, keeps != 0, a_warp};
  const Draws draws = {chance,    alias,         keep,
                       vocabulary, seed,          sample_stream,
                       negative_stream, negatives, (negatives + 1) / 2, shared_windows};
  const int part = team > 1 ? warp : 0;
  const Columns<Each, Vec> columns = {lane, part * kLanes * Each, dimension, fours != 0};
  constexpr int kWide = Columns<Each, Vec>::kWide;

  // Shared memory, as training.py counts it.
  const int slots = 2 * half_window + 2, groups = (negatives + kRows) / kRows;
  float* at = memory + warp * a_warp;
  float* const now = at;
  at += slots * kWide;
  float* const before = at;
  if (keeps) at += slots * kWide;
  float* const stage = at;
  at += stages * (negatives + 1) * kWide;
  float* const steps = at;
  at += groups * 2 * half_window * kSteps;
  int* const contexts = reinterpret_cast<int*>(at);
  int* const words = contexts + kLanes;
  u32* const places = reinterpret_cast<u32*>(words + kQueue);
  int* const drawn = words + 2 * kQueue;
  float* const sums = memory + team * a_warp;

  Trainer<Each, Vec, Single, Shared> trainer = {
      shape, draws, in, out, in_share, out_share, columns, lane, warp, {draws, lane, words, places, drawn}};
  trainer.now = now;
  trainer.before = before;
  trainer.stage = stage;
  trainer.steps = steps;
  trainer.sums = sums;
  trainer.contexts = contexts;
#pragma unroll
  for (int e = 0; e < trainer.kHeld; ++e) trainer.places[e] = place_of<trainer.kPairs>(e, lane);
  trainer.parity = 0;
  trainer.loss = 0.0;
  trainer.pairs = 0;

  u64 seen = 0, centres = 0;
  const i64 all = first_piece ? first_piece[sentences] : sentences * row_pieces;
  for (;;) {
    i64 begin = 0;
    if (team > 1) {
      __syncthreads();
      if (threadIdx.x == 0) taken = atomicAdd(counter, static_cast<u64>(take));
      __syncthreads();
      begin = static_cast<i64>(taken);
    } else {
      if (lane == 0) begin = static_cast<i64>(atomicAdd(counter, static_cast<u64>(take)));
      begin = __shfl_sync(kAll, begin, 0);
    }
    if (begin >= all) break;
    const i64 end = begin + take < all ? begin + take : all;
    i64 s = first_piece ? sentence_of(first_piece, sentences, begin, lane) : 0;
    for (i64 number = begin; number < end; ++number) {
      i64 low;
      if (first_piece) {
        while (__ldg(first_piece + s + 1) <= number) ++s;
        low = (number - __ldg(first_piece + s)) * piece;
      } else {
        s = number / row_pieces;
        low = (number - s * row_pieces) * piece;
      }
      const i64 base = offsets ? __ldg(offsets + s) : s * length;
      Kept& kept = trainer.kept;
      kept.tokens = tokens + base;
      kept.length = offsets ? __ldg(offsets + s + 1) - base : length;
      kept.high = low + piece < kept.length ? low + piece : kept.length;
      kept.which = (first + static_cast<u64>(s)) | epoch;
      trainer.lr = __ldg(lrs + s);
      trainer.train_piece(low);
      seen += kept.counted;
      centres += kept.end - kFirstIndex;
    }
  }

  double loss = trainer.loss;
  u64 pairs = trainer.pairs;
#pragma unroll
  for (int apart = kLanes / 2; apart; apart /= 2) {
    loss += __shfl_xor_sync(kAll, loss, apart);
    pairs += __shfl_xor_sync(kAll, pairs, apart);
    seen += __shfl_xor_sync(kAll, seen, apart);
  }
  if (lane == 0 && part == 0) {
    const i64 teams = static_cast<i64>(gridDim.x) * (blockDim.x / kLanes / team);
    const i64 mine = static_cast<i64>(blockIdx.x) * (blockDim.x / kLanes / team) + warp / team;
    losses[mine] = loss;
    counts[mine] = pairs;
    counts[teams + mine] = seen;
    counts[2 * teams + mine] = centres;
  }
}
