// Gathering over the rows of a block, and the backward passes. Names and meaning are
// naive/aggregate.py's.
//
// A warp reads four neighbours of 32 features at once (8 lanes of a float4 each), with eight such
// loads in flight: with 32 warps per multiprocessor that is four times the memory's latency times
// its rate, because rows are scattered. If rows have few edges, the lanes of a neighbour form a
// separate team. On an H200, 32 features, forward and backward over power-law sources, ms:
//
//     edges per row  four in flight, warp per row  eight      eight, 8 lanes per row
//              14                   0.109, 0.121     0.108, 0.118       0.053, 0.082
//              50                     3.85, 4.30       3.51, 3.92         3.57, 4.12
//             168                     6.40, 7.41       6.13, 7.08         6.45, 7.60
//             492                     1.66, 1.74       1.64, 1.73         1.65, 1.78
#include "gnn/sweep.cuh"

// instance: gather<float, float, int, 4, 2, 1, 32>
// instance: gather<float, float, int, 4, 4, 1, 32>
// instance: gather<float, float, int, 4, 8, 1, 32>
// instance: gather<float, float, int, 4, 16, 1, 32>
// instance: gather<float, float, int, 4, 32, 1, 32>
// instance: gather<float, float, int, 4, 32, 2, 32>
// instance: gather<float, float, int, 4, 2, 1, 2>
// instance: gather<float, float, int, 4, 4, 1, 4>
// instance: gather<float, float, int, 4, 8, 1, 8>
// instance: gather<float, float, int, 2, 16, 1, 32>
// instance: gather<float, float, int, 2, 32, 1, 32>
// instance: gather<float, float, int, 2, 32, 2, 32>
// instance: gather<float, float, int, 1, 8, 1, 32>
// instance: gather<float, float, int, 1, 8, 1, 8>
// instance: gather<float, float, int, 1, 16, 1, 32>
// instance: gather<float, float, int, 1, 16, 2, 32>
// instance: gather<float, float, int, 1, 16, 3, 32>
// instance: gather<float, float, int, 1, 32, 2, 32>
// instance: gather<float, float, int, 1, 32, 4, 32>
// instance: gather<float, float, long long, 4, 8, 1, 32>
// instance: gather<float, float, long long, 1, 32, 2, 32>
// instance: gather<double, double, int, 1, 32, 2, 32>
// instance: gather<double, double, long long, 1, 32, 2, 32>
// instance: gather<float, Bf16, int, 8, 2, 1, 32>
// instance: gather<float, Bf16, int, 8, 4, 1, 32>
// instance: gather<float, Bf16, int, 8, 8, 1, 32>
// instance: gather<float, Bf16, int, 8, 16, 1, 32>
// instance: gather<float, Bf16, int, 8, 32, 1, 32>
// instance: gather<float, Bf16, long long, 8, 4, 1, 32>
// instance: join_sums<float, float>
// instance: join_sums<float, Bf16>
// instance: join_sums<double, double>
// instance: narrow
// instance: keys_of_columns<int>
// instance: keys_of_columns<long long>
// instance: rows_in_order<int>
// instance: rows_in_order<long long>

using namespace penstock;

namespace {

// The end of a row's sum. ``Stored`` is the type of x: Value, or half of it.
template <typename Value, typename Stored>
struct RowEnd {
  const Value* left;
  const Value* right;
  const Value* diagonal;
  i64 columns;
  const Stored* x;
  i64 x_stride;
  Value* out;
  i64 out_stride;
  Epilogue<Value> epilogue;

