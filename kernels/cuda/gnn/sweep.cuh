// Rows of a block, each gathering over its edges. A team of lanes shares a row; within it, Lanes
// lanes hold a neighbour's values, Vec at a time in each of Tiles, and the slots of the team take
// edges in turn. Rows with more than kPiece edges are cut into pieces, which are joined afterwards
// in order: a hub does not stall the launch, and sums are the same in every run.
#pragma once
#include "gnn/values.cuh"

namespace penstock {

constexpr int kLanes = 32;
constexpr u32 kAll = 0xFFFFFFFFu;
constexpr i64 kPiece = 512;  // edges; Python has the same number

// For kernels with one row per team. Small blocks, so that no row waits long for others; and a
// number of them that leaves 64 registers: with fewer, ptxas spills where loads meet.
constexpr int kRowThreads = 128, kRowBlocks = 8;

template <int Vec_, int Lanes_, int Tiles_, int Team_, int Ahead = 4>
struct Layout {
  static constexpr int Vec = Vec_, Lanes = Lanes_, Tiles = Tiles_, Team = Team_;
  static constexpr int Slots = Team / Lanes;
  static constexpr int Chunk = Vec * Lanes * Tiles;  // features of one pass over the edges
  static constexpr int Unroll = Lanes < Ahead ? Lanes : Ahead;  // edges in flight per lane
  static_assert(Lanes <= Team && Team <= kLanes && Lanes % Unroll == 0, "lanes of a team");

  __device__ __forceinline__ static int rank() { return threadIdx.x % Team; }
  __device__ __forceinline__ static int slot() { return rank() / Lanes; }
  // The first feature that this lane holds of tile t.
  __device__ __forceinline__ static int feature(int column, int t) {
    return column + (rank() % Lanes + t * Lanes) * Vec;
  }
};

// The edges ``low .. high`` of a team, in a row with ``start .. end``. ``high`` is beyond ``end``
// if the row's edge to itself comes last. piece: -1 for a whole row; row: -1 for nothing.
struct Span {
  i64 row, start, end, low, high, piece;
};

// The work of a launch: pieces first, since they take longest, then rows that are not longer.
// A row below ``selves`` has one more edge, at its end: that to itself.
struct Spans {
  const i64* indptr;
  const i64* pieces;  // row and first edge of each
  i64 piece_count, first, last, selves;

  __device__ __forceinline__ i64 count() const { return piece_count + last - first; }

  __device__ __forceinline__ Span at(i64 n) const {
    Span span = {-1, 0, 0, 0, 0, -1};
    if (n >= count()) return span;
    const bool cut = n < piece_count;
    const i64 row = cut ? __ldg(pieces + 2 * n) : first + n - piece_count;
    const i64 start = __ldg(indptr + row), end = __ldg(indptr + row + 1);
    if (!cut && end - start > kPiece) return span;
    span.row = row;
    span.start = start;
    span.end = end;
    span.low = cut ? __ldg(pieces + 2 * n + 1) : start;
    span.high = cut && span.low + kPiece < end ? span.low + kPiece : end + (row < selves);
    span.piece = cut ? n : -1;
    return span;
  }
};

__device__ __forceinline__ i64 warp_largest(i64 value) {
#pragma unroll
  for (int apart = kLanes / 2; apart; apart /= 2) {
    const i64 other = __shfl_xor_sync(kAll, value, apart);
    value = other > value ? other : value;
  }
  return value;
}

// Go over the edges of a span. ``gathering`` has
//   column(span, edge)    the row that the edge reads, -1: none
//   factor(edge, column)  of the edge, called once, if weighted()
//   fetch(column)         its values, or nothing for -1
//   take(fetched, column, factor)
// Lanes of a warp do the same number of rounds, for rows of any lengths.
template <class Shape, bool Weighted, class Gathering>
__device__ __forceinline__ void sweep(const Span& span, Gathering& gathering) {
  using Id = typename Gathering::Id;
  using Value = typename Gathering::Value;
  constexpr int Team = Shape::Team, Unroll = Shape::Unroll, Slots = Shape::Slots;
  const int rank = Shape::rank(), slot = Shape::slot();
  const int leader = static_cast<int>(threadIdx.x % kLanes) - rank;
  i64 rounds = (span.high - span.low + Team - 1) / Team;
  if (Team < kLanes) rounds = warp_largest(rounds);
  i64 edge = span.low + rank;
  Id next = edge < span.high ? gathering.column(span, edge) : Id(-1);
  for (i64 at = span.low; rounds > 0; --rounds, at += Team) {
    const Id mine = next;
    Value own = Value(1);
    if (Weighted && mine >= 0) own = gathering.factor(edge, mine);
    edge += Team;
    next = edge < span.high ? gathering.column(span, edge) : Id(-1);  // while the others load
    const i64 left = span.high - at;
    const int count = left < Team ? static_cast<int>(left) : Team;
#pragma unroll 1
    for (int j = 0; j < Team; j += Unroll * Slots) {
      if (Team == kLanes && j >= count) break;
      Id columns[Unroll];
      Value factors[Unroll];
      typename Gathering::Fetched fetched[Unroll];
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        const int from = leader + j + u * Slots + slot;
        columns[u] = __shfl_sync(kAll, mine, from);
        factors[u] = Value(1);
        if (Weighted) factors[u] = __shfl_sync(kAll, own, from);
      }
#pragma unroll
      for (int u = 0; u < Unroll; ++u) fetched[u] = gathering.fetch(columns[u]);
#pragma unroll
      for (int u = 0; u < Unroll; ++u) gathering.take(fetched[u], columns[u], factors[u]);
    }
  }
}

