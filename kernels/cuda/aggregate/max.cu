// The maximum of each feature over a row's columns, and the backward pass. Names and meaning are
// naive/aggregate.py's.
#include "gnn/sweep.cuh"

// instance: gather_max<float, int, 4, 8, 1, 32>
// instance: gather_max<float, int, 4, 16, 1, 32>
// instance: gather_max<float, int, 4, 32, 1, 32>
// instance: gather_max<float, int, 1, 32, 2, 32>
// instance: gather_max<float, long long, 1, 32, 2, 32>
// instance: gather_max<double, int, 1, 32, 2, 32>
// instance: gather_max<double, long long, 1, 32, 2, 32>
// instance: join_largest<float, int>
// instance: join_largest<float, long long>
// instance: join_largest<double, int>
// instance: join_largest<double, long long>
// instance: gather_max_back<float, int, 4, 8, 1, 32>
// instance: gather_max_back<float, int, 4, 16, 1, 32>
// instance: gather_max_back<float, int, 4, 32, 1, 32>
// instance: gather_max_back<float, int, 1, 32, 2, 32>
// instance: gather_max_back<float, long long, 1, 32, 2, 32>
// instance: gather_max_back<double, int, 1, 32, 2, 32>
// instance: gather_max_back<double, long long, 1, 32, 2, 32>

using namespace penstock;

namespace {

// NaN is largest, as in NumPy; of equals the first column counts; -1: no column.
template <typename Value, typename Id>
__device__ __forceinline__ bool is_larger(Value value, Id column, Value best, Id best_column) {
  if (column < 0) return false;
  if (best_column < 0 || value > best) return true;
  const bool strange = value != value, best_strange = best != best;
  if (strange != best_strange) return strange;
  return (value == best || strange) && column < best_column;
}

template <typename Value_, typename Id_, class Shape>
struct Largest {
  using Value = Value_;
  using Id = Id_;
  using Fetched = Part<Shape, Value>;
  const Id* indices;
  const Value* x;
  i64 x_stride;
  int width;
  Value* out;
  i64 out_stride;
  Id* arg;
  i64 arg_stride;
  Value* partial;
  Id* partial_arg;
  Reader<Shape, Value> reader;
  Fetched best;
  Part<Shape, Id> whose;

  __device__ __forceinline__ bool weighted() const { return false; }
  __device__ __forceinline__ Id column(const Span&, i64 edge) const {
    return __ldcs(indices + edge);
  }
  __device__ __forceinline__ Value factor(i64, Id) const { return Value(1); }
  __device__ __forceinline__ void begin(const Span&, int column) {
    reader.begin(x, x_stride, column, width);
    best = Fetched::zero();
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) whose.tile[t].at[i] = -1;
    }
  }
  __device__ __forceinline__ Fetched fetch(Id column) const { return reader.read(column); }
  __device__ __forceinline__ void take(const Fetched& read, Id column, Value) {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) choose(t, i, read.tile[t].at[i], column);
    }
  }
  __device__ __forceinline__ void choose(int t, int i, Value value, Id column) {
    if (!is_larger(value, column, best.tile[t].at[i], whose.tile[t].at[i])) return;
    best.tile[t].at[i] = value;
    whose.tile[t].at[i] = column;
  }
  __device__ __forceinline__ void join() {
#pragma unroll
    for (int apart = Shape::Lanes; apart < Shape::Team; apart *= 2) {
#pragma unroll
      for (int t = 0; t < Shape::Tiles; ++t) {
#pragma unroll
        for (int i = 0; i < Shape::Vec; ++i) {
          const Value value = __shfl_xor_sync(kAll, best.tile[t].at[i], apart);
          choose(t, i, value, __shfl_xor_sync(kAll, whose.tile[t].at[i], apart));
        }
      }
    }
  }
  __device__ __forceinline__ void end(const Span& span, int column) const {
    if (Shape::slot() != 0) return;
    const bool cut = span.piece >= 0;
    best.store(cut ? partial + span.piece * width : out + span.row * out_stride, column, width);
    whose.store(cut ? partial_arg + span.piece * width : arg + span.row * arg_stride, column,
                width);
  }
};

// Over the transpose: a row's features go back to the column of the maximum.
template <typename Value_, typename Id_, class Shape>
struct LargestBack {
  using Value = Value_;
  using Id = Id_;
  struct Fetched {
    Part<Shape, Value> grad;
    Part<Shape, Id> whose;
  };
  const Id* indices;
  const Value* grad;
  i64 grad_stride;
  const Id* arg;
  i64 arg_stride;
  int width;
  Value* out;
  i64 out_stride;
  Value* partial;
  Reader<Shape, Value> grads;
  Reader<Shape, Id> args;
  Part<Shape, Value> sum;
  Id own;