  template <int Count>
  __device__ __forceinline__ void write(i64 row, int feature, Pack<Value, Count> sum) const {
    if (diagonal && row < columns) {  // a ghost's row of a transpose has none
      const Value factor = __ldg(diagonal + row) * (right ? __ldg(right + row) : Value(1));
      const auto own = Pack<Stored, Count>::load(x + row * x_stride + feature);
#pragma unroll
      for (int i = 0; i < Count; ++i) sum.at[i] += factor * static_cast<Value>(own.at[i]);
    }
    if (left) {
      const Value factor = __ldg(left + row);
#pragma unroll
      for (int i = 0; i < Count; ++i) sum.at[i] *= factor;
    }
    epilogue.apply(sum, row, feature);
    sum.store(out + row * out_stride + feature);
  }
};

template <typename Value_, typename Stored, typename Id_, class Shape>
struct Sums {
  using Value = Value_;
  using Id = Id_;
  using Fetched = Part<Shape, Stored>;
  const Id* indices;
  const Value* weights;
  int width;
  const RowEnd<Value, Stored>& ending;
  Value* partial;
  Reader<Shape, Stored> reader;
  Part<Shape, Value> sum;

  __device__ __forceinline__ bool weighted() const { return weights || ending.right; }
  // Indices and weights are read once: they should not evict features from the cache.
  __device__ __forceinline__ Id column(const Span&, i64 edge) const {
    return __ldcs(indices + edge);
  }
  __device__ __forceinline__ Value factor(i64 edge, Id column) const {
    const Value weight = weights ? __ldcs(weights + edge) : Value(1);
    return ending.right ? weight * __ldg(ending.right + column) : weight;
  }
  __device__ __forceinline__ void begin(const Span&, int column) {
    reader.begin(ending.x, ending.x_stride, column, width);
    sum = Part<Shape, Value>::zero();
  }
  __device__ __forceinline__ Fetched fetch(Id column) const { return reader.read(column); }
  __device__ __forceinline__ void take(const Fetched& read, Id, Value factor) {
    sum.add(read, factor);
  }
  __device__ __forceinline__ void join() { sum.join(); }
  __device__ __forceinline__ void end(const Span& span, int column) const {
    if (Shape::slot() != 0) return;
    if (span.piece >= 0) return sum.store(partial + span.piece * width, column, width);
#pragma unroll
    for (int t = 0; t < Shape::Tiles; ++t) {
      const int feature = Shape::feature(column, t);
      if (feature < width) ending.write(span.row, feature, sum.tile[t]);
    }
  }
};

}  // namespace

template <typename Value, typename Stored, typename Id, int Vec, int Lanes, int Tiles, int Team>
__launch_bounds__(kRowThreads, kRowBlocks) __global__
    void gather(const i64* indptr, const i64* pieces, i64 piece_count, i64 first, i64 last,
                const Id* indices, const Value* weights, const Value* left, const Value* right,
                const Value* diagonal, i64 columns, const Stored* x, i64 x_stride, Value* out,
                i64 out_stride, int width, Value* partial, const Value* bias, const Value* skip,
                i64 skip_stride, int activation, const i64* ids, u64 seed, u32 stream, u32 step,
                const u32* epoch, u64 below, Value scale) {
  constexpr bool kRoom = sizeof(Value) == 4 && sizeof(Id) == 4 && Vec <= 4 && Tiles == 1;
  constexpr int kAhead = kRoom ? 8 : 4;  // as many as fit into registers
  using Shape = Layout<Vec, Lanes, Tiles, Team, kAhead>;
  const Dropout<Value> drop = {ids, seed, stream, step_now(step, epoch), below, scale};
  const RowEnd<Value, Stored> ending = {
      left, right, diagonal, columns, x, x_stride, out, out_stride,
      {bias, skip, skip_stride, activation, drop}};
  Sums<Value, Stored, Id, Shape> sums = {indices, weights, width, ending, partial};
  sweep_all<Shape>(Spans{indptr, pieces, piece_count, first, last, 0}, width, sums);
}

template <typename Value, typename Stored>
struct WriteSum {
  const RowEnd<Value, Stored>& ending;
  __device__ __forceinline__ void operator()(i64 row, int feature, Value sum) const {
    ending.write(row, feature, Pack<Value, 1>{{sum}});
  }
};

