// Tensor cores on half precision, and copies to shared memory that run at the same time: names for
// the PTX. Halves have no type of their own: two are an ``unsigned``.
#pragma once

namespace penstock {

using Half = unsigned short;

// Two values as halves, rounded to nearest; ``low`` comes first in memory.
__device__ __forceinline__ unsigned to_halves(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ Half to_half(float x) {
  return static_cast<Half>(to_halves(x, 0.0f) & 0xFFFF);
}

__device__ __forceinline__ float to_float(Half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}

// sum += a b, of 16 x 16 and 16 x 8 halves. With g = lane / 4 and q = lane % 4 a lane holds
//   a    (g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8), each with the value to its right
//   b    (2q, g), (2q + 8, g), each with the value below it
//   sum  (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of 16 x 8 and 8 x 8 halves: the first two registers of a and the first of b.
__device__ __forceinline__ void multiply_add_8(float (&sum)[4], unsigned a0, unsigned a1,
                                               unsigned b0) {
  asm(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

// Four matrices of 8 x 8 halves; lane i names row i % 8 of matrix i / 8, and gets of each the
// values (g, 2q) and (g, 2q + 1); transposed: (2q, g) and (2q + 1, g).
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

__device__ __forceinline__ void load_transposed(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

// Two matrices; lanes 0 to 15 name their rows.
__device__ __forceinline__ void load_two(unsigned& a, unsigned& b, unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(a), "=r"(b)
               : "r"(address));
}

__device__ __forceinline__ void load_two_transposed(unsigned& a, unsigned& b, unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(a), "=r"(b)
               : "r"(address));
}

// 16 bytes of device memory, or of zeros, in flight until copies_wait.
__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait for all groups but the last kLeft.
template <int kLeft>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

__device__ __forceinline__ float* dynamic_shared() {
  extern __shared__ float4 penstock_dynamic[];
  return reinterpret_cast<float*>(penstock_dynamic);
}

}  // namespace penstock
