// Edges become rows: the steps that CuPy's primitives cannot express. Names and meaning are
// naive/csr.py's.
#include "grid.cuh"

// instance: merge_values<float, 0>
// instance: merge_values<float, 1>
// instance: merge_values<float, 2>
// instance: merge_values<float, 3>
// instance: merge_values<double, 0>
// instance: merge_values<double, 1>
// instance: merge_values<double, 2>
// instance: merge_values<double, 3>
// instance: merge_values<long long, 0>
// instance: merge_values<long long, 1>
// instance: merge_values<long long, 2>
// instance: merge_values<long long, 3>

enum How { kSum = 0, kMax = 1, kFirst = 2, kMin = 3 };

// One thread per output edge walks its run of equal keys in input order, so that sums have the same
// rounding on every backend. Runs are short: edges are rarely repeated more than a few times.
template <typename Value, int how>
__global__ void merge_values(const Value* __restrict__ values, const int* __restrict__ order,
                             const long long* __restrict__ first, long long edges,
                             Value* __restrict__ merged) {
  for (long long e = penstock::thread_number(); e < edges; e += penstock::thread_count()) {
    const long long start = first[e], stop = first[e + 1];
    Value value = values[order[start]];
    if (how == kSum && stop - start > 1) {
      double total = 0.0;
      for (long long i = start; i < stop; ++i) total += static_cast<double>(values[order[i]]);
      value = static_cast<Value>(total);
    }
    if (how == kMax || how == kMin) {
      for (long long i = start + 1; i < stop; ++i) {
        const Value other = values[order[i]];
        value = (how == kMax ? other > value : other < value) ? other : value;
      }
    }
    merged[e] = value;
  }
}