template <typename Value, typename Stored>
__launch_bounds__(256) __global__
    void join_sums(const i64* long_rows, const i64* first_piece, i64 offset, const Value* left,
                   const Value* right, const Value* diagonal, i64 columns, const Stored* x,
                   i64 x_stride, Value* out, i64 out_stride, int width, const Value* partial,
                   const Value* bias, const Value* skip, i64 skip_stride, int activation,
                   const i64* ids, u64 seed, u32 stream, u32 step, const u32* epoch, u64 below,
                   Value scale) {
  const Dropout<Value> drop = {ids, seed, stream, step_now(step, epoch), below, scale};
  const RowEnd<Value, Stored> ending = {
      left, right, diagonal, columns, x, x_stride, out, out_stride,
      {bias, skip, skip_stride, activation, drop}};
  join_pieces(first_piece, offset, partial, width, long_rows, WriteSum<Value, Stored>{ending});
}

constexpr int kEdgesAThread = 8;

// column << edge_bits | edge of each edge whose column, counted from ``first``, is before ``last``.
// Warps reserve places in ``taken``, once for many edges, so the order is not fixed.
template <typename Id>
__global__ void keys_of_columns(const Id* __restrict__ indices, i64 edges, i64 first, i64 last,
                                int edge_bits, u64* taken, u64* __restrict__ keys) {
  constexpr int kEdges = kEdgesAThread * kLanes;  // a warp's at once
  const int lane = threadIdx.x % kLanes;
  const i64 warps = thread_count() / kLanes;
  for (i64 n = thread_number() / kLanes; n * kEdges < edges; n += warps) {
    i64 columns[kEdgesAThread];
    u32 wanted[kEdgesAThread];
#pragma unroll
    for (int u = 0; u < kEdgesAThread; ++u) {
      const i64 edge = n * kEdges + u * kLanes + lane;
      columns[u] = edge < edges ? static_cast<i64>(__ldcs(indices + edge)) : i64(-1);
    }
    u32 count = 0;
#pragma unroll
    for (int u = 0; u < kEdgesAThread; ++u) {
      wanted[u] = __ballot_sync(kAll, columns[u] >= first && columns[u] < last);
      count += __popc(wanted[u]);
    }
    if (!count) continue;
    u64 place = lane == 0 ? atomicAdd(taken, static_cast<u64>(count)) : 0;
    place = __shfl_sync(kAll, place, 0);
#pragma unroll
    for (int u = 0; u < kEdgesAThread; ++u) {
      if (wanted[u] >> lane & 1u) {
        const i64 edge = n * kEdges + u * kLanes + lane;
        keys[place + __popc(wanted[u] & ((1u << lane) - 1))] =
            static_cast<u64>(columns[u] - first) << edge_bits | static_cast<u64>(edge);
      }
      place += __popc(wanted[u]);
    }
  }
}

// The row of each of the edges that ``order`` lists.
template <typename Id>
__global__ void rows_in_order(const i64* __restrict__ indptr, i64 rows,
                              const i64* __restrict__ order, i64 edges, Id* __restrict__ found) {
  for (i64 n = thread_number(); n < edges; n += thread_count()) {
    found[n] = static_cast<Id>(row_of(indptr, rows, order[n]));
  }
}

// The nearest Bf16 of each value, or of its product with the row's factor; of two the even one.
struct Narrowing {
  const float* x;
  i64 x_stride;
  const float* factors;
  unsigned short* out;
  i64 out_stride;

  __device__ __forceinline__ static u32 nearest(float value) {
    const u32 bits = __float_as_uint(value);
    return value != value ? 0x7FC0u : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  }
  __device__ __forceinline__ void operator()(i64 row, int four) const {
    const float factor = factors ? __ldg(factors + row) : 1.0f;
    const auto value = Pack<float, 4>::load(x + row * x_stride + 4 * four);
    *reinterpret_cast<uint2*>(out + row * out_stride + 4 * four) =
        make_uint2(nearest(value.at[0] * factor) | nearest(value.at[1] * factor) << 16,
                   nearest(value.at[2] * factor) | nearest(value.at[3] * factor) << 16);
  }
};

__launch_bounds__(256) __global__
    void narrow(const float* x, i64 x_stride, const float* factors, i64 first, i64 last, int width,
                unsigned short* out, i64 out_stride) {
  each_place<4>(first, last, width / 4, Narrowing{x, x_stride, factors, out, out_stride});
}
