// Whether values are finite: the meaning is naive/finite.py's.
#include "grid.cuh"

// instance: are_finite

using namespace penstock;

// `found` is true before; a thread that finds NaN or an infinity writes false.
__global__ void are_finite(const float* __restrict__ values, long long count, bool* found) {
  bool bad = false;
  for (long long i = thread_number(); i < count; i += thread_count()) {
    bad |= !isfinite(values[i]);
  }
  if (bad) {
    *found = false;
  }
}
