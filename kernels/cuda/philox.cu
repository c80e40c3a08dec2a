// Draws of any numbers: their meaning is naive/philox.py's.
#include "grid.cuh"
#include "philox.cuh"

// instance: draws

using namespace penstock;

__global__ void draws(u64 seed, u32 stream, const u64* __restrict__ which,
                      const u32* __restrict__ steps, long long last_step, long long count,
                      u32* __restrict__ found) {
  for (long long i = thread_number(); i < count; i += thread_count())
    found[i] = philox4x32(seed, stream, which[i], steps[min(i, last_step)]).x;
}
