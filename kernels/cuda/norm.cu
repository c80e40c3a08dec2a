// Normalising rows (layer norm) or columns (batch norm). Names and meaning are naive/norm.py's.
#include "gnn/columns.cuh"

// instance: value_sums<float>
// instance: value_sums<double>
// instance: layer_sums<float>
// instance: layer_sums<double>
// instance: batch_moment_sums<float>
// instance: batch_moment_sums<double>
// instance: batch_sums<float>
// instance: batch_sums<double>
// instance: add_sums
// instance: layer_norm<float>
// instance: layer_norm<double>
// instance: layer_norm_back<float>
// instance: layer_norm_back<double>
// instance: batch_norm<float>
// instance: batch_norm<double>
// instance: batch_norm_back<float>
// instance: batch_norm_back<double>

using namespace penstock;

namespace {

constexpr int kLanes = 32;
constexpr u32 kAll = 0xFFFFFFFFu;
constexpr double kEpsilon = 1e-5;

template <typename Value>
struct Matrix {
  const Value* values;
  i64 stride;
  __device__ __forceinline__ Value at(i64 row, int feature) const {
    return __ldg(values + row * stride + feature);
  }
};

template <typename Value>
struct ValueTerm {
  Matrix<Value> x;
  __device__ __forceinline__ void operator()(i64 row, int feature, double (&values)[1]) const {
    values[0] = x.at(row, feature);
  }
};

template <typename Value>
struct SquareTerm {
  Matrix<Value> z;
  __device__ __forceinline__ void operator()(i64 row, int feature, double (&values)[2]) const {
    values[0] = z.at(row, feature);
    values[1] = values[0] * values[0];
  }
};

template <typename Value>
struct LayerTerm {
  Matrix<Value> grad, z;
  const Value* moments;
  __device__ __forceinline__ void operator()(i64 row, int feature, double (&values)[2]) const {
    const Value normal =
        (z.at(row, feature) - __ldg(moments + 2 * row)) * __ldg(moments + 2 * row + 1);
    const Value given = grad.at(row, feature);
    values[0] = given;
    values[1] = given * normal;
  }
};

template <typename Value>
struct BatchTerm {
  Matrix<Value> grad, z;
  const Value* mean;
  const Value* inverse;
  __device__ __forceinline__ void operator()(i64 row, int feature, double (&values)[2]) const {
    const Value normal = (z.at(row, feature) - __ldg(mean + feature)) * __ldg(inverse + feature);
    values[0] = grad.at(row, feature);
    values[1] = values[0] * normal;
  }
};

// The sum over the lanes of a warp, or over groups of ``lanes`` of them, in each.
template <typename Value>
__device__ __forceinline__ Value sum_lanes(Value value, int lanes) {
  for (int apart = lanes / 2; apart; apart /= 2) value += __shfl_xor_sync(kAll, value, apart);
  return value;
}

}  // namespace

template <typename Value>
__launch_bounds__(256) __global__ void value_sums(const Value* x, i64 x_stride, i64 first,
                                                  i64 last, int width, double* partial) {
  sum_columns<1>(first, last, width, ValueTerm<Value>{{x, x_stride}}, partial);
}

template <typename Value>
__launch_bounds__(256) __global__ void batch_moment_sums(const Value* z, i64 z_stride, i64 first,
                                                         i64 last, int width, double* partial) {
  sum_columns<2>(first, last, width, SquareTerm<Value>{{z, z_stride}}, partial);
}

template <typename Value>
__launch_bounds__(256) __global__
    void layer_sums(const Value* grad, i64 grad_stride, const Value* z, i64 z_stride, i64 first,
                    i64 last, int width, const Value* moments, double* partial) {
  const LayerTerm<Value> term = {{grad, grad_stride}, {z, z_stride}, moments};
  sum_columns<2>(first, last, width, term, partial);
}

template <typename Value>
__launch_bounds__(256) __global__
    void batch_sums(const Value* grad, i64 grad_stride, const Value* z, i64 z_stride, i64 first,
                    i64 last, int width, const Value* mean, const Value* inverse,
                    double* partial) {
  const BatchTerm<Value> term = {{grad, grad_stride}, {z, z_stride}, mean, inverse};
  sum_columns<2>(first, last, width, term, partial);
}

__global__ void add_sums(const double* partial, int blocks, int count, double* sums) {
  add_partial_sums(partial, blocks, count, sums);
}

