// Thread block clusters, whose blocks wait for each other and read each other's shared memory:
// names for the PTX. GPUs have them from compute capability 9.0 on; on others nothing launches
// these.
#pragma once

#include "embed/tensor_cores.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define PENSTOCK_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define PENSTOCK_CLUSTER(blocks)
#endif

namespace penstock {

// Wait for all threads of a cluster; then all its blocks see their writes to shared memory.
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __trap();
#endif
}

// The address in a block of the cluster that corresponds to ``mine`` in this one.
__device__ __forceinline__ unsigned cluster_address(const void* mine, int block) {
  unsigned there = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(shared_address(mine)), "r"(block));
#endif
  return there;
}

__device__ __forceinline__ float cluster_read(unsigned address) {
  float x = 0.0f;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
#endif
  return x;
}

}  // namespace penstock
