// Rows of very different lengths, by blocks of THREADS threads: a warp or a block takes a row.
#pragma once

namespace penstock {

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr unsigned ALL = ~0u;

// Call work(row, begin, end, warp, warps) in one warp for each chosen row of a range or a list, or
// in all warps of the block if the row is longer. Each thread of a block chooses one row. APART: rows
// of a block are not neighbours, so that a range of costly rows is many blocks' work.
template <bool APART = false, typename Choose, typename Work>
__device__ __forceinline__ void over_rows(long long count, const long long* list,
                                          const long long* indptr, int longest, Choose choose,
                                          Work work) {
  __shared__ int long_rows[THREADS], waiting;
  const long long blocks = (count + THREADS - 1) / THREADS;
  for (long long block = blockIdx.x; block < blocks; block += gridDim.x) {
    auto place = [&](int thread) { return APART ? thread * blocks + block : block * THREADS + thread; };
    if (threadIdx.x == 0) waiting = 0;
    __syncthreads();
    const long long at = place(threadIdx.x);
    long long row = 0, begin = 0, end = 0;
    bool chosen = false, is_long = false;
    if (at < count) {
      row = list ? list[at] : at;
      chosen = choose(row);
      if (chosen) begin = indptr[row], end = indptr[row + 1];
      is_long = end - begin > longest;
      if (is_long) long_rows[atomicAdd(&waiting, 1)] = threadIdx.x;
    }
    for (unsigned left = __ballot_sync(ALL, chosen && !is_long); left; left &= left - 1) {
      const int lane = __ffs(left) - 1;
      work(__shfl_sync(ALL, row, lane), __shfl_sync(ALL, begin, lane), __shfl_sync(ALL, end, lane),
           0, 1);
    }
    __syncthreads();
    for (int i = 0; i < waiting; ++i) {
      const long long there = place(long_rows[i]), its = list ? list[there] : there;
      work(its, indptr[its], indptr[its + 1], threadIdx.x / 32, WARPS);
    }
    __syncthreads();  // all have read `waiting`
  }
}

}  // namespace penstock
