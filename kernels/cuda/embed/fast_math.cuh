// Functions to about 2^-21, in one or two instructions; values below 1e-38 count as 0.
#pragma once

namespace penstock {

__device__ __forceinline__ float fast_sqrt(float x) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

// 0 of 0.
__device__ __forceinline__ float fast_inverse_sqrt(float x) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return x < 1.2e-38f ? 0.0f : root;
}

// exp(x - base): the product of the base is the same for a row.
__device__ __forceinline__ float fast_exp(float x, float base) {
  constexpr float kLog2E = 1.4426950408889634f;
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(x, kLog2E, -base * kLog2E)));
  return power;
}

}  // namespace penstock
