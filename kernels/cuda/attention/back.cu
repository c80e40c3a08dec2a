// The backward pass of attention. Names and meaning are naive/attention.py's.
//
// The gradient of a score asks, edge by edge, for the product of a neighbour's values and a row's
// gradient. That is linear: neighbours are summed first, and multiplied once at the row's end.
#include "gnn/attention.cuh"

// instance: attend_back_rows<float, int, 4, 4, 1>
// instance: attend_back_rows<float, int, 4, 8, 1>
// instance: attend_back_rows<float, int, 4, 16, 1>
// instance: attend_back_rows<float, int, 4, 32, 1>
// instance: attend_back_rows<float, int, 1, 16, 1>
// instance: attend_back_rows<float, int, 1, 32, 2>
// instance: attend_back_rows<float, long long, 1, 32, 2>
// instance: attend_back_rows<double, int, 1, 32, 2>
// instance: attend_back_rows<double, long long, 1, 32, 2>
// instance: attend_back_columns<float, int, 4, 4, 1>
// instance: attend_back_columns<float, int, 4, 8, 1>
// instance: attend_back_columns<float, int, 4, 16, 1>
// instance: attend_back_columns<float, int, 4, 32, 1>
// instance: attend_back_columns<float, int, 1, 16, 1>
// instance: attend_back_columns<float, int, 1, 32, 2>
// instance: attend_back_columns<float, long long, 1, 32, 2>
// instance: attend_back_columns<double, int, 1, 32, 2>
// instance: attend_back_columns<double, long long, 1, 32, 2>

using namespace penstock;

namespace {

// A tile's share of its head's sum; lanes of a head add theirs up, by one lane each in order.
template <class Shape, typename Value>
__device__ __forceinline__ void sum_heads(const Value (&part)[Shape::Tiles], int column,
                                          const Attention<Value>& attention, Value* to) {
  constexpr int kPacks = Shape::Lanes * Shape::Tiles;
  __shared__ Value shared[kThreads / kLanes][kPacks];
  Value* parts = shared[threadIdx.x / kLanes];
  const int lane = threadIdx.x % kLanes, all = attention.heads * attention.width;
  const int end = column + Shape::Chunk < all ? column + Shape::Chunk : all;
  if (Shape::slot() == 0) {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) parts[lane + t * Shape::Lanes] = part[t];
  }
  __syncwarp();
  const int first = column / attention.width, last = (end - 1) / attention.width;
  for (int head = first + lane; head <= last; head += kLanes) {
    const int from = head * attention.width, after = from + attention.width;
    const int low = (from > column ? from - column : 0) / Shape::Vec;
    const int high = ((after < end ? after : end) - column) / Shape::Vec;
    Value sum = Value(0);
    for (int i = low; i < high; ++i) sum += parts[i];
    to[head] = from < column ? to[head] + sum : sum;  // it began in the columns before
  }
  __syncwarp();
}

// The gradient of a row's own scores.
template <typename Value_, typename Id_, class Shape>
struct RowsBack : Attending<Value_, Id_, Shape> {
  using Value = Value_;
  using Id = Id_;
  using Base = Attending<Value, Id, Shape>;
  using Fetched = typename Base::Fetched;
  const Value* grad;
  i64 grad_stride;
  const Value* dot;
  Value* dleft;
  Value slopes[Shape::Tiles];  // sums of alpha * slope

  __device__ __forceinline__ RowsBack(const Base& base, const Value* grad, i64 grad_stride,
                                      const Value* dot, Value* dleft)
      : Base(base), grad(grad), grad_stride(grad_stride), dot(dot), dleft(dleft) {}
  __device__ __forceinline__ void begin(const Span& span, int column) {
    Base::begin(span, column);
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) slopes[t] = Value(0);
  }
  __device__ __forceinline__ void take(const Fetched& read, Id column, Value) {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      Value alpha, kept, slope;
      Base::weigh(read, column, t, alpha, kept, slope);
      slopes[t] += alpha * slope;
      Base::add(read, t, alpha * slope * kept);
    }
  }
  __device__ __forceinline__ void join() {
    Base::join();
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) slopes[t] = join_slots<Shape>(slopes[t]);
  }
  __device__ __forceinline__ void end(const Span& span, int column) const {
    const Attention<Value>& attention = this->attention;
    const int width = attention.heads * attention.width;
    Value parts[Shape::Tiles];
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      const int feature = Shape::feature(column, t);
      const auto given = Pack<Value, Shape::Vec>::load_if(
          feature < width, grad + span.row * grad_stride + feature);
      parts[t] = Value(0);
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) parts[t] += given.at[i] * this->sum.tile[t].at[i];
      if (feature < width && feature % attention.width == 0) {
        parts[t] -= slopes[t] * __ldg(dot + attention.at(span.row, this->head[t]));
      }
    }
    Value* to = span.piece >= 0 ? this->partial + span.piece * attention.heads
                                : dleft + span.row * attention.heads;
    sum_heads<Shape>(parts, column, attention, to);
  }
};

// Over the transpose: the gradients of a column's values, and of its scores as the one gathered.
template <typename Value_, typename Id_, class Shape>
struct ColumnsBack {
  using Value = Value_;
  using Id = Id_;
  struct Fetched {
    Part<Shape, Value> grad;
    Value left[Shape::Tiles], peak[Shape::Tiles], total[Shape::Tiles], dot[Shape::Tiles];
  };
  const Attention<Value>& attention;
  const Id* indices;
  const Value* z;
  i64 z_stride;
  const Value* grad;
  i64 grad_stride;
  const Value* dot;
  Value* dz;
  i64 dz_stride;
  Value* dright;
  Value* partial;
  Value* partial_right;
  Reader<Shape, Value> reader;
  Part<Shape, Value> sum, sloped;  // of alpha * kept * gradient, and that times the slope
  Value right[Shape::Tiles], dots[Shape::Tiles];
  int head[Shape::Tiles];
  i64 own;

