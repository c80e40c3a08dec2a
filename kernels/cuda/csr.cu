// Edges become rows: what CuPy's primitives cannot say. Names and meaning are naive/csr.py's.
// instance: merge_values<float, SUM>
// instance: merge_values<double, MAX>
// instance: merge_values<long long, FIRST>

enum How { SUM = 0, MAX = 1, FIRST = 2 };

// One thread an output edge walks its run of equal keys in input order, so that sums have the same
// rounding on every backend. Runs are short: an edge is rarely given more than a few times.
template <typename Value, int how>
__global__ void merge_values(const Value* __restrict__ values, const int* __restrict__ order,
                             const long long* __restrict__ first, long long edges,
                             Value* __restrict__ merged) {
  const long long e = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (e >= edges) return;
  const long long start = first[e], stop = first[e + 1];
  Value value = values[order[start]];
  if (how == SUM && stop - start > 1) {
    double total = 0.0;
    for (long long i = start; i < stop; ++i) total += static_cast<double>(values[order[i]]);
    value = static_cast<Value>(total);
  }
  if (how == MAX) {
    for (long long i = start + 1; i < stop; ++i) {
      const Value other = values[order[i]];
      value = other > value ? other : value;
    }
  }
  merged[e] = value;
}
