// Rows of uniform random numbers: the meaning is naive/uniform_rows.py's.
#include "grid.cuh"
#include "philox.cuh"

// instance: uniform_rows

using namespace penstock;

// One thread per draw, which is four values of a row. The integer has up to 25 bits, so that it is
// rounded once, like float64 to float32 in the twins; 2^-24 scales it exactly.
__global__ void uniform_rows(u64 seed, u32 stream, const long long* __restrict__ which,
                             long long count, int width, u32 step, float* __restrict__ rows) {
  const int draws = (width + 3) / 4;
  for (long long i = thread_number(); i < count * draws; i += thread_count()) {
    const long long row = i / draws;
    const int four = static_cast<int>(i - row * draws);
    const u64 number = static_cast<u64>(which[row]) * static_cast<u64>(draws) + four;
    const uint4 drawn = philox4x32(seed, stream, number, step);
    const u32 words[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
    float* const to = rows + row * width + 4 * four;
    for (int j = 0; j < 4 && 4 * four + j < width; ++j) {
      const int odd = 2 * static_cast<int>(words[j] >> 8) + 1 - (1 << 24);
      to[j] = __int2float_rn(odd) * 5.9604644775390625e-8f;
    }
  }
}