  __device__ __forceinline__ bool weighted() const { return false; }
  __device__ __forceinline__ Id column(const Span& span, i64 edge) const {
    const Id row = __ldg(indices + edge);
    return edge > span.start && __ldg(indices + edge - 1) == row ? Id(-1) : row;
  }
  __device__ __forceinline__ Value factor(i64, Id) const { return Value(1); }
  __device__ __forceinline__ void begin(const Span& span, int column) {
    grads.begin(grad, grad_stride, column, width);
    args.begin(arg, arg_stride, column, width);
    own = static_cast<Id>(span.row);
    sum = Part<Shape, Value>::zero();
  }
  __device__ __forceinline__ Fetched fetch(Id row) const {
    return {grads.read(row), args.read(row)};
  }
  __device__ __forceinline__ void take(const Fetched& read, Id, Value) {
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
#pragma unroll
      for (int i = 0; i < Shape::Vec; ++i) {
        if (read.whose.tile[t].at[i] == own) sum.tile[t].at[i] += read.grad.tile[t].at[i];
      }
    }
  }
  __device__ __forceinline__ void join() { sum.join(); }
  __device__ __forceinline__ void end(const Span& span, int column) const {
    if (Shape::slot() != 0) return;
    const bool cut = span.piece >= 0;
    sum.store(cut ? partial + span.piece * width : out + span.row * out_stride, column, width);
  }
};

}  // namespace

template <typename Value, typename Id, int Vec, int Lanes, int Tiles, int Team>
__launch_bounds__(kRowThreads, kRowBlocks) __global__
    void gather_max(const i64* indptr, const i64* pieces, i64 piece_count, i64 first, i64 last,
                    const Id* indices, const Value* x, i64 x_stride, Value* out, i64 out_stride,
                    Id* arg, i64 arg_stride, int width, Value* partial, Id* partial_arg) {
  using Shape = Layout<Vec, Lanes, Tiles, Team>;
  Largest<Value, Id, Shape> largest = {indices, x,   x_stride,   width,   out,
                                       out_stride, arg, arg_stride, partial, partial_arg};
  sweep_all<Shape>(Spans{indptr, pieces, piece_count, first, last, 0}, width, largest);
}

// One block per long row; threads of a feature take its pieces in turn.
template <typename Value, typename Id>
__launch_bounds__(256) __global__
    void join_largest(const i64* long_rows, const i64* first_piece, i64 offset,
                      const Value* __restrict__ partial, const Id* __restrict__ partial_arg,
                      Value* __restrict__ out, i64 out_stride, Id* __restrict__ arg,
                      i64 arg_stride, int width) {
  constexpr int kThreads = 256;
  __shared__ Value values[kThreads];
  __shared__ Id columns[kThreads];
  const int together = width < kThreads ? width : kThreads, slots = kThreads / together;
  const int slot = threadIdx.x / together;
  const i64 row = long_rows[blockIdx.x];
  const i64 from = first_piece[blockIdx.x] - offset, to = first_piece[blockIdx.x + 1] - offset;
  for (int begin = 0; begin < width; begin += together) {
    const int feature = begin + threadIdx.x % together;
    Value best = Value(0);
    Id whose = -1;
    const auto choose = [&](Value value, Id column) {
      if (!is_larger(value, column, best, whose)) return;
      best = value;
      whose = column;
    };
    if (slot < slots && feature < width) {
#pragma unroll 4
      for (i64 p = from + slot; p < to; p += slots) {
        choose(partial[p * width + feature], partial_arg[p * width + feature]);
      }
    }
    values[threadIdx.x] = best;
    columns[threadIdx.x] = whose;
    __syncthreads();
    if (slot == 0 && feature < width) {
      for (int other = 1; other < slots; ++other) {
        choose(values[other * together + threadIdx.x], columns[other * together + threadIdx.x]);
      }
      out[row * out_stride + feature] = best;
      arg[row * arg_stride + feature] = whose;
    }
    __syncthreads();
  }
}

template <typename Value, typename Id, int Vec, int Lanes, int Tiles, int Team>
__launch_bounds__(kRowThreads, kRowBlocks) __global__
    void gather_max_back(const i64* indptr, const i64* pieces, i64 piece_count, i64 first,
                         i64 last, const Id* indices, const Value* grad, i64 grad_stride,
                         const Id* arg, i64 arg_stride, Value* out, i64 out_stride, int width,
                         Value* partial) {
  using Shape = Layout<Vec, Lanes, Tiles, Team>;
  LargestBack<Value, Id, Shape> back = {indices, grad, grad_stride, arg,    arg_stride,
                                        width,   out,  out_stride,  partial};
  sweep_all<Shape>(Spans{indptr, pieces, piece_count, first, last, 0}, width, back);
}
