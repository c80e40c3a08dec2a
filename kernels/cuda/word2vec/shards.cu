// Changes of shards, and moves of rows. Names and meaning are naive/word2vec.py's.
//
// All kernels are bound by memory: each reads and writes each value once.
#include "grid.cuh"

// instance: changes<1>
// instance: changes<4>
// instance: apply_changes<1>
// instance: apply_changes<4>
// instance: square_sums

using namespace penstock;

namespace {

constexpr int kLanes = 32;
constexpr unsigned kAll = 0xFFFFFFFFu;

template <int kVec>
struct Values {
  float each[kVec];
};
template <>
struct alignas(16) Values<4> {
  float each[4];
};

template <int kVec>
__device__ __forceinline__ Values<kVec> load(const float* from, long long place) {
  return reinterpret_cast<const Values<kVec>*>(from)[place];
}

template <int kVec>
__device__ __forceinline__ void store(float* to, long long place, const Values<kVec>& values) {
  reinterpret_cast<Values<kVec>*>(to)[place] = values;
}

// The share of the changes' sum by which a row moves.
__device__ __forceinline__ float share_of(float pairs, float steepest, float dimension, float count,
                                          float furthest, float least) {
  const float most = fmaxf(pairs * steepest, least);
  const float way = fmaxf(most / dimension, least);
  const float share = expm1f(-count * way) / (count * expm1f(-way));
  return fminf(share, (-furthest / count) / expm1f(-most));
}

}  // namespace

// moved = copy - base, or added to it. size counts kVec values each.
template <int kVec>
__global__ void changes(const float* __restrict__ base, const float* __restrict__ copy,
                        long long size, int add, float* __restrict__ moved) {
  for (long long i = thread_number(); i < size; i += thread_count()) {
    const Values<kVec> now = load<kVec>(copy, i), before = load<kVec>(base, i);
    Values<kVec> change{};
    if (add) change = load<kVec>(moved, i);
    for (int j = 0; j < kVec; ++j) change.each[j] += now.each[j] - before.each[j];
    store<kVec>(moved, i, change);
  }
}

// One warp per row, of wide = dimension / kVec groups of values. square is one number on the
// device, so that the host does not wait for it; scale is its factor.
template <int kVec>
__global__ void apply_changes(float* __restrict__ base, float* __restrict__ copy,
                              const float* __restrict__ moved, const float* __restrict__ pairs,
                              const double* __restrict__ square, double scale, int count,
                              float furthest, float least, long long rows, int wide) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const float steepest = static_cast<float>(*square * scale);
  const float dimension = static_cast<float>(wide * kVec);
  for (long long row = thread_number() / kLanes; row < rows; row += thread_count() / kLanes) {
    const float share = share_of(pairs[row], steepest, dimension, static_cast<float>(count),
                                 furthest, least);
    for (int column = lane; column < wide; column += kLanes) {
      const long long i = row * wide + column;
      const Values<kVec> change = load<kVec>(moved, i);
      Values<kVec> value = load<kVec>(base, i);
      for (int j = 0; j < kVec; ++j) value.each[j] += share * change.each[j];
      store<kVec>(base, i, value);
      store<kVec>(copy, i, value);
    }
  }
}

// One sum per block of rows' squares by their weights. One warp per row; blocks have 256 threads.
// Only the number of blocks decides the order of additions.
__global__ void square_sums(const float* __restrict__ weights, const float* __restrict__ vectors,
                            long long rows, int dimension, double* __restrict__ sums) {
  __shared__ double of_warps[8];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  double sum = 0;
  for (long long row = thread_number() / kLanes; row < rows; row += thread_count() / kLanes) {
    const float* const values = vectors + row * dimension;
    float square = 0;
    for (int column = lane; column < dimension; column += kLanes) {
      square += values[column] * values[column];
    }
    sum += static_cast<double>(weights[row]) * static_cast<double>(square);
  }
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  if (lane == 0) of_warps[threadIdx.x / kLanes] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    double all = 0;
    for (unsigned i = 0; i < blockDim.x / kLanes; ++i) all += of_warps[i];
    sums[blockIdx.x] = all;
  }
}
