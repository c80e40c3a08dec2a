// A grid-wide stride over elements: any grid covers any count.
#pragma once

namespace penstock {

__device__ __forceinline__ long long thread_number() {
  return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ long long thread_count() {
  return static_cast<long long>(gridDim.x) * blockDim.x;
}

}  // namespace penstock
