// Shared by attention forward and backward: the weight of an edge, and gathering with it.
#pragma once
#include "gnn/sweep.cuh"

namespace penstock {

constexpr int kThreads = 128;  // of a block with one row per warp

// The number of blocks that fit on a multiprocessor by their registers.
template <typename Value, int Tiles>
constexpr int kBlocks = Tiles > 1 ? (sizeof(Value) == 8 ? 3 : 4) : 6;

template <typename Value>
struct Attention {
  const Value* left;
  const Value* right;
  const Value* peak;
  const Value* total;
  int heads, width;  // width: of a head
  Value slope;
  Dropout<Value> drop;
  u64 nodes;

  __device__ __forceinline__ Value leaky(Value raw) const { return raw > 0 ? raw : slope * raw; }
  __device__ __forceinline__ Value alpha(Value raw, Value peak, Value inverse) const {
    return exp(leaky(raw) - peak) * inverse;
  }
  __device__ __forceinline__ i64 at(i64 node, int head) const { return node * heads + head; }
  __device__ __forceinline__ Value kept(i64 row, i64 column, int head) const {
    const u64 which = static_cast<u64>(__ldg(drop.ids + row)) * nodes + __ldg(drop.ids + column);
    const u32 step = drop.step * ((heads + 3) / 4) + head / 4;
    return drop.factor(word_at(philox4x32(drop.seed, drop.stream, which, step), head % 4));
  }
};

// The row that an edge reads; only the edge after the last reads the row itself.
template <typename Id>
__device__ __forceinline__ Id reads(const Id* __restrict__ indices, const Span& span, i64 edge) {
  if (edge == span.end) return static_cast<Id>(span.row);
  const Id id = __ldg(indices + edge);
  return id == span.row ? Id(-1) : id;
}

// The head of each of a lane's tiles; the last one's if the columns have ended.
template <class Shape, typename Value>
__device__ __forceinline__ int head_of(const Attention<Value>& attention, int column, int t) {
  const int head = Shape::feature(column, t) / attention.width;
  return head < attention.heads ? head : attention.heads - 1;
}

template <typename Value>
__device__ __forceinline__ Value value_if(bool wanted, const Value* from) {
  return Pack<Value, 1>::load_if(wanted, from).at[0];
}

template <typename Value_, typename Id_, class Shape>
struct Attending {
  using Value = Value_;
  using Id = Id_;
  struct Fetched {
    Part<Shape, Value> z;
    Value right[Shape::Tiles];
  };
  const Attention<Value>& attention;
  const Id* indices;
  const Value* z;
  i64 z_stride;
  Value* out;
  i64 out_stride;
  Value* partial;
  Reader<Shape, Value> reader;
  Part<Shape, Value> sum;
  Value left[Shape::Tiles], peak[Shape::Tiles], inverse[Shape::Tiles];
  int head[Shape::Tiles];
  i64 row;

  __device__ __forceinline__ bool weighted() const { return false; }
  __device__ __forceinline__ Id column(const Span& span, i64 edge) const {
    return reads(indices, span, edge);
  }
  __device__ __forceinline__ Value factor(i64, Id) const { return Value(1); }
  __device__ __forceinline__ void begin(const Span& span, int column) {
    reader.begin(z, z_stride, column, attention.heads * attention.width);
    sum = Part<Shape, Value>::zero();
    row = span.row;
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      head[t] = head_of<Shape>(attention, column, t);
      const i64 at = attention.at(row, head[t]);
      left[t] = __ldg(attention.left + at);
      peak[t] = __ldg(attention.peak + at);
      inverse[t] = 1 / __ldg(attention.total + at);
    }
  }
  __device__ __forceinline__ Fetched fetch(Id column) const {
    Fetched read;
    read.z = reader.read(column);
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      read.right[t] = value_if(column >= 0, attention.right + attention.at(column, head[t]));
    }
    return read;
  }
  // A neighbour's factor, before and after leaky's slope.
  __device__ __forceinline__ void weigh(const Fetched& read, Id column, int t, Value& alpha,
                                        Value& kept, Value& slope) const {
    const Value raw = left[t] + read.right[t];
    alpha = column < 0 ? Value(0) : attention.alpha(raw, peak[t], inverse[t]);
    kept = Value(1);
    if (attention.drop.ids && column >= 0) kept = attention.kept(row, column, head[t]);
    slope = raw > 0 ? Value(1) : attention.slope;
  }
  __device__ __forceinline__ void add(const Fetched& read, int t, Value factor) {
#pragma unroll
    for (int i = 0; i < Shape::Vec; ++i) sum.tile[t].at[i] += factor * read.z.tile[t].at[i];
  }
  __device__ __forceinline__ void take(const Fetched& read, Id column, Value) {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      Value alpha, kept, slope;
      weigh(read, column, t, alpha, kept, slope);
      add(read, t, alpha * kept);
    }
  }
  __device__ __forceinline__ void join() { sum.join(); }
  __device__ __forceinline__ void end(const Span& span, int column) const {
    if (Shape::slot() != 0) return;
    const int width = attention.heads * attention.width;
    const bool cut = span.piece >= 0;
    sum.store(cut ? partial + span.piece * width : out + span.row * out_stride, column, width);
  }
};

}  // namespace penstock
