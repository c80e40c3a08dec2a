// Attention over the rows of a block. Names and meaning are naive/attention.py's.
//
// A first kernel goes over the scores alone and finds each row's peak and total; a second gathers
// as aggregate/aggregate.cu does, with the weight of an edge computed by every lane for the head it
// holds values of.
#include "gnn/attention.cuh"
#include "gnn/columns.cuh"

// instance: head_products<float>
// instance: head_products<double>
// instance: add_score_gradients<float>
// instance: add_score_gradients<double>
// instance: vector_gradients<float>
// instance: vector_gradients<double>
// instance: add_vector_gradients<float>
// instance: add_vector_gradients<double>
// instance: attend_totals<float, int>
// instance: attend_totals<float, long long>
// instance: attend_totals<double, int>
// instance: attend_totals<double, long long>
// instance: join_totals<float>
// instance: join_totals<double>
// instance: attend<float, int, 4, 4, 1>
// instance: attend<float, int, 4, 8, 1>
// instance: attend<float, int, 4, 16, 1>
// instance: attend<float, int, 4, 32, 1>
// instance: attend<float, int, 1, 16, 1>
// instance: attend<float, int, 1, 32, 2>
// instance: attend<float, long long, 1, 32, 2>
// instance: attend<double, int, 1, 32, 2>
// instance: attend<double, long long, 1, 32, 2>

using namespace penstock;

namespace {

// The largest score so far, and the sum of exponentials relative to it; total 0: none so far.
template <typename Value>
struct Running {
  Value peak, total;

  __device__ __forceinline__ void add(Value score) { add(score, Value(1)); }
  __device__ __forceinline__ void add(Value other_peak, Value other_total) {
    if (other_total == 0) return;
    if (total == 0) {
      peak = other_peak;
      total = other_total;
    } else if (other_peak > peak) {
      total = total * exp(peak - other_peak) + other_total;
      peak = other_peak;
    } else {
      total += other_total * exp(other_peak - peak);
    }
  }
};

}  // namespace

// out[n, h] = sum of a[n, h, w] * b[n, h, w] over w; b_stride may be 0. One warp per row, ``lanes``
// of it (a power of 2) a head.
template <typename Value>
__global__ void head_products(const Value* __restrict__ a, i64 a_stride,
                              const Value* __restrict__ b, i64 b_stride, i64 first, i64 last,
                              int heads, int width, int lanes, Value* __restrict__ out) {
  const int place = threadIdx.x % kLanes % lanes, group = threadIdx.x % kLanes / lanes;
  for (i64 row = first + thread_number() / kLanes; row < last; row += thread_count() / kLanes) {
    for (int begin = 0; begin < heads; begin += kLanes / lanes) {
      const int head = begin + group;
      Value sum = Value(0);
      if (head < heads) {
        for (int w = place; w < width; w += lanes) {
          const int feature = head * width + w;
          sum += a[row * a_stride + feature] * b[row * b_stride + feature];
        }
      }
      for (int apart = lanes / 2; apart; apart /= 2) sum += __shfl_xor_sync(kAll, sum, apart);
      if (place == 0 && head < heads) out[row * heads + head] = sum;
    }
  }
}

// dz += grad * vectors, one thread per value of a row.
template <typename Value>
__global__ void add_score_gradients(const Value* __restrict__ grad,
                                    const Value* __restrict__ vectors, i64 rows, int heads,
                                    int width, Value* __restrict__ dz, i64 dz_stride) {
  const int all = heads * width;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int feature = threadIdx.x; feature < all; feature += blockDim.x) {
      dz[row * dz_stride + feature] += grad[row * heads + feature / width] * vectors[feature];
    }
  }
}

template <typename Value>
struct VectorTerm {
  const Value* grad;
  const Value* z;
  i64 z_stride;
  int heads, width;
  __device__ __forceinline__ void operator()(i64 row, int feature, double (&values)[1]) const {
    values[0] = static_cast<double>(__ldg(grad + row * heads + feature / width)) *
                static_cast<double>(__ldg(z + row * z_stride + feature));
  }
};

template <typename Value>
__launch_bounds__(256) __global__
    void vector_gradients(const Value* grad, const Value* z, i64 z_stride, i64 rows, int heads,
                          int width, double* partial) {
  const VectorTerm<Value> term = {grad, z, z_stride, heads, width};
  sum_columns<1>(0, rows, heads * width, term, partial);
}

template <typename Value>
__global__ void add_vector_gradients(const double* partial, int blocks, int count,
                                     Value* dvectors) {
  add_partial_sums(partial, blocks, count, dvectors);
}

