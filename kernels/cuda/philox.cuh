// Philox4x32-10: the words, their meaning and their order are naive/philox.py's.
#pragma once

namespace penstock {

using u32 = unsigned int;
using u64 = unsigned long long;

// Four words of 32 random bits for one (seed, stream, which, step).
__device__ __forceinline__ uint4 philox4x32(u64 seed, u32 stream, u64 which, u32 step) {
  u32 c0 = static_cast<u32>(which), c1 = static_cast<u32>(which >> 32);
  u32 c2 = step, c3 = stream;
  u32 k0 = static_cast<u32>(seed), k1 = static_cast<u32>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// [0, 1) from the upper 24 bits, so that float holds the value exactly.
__device__ __forceinline__ float uniform(u32 word) {
  return static_cast<float>(word >> 8) * 5.9604644775390625e-8f;
}

}  // namespace penstock
