// Host memory that the GPU and host threads use at the same time, and a clock.
#pragma once

namespace penstock {

// Not kept in a register or in a cache of the GPU.
__device__ __forceinline__ unsigned long long load_shared_word(const unsigned long long* at) {
  return *const_cast<const volatile unsigned long long*>(at);
}

__device__ __forceinline__ void store_shared_word(unsigned long long* at,
                                                  unsigned long long value) {
  *const_cast<volatile unsigned long long*>(at) = value;
}

__device__ __forceinline__ uint4 load_host(const uint4* at) { return __ldcv(at); }

// Earlier writes are visible before later ones, to the host too.
__device__ __forceinline__ void fence_host() { __threadfence_system(); }

__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ void wait_a_moment() { __nanosleep(200); }

}  // namespace penstock
