// A layer's epilogue, and its backward pass. Names and meaning are naive/activation.py's. A thread
// has four features of a row: those whose words are from one draw.
#include "gnn/values.cuh"

// instance: apply_epilogue<float, 4>
// instance: apply_epilogue<float, 1>
// instance: apply_epilogue<double, 1>
// instance: epilogue_backward<float, 4>
// instance: epilogue_backward<float, 1>
// instance: epilogue_backward<double, 1>
// instance: scale_rows<float, 4>
// instance: scale_rows<float, 1>
// instance: scale_rows<double, 2>
// instance: scale_rows<double, 1>
// instance: drop_values<float, int>
// instance: drop_values<float, long long>
// instance: drop_values<double, int>
// instance: drop_values<double, long long>

using namespace penstock;

namespace {

// Four values from ``at``, or the remaining ones, read and written Vec at a time.
template <typename Value, int Vec>
struct Four {
  Pack<Value, Vec> part[4 / Vec];
  __device__ __forceinline__ Value& operator[](int i) { return part[i / Vec].at[i % Vec]; }
  __device__ __forceinline__ void read(const Value* from, int count) {
#pragma unroll
    for (int p = 0; p < 4 / Vec; ++p) {
      part[p] = p * Vec < count ? Pack<Value, Vec>::read(from + p * Vec)
                                : Pack<Value, Vec>::zero();
    }
  }
  __device__ __forceinline__ void store(Value* to, int count) const {
#pragma unroll
    for (int p = 0; p < 4 / Vec; ++p) {
      if (p * Vec < count) part[p].store(to + p * Vec);
    }
  }
};

template <typename Value, int Vec>
struct ApplyEpilogue4 {
  const Value* z;
  i64 z_stride;
  Value* out;
  i64 out_stride;
  int width;
  Epilogue<Value> epilogue;

  __device__ __forceinline__ void operator()(i64 row, int four) const {
    const int feature = 4 * four, count = width - feature;
    Four<Value, Vec> value, skip;
    value.read(z + row * z_stride + feature, count);
    if (epilogue.skip) skip.read(epilogue.skip + row * epilogue.skip_stride + feature, count);
    uint4 words = {0, 0, 0, 0};
    if (epilogue.drop.ids) words = epilogue.drop.words(row, feature);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= count) break;
      Value sum = value[i];
      if (epilogue.bias) sum += __ldg(epilogue.bias + feature + i);
      if (epilogue.skip) sum += skip[i];
      sum = activate(epilogue.activation, sum);
      value[i] = epilogue.drop.ids ? sum * epilogue.drop.factor(word_at(words, i)) : sum;
    }
    value.store(out + row * out_stride + feature, count);
  }
};

template <typename Value, int Vec>
struct EpilogueBackward4 {
  Value* grad;
  i64 grad_stride;
  const Value* out;
  i64 out_stride;
  int width, activation;
  Dropout<Value> drop;

  __device__ __forceinline__ void operator()(i64 row, int four) const {
    const int feature = 4 * four, count = width - feature;
    Four<Value, Vec> given, made;
    given.read(grad + row * grad_stride + feature, count);
    if (activation != kNone) made.read(out + row * out_stride + feature, count);
    uint4 words = {0, 0, 0, 0};
    if (drop.ids) words = drop.words(row, feature);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= count) break;
      const Value factor = drop.ids ? drop.factor(word_at(words, i)) : Value(1);
      if (activation != kNone) {
        given[i] *= slope_of(activation, factor > 0 ? made[i] / factor : made[i]);
      }
      given[i] *= factor;
    }
    given.store(grad + row * grad_stride + feature, count);
  }
};

template <typename Value, int Vec>
struct ScaleRow {
  const Value* x;
  i64 x_stride;
  const Value* factors;
  Value* out;
  i64 out_stride;

  __device__ __forceinline__ void operator()(i64 row, int pack) const {
    const Value factor = __ldg(factors + row);
    auto value = Pack<Value, Vec>::read(x + row * x_stride + Vec * pack);
#pragma unroll
    for (int i = 0; i < Vec; ++i) value.at[i] *= factor;
    value.store(out + row * out_stride + Vec * pack);
  }
};

}  // namespace

template <typename Value, int Vec>
__launch_bounds__(256) __global__
    void apply_epilogue(const Value* z, i64 z_stride, Value* out, i64 out_stride, i64 first,
                        i64 last, int width, const Value* bias, const Value* skip,
                        i64 skip_stride, int activation, const i64* ids, u64 seed, u32 stream,
                        u32 step, const u32* epoch, u64 below, Value scale) {
  const Dropout<Value> drop = {ids, seed, stream, step_now(step, epoch), below, scale};
  const ApplyEpilogue4<Value, Vec> body = {
      z, z_stride, out, out_stride, width, {bias, skip, skip_stride, activation, drop}};
  each_place<1>(first, last, (width + 3) / 4, body);
}

template <typename Value, int Vec>
__launch_bounds__(256) __global__
    void epilogue_backward(Value* grad, i64 grad_stride, const Value* out, i64 out_stride,
                           i64 first, i64 last, int width, int activation, const i64* ids,
                           u64 seed, u32 stream, u32 step, const u32* epoch, u64 below,
                           Value scale) {
  const EpilogueBackward4<Value, Vec> body = {
      grad, grad_stride, out, out_stride, width, activation,
      {ids, seed, stream, step_now(step, epoch), below, scale}};
  each_place<1>(first, last, (width + 3) / 4, body);
}

template <typename Value, int Vec>
__launch_bounds__(256) __global__
    void scale_rows(const Value* x, i64 x_stride, const Value* factors, Value* out, i64 out_stride,
                    i64 first, i64 last, int width) {
  const ScaleRow<Value, Vec> body = {x, x_stride, factors, out, out_stride};
  each_place<1>(first, last, width / Vec, body);
}

// One thread per edge, which finds its row. ``swapped``: rows are features, columns nodes.
template <typename Value, typename Id>
__global__ void drop_values(const i64* __restrict__ indptr, i64 rows,
                            const Id* __restrict__ indices, const Value* __restrict__ weights,
                            i64 edges, int swapped, const i64* __restrict__ ids, u64 seed,
                            u32 stream, u32 step, const u32* epoch, u64 below, Value scale,
                            Value* __restrict__ out) {
  const Dropout<Value> drop = {ids, seed, stream, step_now(step, epoch), below, scale};
  for (i64 edge = thread_number(); edge < edges; edge += thread_count()) {
    const i64 row = row_of(indptr, rows, edge), column = indices[edge];
    const i64 node = swapped ? column : row, feature = swapped ? row : column;
    const u32 word = word_at(drop.words(node, feature), feature % 4);
    out[edge] = (weights ? weights[edge] : Value(1)) * drop.factor(word);
  }
}
