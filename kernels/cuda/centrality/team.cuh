// A team computes one graph: a warp, of several in its block, or a whole block.
#pragma once

namespace penstock {

// A team's work: sources[first_source .. last_source) of a graph, into a separate slot.
struct Item {
  long long first_node;    // of the batch
  long long first_source;  // in the list of sources
  long long last_source;
  long long slot;          // position of the values of the graph's nodes
  int nodes;
  int graph;
};

__device__ __forceinline__ double infinite() { return __longlong_as_double(0x7ff0000000000000ll); }

template <bool WARP>
struct Team {
  __device__ __forceinline__ static int size() { return WARP ? 32 : blockDim.x; }
  __device__ __forceinline__ static int rank() { return WARP ? threadIdx.x & 31 : threadIdx.x; }
  __device__ __forceinline__ static long long item() {
    if (WARP) return (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) >> 5;
    return blockIdx.x;
  }
  __device__ __forceinline__ static long long items() {
    return WARP ? static_cast<long long>(gridDim.x) * blockDim.x >> 5 : gridDim.x;
  }
  // The start of the team's share of the block's shared memory, of `bytes` each.
  __device__ __forceinline__ static long long place(long long bytes) {
    return WARP ? (threadIdx.x >> 5) * bytes : 0;
  }
  __device__ __forceinline__ static void sync() {
    if (WARP) __syncwarp(); else __syncthreads();
  }
  __device__ __forceinline__ static bool any(bool mine) {
    if (WARP) {
      const bool found = __any_sync(0xffffffffu, mine);
      __syncwarp();
      return found;
    }
    return __syncthreads_or(mine);
  }
};

}  // namespace penstock
