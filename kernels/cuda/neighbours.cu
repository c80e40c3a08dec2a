// Which rows may be among the nearest, by bounds of their scores.
#include "grid.cuh"

// instance: group_maxima
// instance: count_candidates
// instance: write_candidates

using namespace penstock;

constexpr int COLUMNS = 2048;  // of a block of threads: kernels/cuda/neighbours.py has it, too

// A cosine, moved by the bound, times the lengths for a dot product. -inf: a row that is skipped.
__device__ __forceinline__ double moved(float cosine, double bound, const double* query_lengths,
                                        const double* lengths, long long row, long long column) {
  if (isinf(cosine)) {
    return cosine;
  }
  const double end = cosine + bound;
  return lengths == nullptr ? end : end * query_lengths[row] * lengths[column];
}

// The largest lower end of each of `groups` groups of `size` columns of each row.
__global__ void group_maxima(const float* __restrict__ cosines, double bound,
                             const double* __restrict__ query_lengths,
                             const double* __restrict__ lengths, long long rows, long long columns,
                             long long groups, long long size, float* __restrict__ maxima) {
  for (long long i = thread_number(); i < rows * groups; i += thread_count()) {
    const long long row = i / groups;
    double most = -__longlong_as_double(0x7FF0000000000000LL);  // -inf
    for (long long n = 0; n < size; ++n) {  // neighbouring threads read neighbouring columns
      const long long column = n * groups + i % groups;
      most = fmax(most, moved(cosines[row * columns + column], -bound, query_lengths, lengths, row,
                              column));
    }
    maxima[i] = __double2float_rd(most);
  }
}

__global__ void count_candidates(const float* __restrict__ cosines, double bound,
                                 const double* __restrict__ query_lengths,
                                 const double* __restrict__ lengths,
                                 const double* __restrict__ worst, long long columns, int pieces,
                                 long long* __restrict__ counts) {
  const long long row = blockIdx.x / pieces;
  const long long first = static_cast<long long>(blockIdx.x % pieces) * COLUMNS;
  long long count = 0;
  for (long long begin = first; begin < min(first + COLUMNS, columns); begin += blockDim.x) {
    const long long column = begin + threadIdx.x;
    count += __syncthreads_count(column < columns &&
                                 moved(cosines[row * columns + column], bound, query_lengths,
                                       lengths, row, column) >= worst[row]);
  }
  if (threadIdx.x == 0) {
    counts[blockIdx.x] = count;
  }
}

// `ends` are sums of counts. The order within a piece is any: the caller sorts.
__global__ void write_candidates(const float* __restrict__ cosines, double bound,
                                 const double* __restrict__ query_lengths,
                                 const double* __restrict__ lengths,
                                 const double* __restrict__ worst, long long columns, int pieces,
                                 const long long* __restrict__ ends, long long* __restrict__ of,
                                 long long* __restrict__ found) {
  __shared__ int written;
  const long long begin = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  if (begin == ends[blockIdx.x]) {
    return;
  }
  if (threadIdx.x == 0) {
    written = 0;
  }
  __syncthreads();
  const long long row = blockIdx.x / pieces;
  const long long first = static_cast<long long>(blockIdx.x % pieces) * COLUMNS;
  for (long long column = first + threadIdx.x; column < min(first + COLUMNS, columns);
       column += blockDim.x) {
    if (moved(cosines[row * columns + column], bound, query_lengths, lengths, row, column) >=
        worst[row]) {
      const long long place = begin + atomicAdd(&written, 1);
      of[place] = row;
      found[place] = column;
    }
  }
}