// All the work of a launch. ``gathering`` also has begin(span, first feature), join(), which merges
// the slots' results, and end(span, first feature).
template <class Shape, class Gathering>
__device__ __forceinline__ void sweep_all(const Spans& spans, int width, Gathering& gathering) {
  constexpr int kTeams = kLanes / Shape::Team;
  const int team = threadIdx.x % kLanes / Shape::Team;
  const i64 warps = thread_count() / kLanes, count = spans.count();
  for (i64 n = thread_number() / kLanes * kTeams; n < count; n += warps * kTeams) {
    const Span span = spans.at(n + team);
    if (kTeams == 1 && span.row < 0) continue;
    for (int column = 0; column < width; column += Shape::Chunk) {
      gathering.begin(span, column);
      if (gathering.weighted()) {
        sweep<Shape, true>(span, gathering);
      } else {
        sweep<Shape, false>(span, gathering);
      }
      gathering.join();
      if (span.row >= 0) gathering.end(span, column);
    }
  }
}

// The sum over the slots of a team, in every lane.
template <class Shape, typename Value>
__device__ __forceinline__ Value join_slots(Value value) {
#pragma unroll
  for (int apart = Shape::Lanes; apart < Shape::Team; apart *= 2) {
    value += __shfl_xor_sync(kAll, value, apart);
  }
  return value;
}

// A lane's part of some columns' values, Vec of each of Tiles, up to the row's end.
template <class Shape, typename Value>
struct Part {
  Pack<Value, Shape::Vec> tile[Shape::Tiles];

  __device__ __forceinline__ static Part zero() {
    Part part;
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) part.tile[t] = Pack<Value, Shape::Vec>::zero();
    return part;
  }
  __device__ __forceinline__ void store(Value* to, int column, int width) const {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      const int feature = Shape::feature(column, t);
      if (feature < width) tile[t].store(to + feature);
    }
  }
  template <typename Stored>
  __device__ __forceinline__ void add(const Part<Shape, Stored>& more, Value factor) {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) {
        tile[t].at[i] += factor * static_cast<Value>(more.tile[t].at[i]);
      }
    }
  }
  __device__ __forceinline__ void join() {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) {
        tile[t].at[i] = join_slots<Shape>(tile[t].at[i]);
      }
    }
  }
};

template <bool first, typename One, typename Other>
struct Choose {
  using Type = One;
};
template <typename One, typename Other>
struct Choose<false, One, Other> {
  using Type = Other;
};

// The columns that a lane reads of any row of a matrix.
template <class Shape, typename Value>
struct Reader {
  const char* base;
  u32 stride;  // bytes
  int tiles;   // of this lane; fewer, or none, at the end of the columns

  __device__ __forceinline__ void begin(const Value* matrix, i64 values, int column, int width) {
    constexpr int kApart = Shape::Lanes * Shape::Vec;
    const int feature = Shape::feature(column, 0);
    base = reinterpret_cast<const char*>(matrix + feature);
    stride = static_cast<u32>(values * sizeof(Value));
    tiles = (width - feature + kApart - 1) / kApart;
  }
  // Zeros of row -1.
  template <typename Id>
  __device__ __forceinline__ Part<Shape, Value> read(Id row) const {
    // An int row takes one multiplication, whose sign does not matter as -1 is not read.
    using Unsigned = typename Choose<sizeof(Id) == 4, u32, u64>::Type;
    const u64 offset = static_cast<u64>(static_cast<Unsigned>(row)) * stride;
    const Value* from = reinterpret_cast<const Value*>(base + offset);
    Part<Shape, Value> part;
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      part.tile[t] = Pack<Value, Shape::Vec>::load_if(row >= 0 && t < tiles,
                                                      from + t * Shape::Lanes * Shape::Vec);
    }
    return part;
  }
};

// For each long row, a block: the sum of the pieces' values, feature by feature, in a fixed order.
// ``ending(row, feature, sum)`` takes it.
template <typename Value, class Ending>
__device__ __forceinline__ void join_pieces(const i64* __restrict__ first_piece, i64 offset,
                                            const Value* __restrict__ partial, int width,
                                            const i64* __restrict__ long_rows,
                                            const Ending& ending) {
  constexpr int kThreads = 256;
  __shared__ Value sums[kThreads];
  const int columns = width < kThreads ? width : kThreads, slots = kThreads / columns;
  const int slot = threadIdx.x / columns;
  const i64 from = first_piece[blockIdx.x] - offset, to = first_piece[blockIdx.x + 1] - offset;
  for (int column = 0; column < width; column += columns) {
    const int feature = column + threadIdx.x % columns;
    Value sum = Value(0);
    if (slot < slots && feature < width) {
#pragma unroll 4
      for (i64 p = from + slot; p < to; p += slots) sum += partial[p * width + feature];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (slot == 0 && feature < width) {
      for (int other = 1; other < slots; ++other) sum += sums[other * columns + threadIdx.x];
      ending(long_rows[blockIdx.x], feature, sum);
    }
    __syncthreads();
  }
}

}  // namespace penstock