// ``lanes`` (a power of 2) hold heads, the slots of a warp take edges in turn.
template <typename Value, typename Id>
__launch_bounds__(128) __global__
    void attend_totals(const i64* indptr, const i64* pieces, i64 piece_count, i64 first, i64 last,
                       i64 selves, const Id* __restrict__ indices, const Value* __restrict__ left,
                       const Value* __restrict__ right, int heads, Value slope, int lanes,
                       Value* peak, Value* total, Value* partial_peak, Value* partial_total) {
  constexpr int kUnroll = 4;
  const Spans spans = {indptr, pieces, piece_count, first, last, selves};
  const int place = threadIdx.x % kLanes % lanes, slot = threadIdx.x % kLanes / lanes;
  const int slots = kLanes / lanes;
  const i64 count = spans.count();
  for (i64 n = thread_number() / kLanes; n < count; n += thread_count() / kLanes) {
    const Span span = spans.at(n);
    if (span.row < 0) continue;
    for (int begin = 0; begin < heads; begin += lanes) {
      const int head = begin + place;
      const Value own = head < heads ? __ldg(left + span.row * heads + head) : Value(0);
      Running<Value> running = {Value(0), Value(0)};
      for (i64 edge = span.low + slot; edge < span.high; edge += kUnroll * slots) {
        Id columns[kUnroll];
        Value scores[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const i64 at = edge + u * slots;
          columns[u] = at < span.high && head < heads ? reads(indices, span, at) : Id(-1);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          scores[u] = value_if(columns[u] >= 0,
                               right + static_cast<i64>(columns[u]) * heads + head);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const Value raw = own + scores[u];
          if (columns[u] >= 0) running.add(raw > 0 ? raw : slope * raw);
        }
      }
      for (int apart = lanes; apart < kLanes; apart *= 2) {
        const Value other_peak = __shfl_xor_sync(kAll, running.peak, apart);
        running.add(other_peak, __shfl_xor_sync(kAll, running.total, apart));
      }
      if (slot == 0 && head < heads) {
        const bool cut = span.piece >= 0;
        const i64 at = (cut ? span.piece : span.row) * heads + head;
        (cut ? partial_peak : peak)[at] = running.peak;
        (cut ? partial_total : total)[at] = running.total;
      }
    }
  }
}

// A warp for each head of each long row.
template <typename Value>
__global__ void join_totals(const i64* __restrict__ long_rows, const i64* __restrict__ first_piece,
                            i64 offset, i64 rows, int heads,
                            const Value* __restrict__ partial_peak,
                            const Value* __restrict__ partial_total, Value* __restrict__ peak,
                            Value* __restrict__ total) {
  const int lane = threadIdx.x % kLanes;
  for (i64 n = thread_number() / kLanes; n < rows * heads; n += thread_count() / kLanes) {
    const i64 place = n / heads, head = n % heads;
    Running<Value> running = {Value(0), Value(0)};
    const i64 end = first_piece[place + 1] - offset;
    for (i64 p = first_piece[place] - offset + lane; p < end; p += kLanes) {
      running.add(partial_peak[p * heads + head], partial_total[p * heads + head]);
    }
    for (int apart = kLanes / 2; apart; apart /= 2) {
      const Value other_peak = __shfl_xor_sync(kAll, running.peak, apart);
      running.add(other_peak, __shfl_xor_sync(kAll, running.total, apart));
    }
    if (lane == 0) {
      peak[long_rows[place] * heads + head] = running.peak;
      total[long_rows[place] * heads + head] = running.total;
    }
  }
}

template <typename Value, typename Id, int Vec, int Lanes, int Tiles>
__launch_bounds__(kThreads, kBlocks<Value, Tiles>) __global__
    void attend(const i64* indptr, const i64* pieces, i64 piece_count, i64 first, i64 last,
                i64 selves, const Id* indices, const Value* left, const Value* right,
                const Value* peak, const Value* total, int heads, int width, Value slope,
                const i64* ids, u64 seed, u32 stream, u32 step, const u32* epoch, u64 below,
                Value scale, u64 nodes, const Value* z, i64 z_stride, Value* out,
                i64 out_stride, Value* partial) {
  using Shape = Layout<Vec, Lanes, Tiles, kLanes>;
  const Attention<Value> attention = {
      left,  right, peak, total, heads, width,
      slope, {ids, seed, stream, step_now(step, epoch), below, scale}, nodes};
  Attending<Value, Id, Shape> attending = {attention, indices, z, z_stride, out, out_stride,
                                           partial};
  const Spans spans = {indptr, pieces, piece_count, first, last, selves};
  sweep_all<Shape>(spans, heads * width, attending);
}