// ``lanes`` (a power of 2) of a warp share a row.
template <typename Value>
__global__ void layer_norm(const Value* __restrict__ z, i64 z_stride,
                           const Value* __restrict__ scale, const Value* __restrict__ shift,
                           Value* __restrict__ out, i64 out_stride, Value* __restrict__ moments,
                           i64 first, i64 last, int width, int lanes) {
  const int place = threadIdx.x % lanes, teams = kLanes / lanes;
  const int team = threadIdx.x % kLanes / lanes;
  const i64 step = thread_count() / kLanes * teams;
  for (i64 start = first + thread_number() / kLanes * teams; start < last; start += step) {
    const i64 row = start + team;
    const Value* from = z + row * z_stride;
    const int count = row < last ? width : 0;
    Value sum = Value(0);
    for (int f = place; f < count; f += lanes) sum += __ldg(from + f);
    const Value mean = sum_lanes(sum, lanes) / width;
    sum = Value(0);
    for (int f = place; f < count; f += lanes) {
      const Value apart = __ldg(from + f) - mean;
      sum += apart * apart;
    }
    const Value inverse = 1 / sqrt(sum_lanes(sum, lanes) / width + Value(kEpsilon));
    for (int f = place; f < count; f += lanes) {
      const Value normal = (__ldg(from + f) - mean) * inverse;
      out[row * out_stride + f] = __ldg(scale + f) * normal + __ldg(shift + f);
    }
    if (place == 0 && row < last) {
      moments[2 * row] = mean;
      moments[2 * row + 1] = inverse;
    }
  }
}

template <typename Value>
__global__ void layer_norm_back(Value* grad, i64 grad_stride, const Value* __restrict__ z,
                                i64 z_stride, const Value* __restrict__ scale,
                                const Value* __restrict__ moments, i64 first, i64 last, int width,
                                int lanes) {
  const int place = threadIdx.x % lanes, teams = kLanes / lanes;
  const int team = threadIdx.x % kLanes / lanes;
  const i64 step = thread_count() / kLanes * teams;
  for (i64 start = first + thread_number() / kLanes * teams; start < last; start += step) {
    const i64 row = start + team;
    const int count = row < last ? width : 0;
    const Value mean = row < last ? moments[2 * row] : Value(0);
    const Value inverse = row < last ? moments[2 * row + 1] : Value(0);
    Value inners = Value(0), products = Value(0);
    for (int f = place; f < count; f += lanes) {
      const Value normal = (__ldg(z + row * z_stride + f) - mean) * inverse;
      const Value inner = grad[row * grad_stride + f] * __ldg(scale + f);
      inners += inner;
      products += inner * normal;
    }
    inners = sum_lanes(inners, lanes) / width;
    products = sum_lanes(products, lanes) / width;
    for (int f = place; f < count; f += lanes) {
      const Value normal = (__ldg(z + row * z_stride + f) - mean) * inverse;
      const Value inner = grad[row * grad_stride + f] * __ldg(scale + f);
      grad[row * grad_stride + f] = inverse * (inner - inners - normal * products);
    }
  }
}

template <typename Value>
struct BatchNorm {
  const Value* z;
  i64 z_stride;
  const Value* mean;
  const Value* inverse;
  const Value* scale;
  const Value* shift;
  Value* out;
  i64 out_stride;
  __device__ __forceinline__ void operator()(i64 row, int feature) const {
    const Value normal =
        (z[row * z_stride + feature] - __ldg(mean + feature)) * __ldg(inverse + feature);
    out[row * out_stride + feature] = __ldg(scale + feature) * normal + __ldg(shift + feature);
  }
};

template <typename Value>
__launch_bounds__(256) __global__
    void batch_norm(const Value* z, i64 z_stride, const Value* mean, const Value* inverse,
                    const Value* scale, const Value* shift, Value* out, i64 out_stride, i64 first,
                    i64 last, int width) {
  each_place<4>(first, last, width,
             BatchNorm<Value>{z, z_stride, mean, inverse, scale, shift, out, out_stride});
}

template <typename Value>
struct BatchNormBack {
  Value* grad;
  i64 grad_stride;
  Matrix<Value> z;
  const Value* mean;
  const Value* inverse;
  const Value* scale;
  const Value* means;
  int width;
  __device__ __forceinline__ void operator()(i64 row, int feature) const {
    const Value inverse_here = __ldg(inverse + feature);
    const Value normal = (z.at(row, feature) - __ldg(mean + feature)) * inverse_here;
    Value& here = grad[row * grad_stride + feature];
    here = __ldg(scale + feature) * inverse_here *
           (here - __ldg(means + feature) - normal * __ldg(means + width + feature));
  }
};

template <typename Value>
__launch_bounds__(256) __global__
    void batch_norm_back(Value* grad, i64 grad_stride, const Value* z, i64 z_stride,
                         const Value* mean, const Value* inverse, const Value* scale,
                         const Value* means, i64 first, i64 last, int width) {
  each_place<4>(first, last, width,
             BatchNormBack<Value>{grad, grad_stride, {z, z_stride}, mean, inverse, scale, means,
                                  width});
}