  __device__ __forceinline__ bool weighted() const { return false; }
  __device__ __forceinline__ Id column(const Span& span, i64 edge) const {
    return reads(indices, span, edge);
  }
  __device__ __forceinline__ Value factor(i64, Id) const { return Value(1); }
  __device__ __forceinline__ void begin(const Span& span, int column) {
    reader.begin(grad, grad_stride, column, attention.heads * attention.width);
    sum = sloped = Part<Shape, Value>::zero();
    own = span.row;
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      head[t] = head_of<Shape>(attention, column, t);
      right[t] = __ldg(attention.right + attention.at(own, head[t]));
      dots[t] = Value(0);
    }
  }
  __device__ __forceinline__ Fetched fetch(Id row) const {
    Fetched read;
    read.grad = reader.read(row);
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      const i64 at = attention.at(row, head[t]);
      read.left[t] = value_if(row >= 0, attention.left + at);
      read.peak[t] = value_if(row >= 0, attention.peak + at);
      read.total[t] = value_if(row >= 0, attention.total + at);
      read.dot[t] = value_if(row >= 0, dot + at);
    }
    return read;
  }
  __device__ __forceinline__ void take(const Fetched& read, Id row, Value) {
    if (row < 0) return;
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      const Value raw = read.left[t] + right[t];
      const Value slope = raw > 0 ? Value(1) : attention.slope;
      const Value alpha = attention.alpha(raw, read.peak[t], 1 / read.total[t]);
      Value kept = Value(1);
      if (attention.drop.ids) kept = attention.kept(row, own, head[t]);
      dots[t] += alpha * slope * read.dot[t];
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) {
        const Value value = alpha * kept * read.grad.tile[t].at[i];
        sum.tile[t].at[i] += value;
        sloped.tile[t].at[i] += slope * value;
      }
    }
  }
  __device__ __forceinline__ void join() {
    sum.join();
    sloped.join();
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) dots[t] = join_slots<Shape>(dots[t]);
  }
  __device__ __forceinline__ void end(const Span& span, int column) const {
    const int width = attention.heads * attention.width;
    const bool cut = span.piece >= 0;
    if (Shape::slot() == 0) {
      sum.store(cut ? partial + span.piece * width : dz + span.row * dz_stride, column, width);
    }
    Value parts[Shape::Tiles];
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      const int feature = Shape::feature(column, t);
      const auto mine = Pack<Value, Shape::Vec>::load_if(feature < width,
                                                         z + span.row * z_stride + feature);
      parts[t] = feature < width && feature % attention.width == 0 ? -dots[t] : Value(0);
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) parts[t] += mine.at[i] * sloped.tile[t].at[i];
    }
    Value* to = (cut ? partial_right + span.piece * attention.heads
                     : dright + span.row * attention.heads);
    sum_heads<Shape>(parts, column, attention, to);
  }
};

}  // namespace

template <typename Value, typename Id, int Vec, int Lanes, int Tiles>
__launch_bounds__(kThreads, kBlocks<Value, Tiles>) __global__
    void attend_back_rows(const i64* indptr, const i64* pieces, i64 piece_count, i64 first,
                          i64 last, i64 selves, const Id* indices, const Value* left,
                          const Value* right, const Value* peak, const Value* total, int heads,
                          int width, Value slope, const i64* ids, u64 seed, u32 stream, u32 step,
                          const u32* epoch, u64 below, Value scale, u64 nodes, const Value* z,
                          i64 z_stride, const Value* grad, i64 grad_stride, const Value* dot,
                          Value* dleft, Value* partial) {
  using Shape = Layout<Vec, Lanes, Tiles, kLanes>;
  const Attention<Value> attention = {
      left,  right, peak, total, heads, width,
      slope, {ids, seed, stream, step_now(step, epoch), below, scale}, nodes};
  const Attending<Value, Id, Shape> base = {attention, indices, z, z_stride, nullptr, 0, partial};
  RowsBack<Value, Id, Shape> back(base, grad, grad_stride, dot, dleft);
  const Spans spans = {indptr, pieces, piece_count, first, last, selves};
  sweep_all<Shape>(spans, heads * width, back);
}

template <typename Value, typename Id, int Vec, int Lanes, int Tiles>
__launch_bounds__(kThreads, kBlocks<Value, Tiles> - 1) __global__
    void attend_back_columns(const i64* indptr, const i64* pieces, i64 piece_count, i64 first,
                             i64 last, i64 selves, const Id* indices, const Value* left,
                             const Value* right, const Value* peak, const Value* total, int heads,
                             int width, Value slope, const i64* ids, u64 seed, u32 stream,
                             u32 step, const u32* epoch, u64 below, Value scale, u64 nodes,
                             const Value* z, i64 z_stride, const Value* grad,
                             i64 grad_stride, const Value* dot, Value* dz, i64 dz_stride,
                             Value* dright, Value* partial, Value* partial_right) {
  using Shape = Layout<Vec, Lanes, Tiles, kLanes>;
  const Attention<Value> attention = {
      left,  right, peak, total, heads, width,
      slope, {ids, seed, stream, step_now(step, epoch), below, scale}, nodes};
  ColumnsBack<Value, Id, Shape> back = {attention, indices,   z,      z_stride, grad, grad_stride,
                                        dot, dz, dz_stride, dright, partial, partial_right};
  const Spans spans = {indptr, pieces, piece_count, first, last, selves};
  sweep_all<Shape>(spans, heads * width, back);
}
