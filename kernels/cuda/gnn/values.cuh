// Values of features: several of a row at once, and their epilogue (kernels/gnn_rules.py).
#pragma once
#include "grid.cuh"
#include "philox.cuh"

namespace penstock {

using i64 = long long;

// Read 4, 8 or 16 bytes that no kernel writes while this one runs; zeros unless wanted. In C++ with
// a branch or a choice, such loads wait for each other (nvcc 13.0 puts each next to its use); as
// single instructions, in the order written, several are in flight at once.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void read_if(bool wanted, const void* from, u32 (&words)[1]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b32 %0, 0;\n"
      "@p ld.global.nc.b32 %0, [%1];\n}"
      : "=&r"(words[0])
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
}
__device__ __forceinline__ void read_if(bool wanted, const void* from, u32 (&words)[2]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
      "@p ld.global.nc.v2.b32 {%0, %1}, [%2];\n}"
      : "=&r"(words[0]), "=&r"(words[1])
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
}
__device__ __forceinline__ void read_if(bool wanted, const void* from, u32 (&words)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
}
#else
template <int Count>
__device__ __forceinline__ void read_if(bool wanted, const void* from, u32 (&words)[Count]) {
  for (int i = 0; i < Count; ++i) words[i] = wanted ? static_cast<const u32*>(from)[i] : 0;
}
#endif

// The built-in type of a number of adjacent values.
template <typename Value, int Count>
struct Wide;
template <typename Value>
struct Wide<Value, 1> {
  using Type = Value;
};
template <>
struct Wide<float, 2> {
  using Type = float2;
};
template <>
struct Wide<float, 4> {
  using Type = float4;
};
template <>
struct Wide<double, 2> {
  using Type = double2;
};
template <>
struct Wide<int, 2> {
  using Type = int2;
};
template <>
struct Wide<int, 4> {
  using Type = int4;
};

// The upper half of a float: eight bits of exponent, seven of fraction. Only for reading.
struct Bf16 {
  unsigned short bits;
  __device__ __forceinline__ operator float() const {
    return __uint_as_float(static_cast<u32>(bits) << 16);
  }
};
template <>
struct Wide<Bf16, 1> {
  using Type = unsigned short;
};
template <>
struct Wide<Bf16, 8> {
  using Type = uint4;
};

template <typename Value, int Count>
struct alignas(sizeof(Value) * Count) Pack {
  static constexpr int kMost = 16 / sizeof(Value);  // what one instruction reads
  static constexpr int kTogether = Count < kMost ? Count : kMost;
  using Type = typename Wide<Value, kTogether>::Type;
  Value at[Count];

  __device__ __forceinline__ static Pack zero() {
    Pack pack;
#pragma unroll
    for (int i = 0; i < Count; ++i) pack.at[i] = Value(0);
    return pack;
  }
  // For data that no kernel writes while this one runs.
  __device__ __forceinline__ static Pack load(const Value* from) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < Count; i += kTogether) {
      *reinterpret_cast<Type*>(pack.at + i) = __ldg(reinterpret_cast<const Type*>(from + i));
    }
    return pack;
  }
  __device__ __forceinline__ static Pack load_if(bool wanted, const Value* from) {
    u32 words[sizeof(Pack) / sizeof(u32)];
    read_if(wanted, from, words);
    Pack pack;
    memcpy(&pack, words, sizeof pack);
    return pack;
  }
  // For data that may be written in place.
  __device__ __forceinline__ static Pack read(const Value* from) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < Count; i += kTogether) {
      *reinterpret_cast<Type*>(pack.at + i) = *reinterpret_cast<const Type*>(from + i);
    }
    return pack;
  }
  __device__ __forceinline__ void store(Value* to) const {
#pragma unroll
    for (int i = 0; i < Count; i += kTogether) {
      *reinterpret_cast<Type*>(to + i) = *reinterpret_cast<const Type*>(at + i);
    }
  }
};

enum Activation { kNone = 0, kRelu = 1, kLeakyRelu = 2, kElu = 3, kTanh = 4, kSigmoid = 5 };

constexpr double kSlope = 0.01;
constexpr int kIdBits = 40;
constexpr int kLayerBits = 6;

template <typename Value>
__device__ __forceinline__ Value activate(int activation, Value value) {
  switch (activation) {
    case kRelu: return value < 0 ? Value(0) : value;  // NaN stays
    case kLeakyRelu: return value > 0 ? value : Value(kSlope) * value;
    case kElu: return value > 0 ? value : expm1(value);
    case kTanh: return tanh(value);
    case kSigmoid: return 1 / (1 + exp(-value));
    default: return value;
  }
}

// The derivative, from the output of the activation.
template <typename Value>
__device__ __forceinline__ Value slope_of(int activation, Value value) {
  switch (activation) {
    case kRelu: return value > 0 ? Value(1) : Value(0);
    case kLeakyRelu: return value > 0 ? Value(1) : Value(kSlope);
    case kElu: return value > 0 ? Value(1) : value + 1;
    case kTanh: return 1 - value * value;
    case kSigmoid: return value * (1 - value);
    default: return Value(1);
  }
}

// The step of dropout, with the epoch at ``epoch`` if it is not null: captured kernels read each
// epoch's from there.
__device__ __forceinline__ u32 step_now(u32 step, const u32* epoch) {
  return epoch ? __ldg(epoch) << kLayerBits | (step & ((1u << kLayerBits) - 1)) : step;
}

// The dropped values; ids is null if none is.
template <typename Value>
struct Dropout {
  const i64* ids;
  u64 seed;
  u32 stream;
  u32 step;
  u64 below;
  Value scale;

  // The words of features 4 * (feature / 4) and the next three.
  __device__ __forceinline__ uint4 words(i64 row, i64 feature) const {
    const u64 which = static_cast<u64>(__ldg(ids + row)) | static_cast<u64>(feature / 4) << kIdBits;
    return philox4x32(seed, stream, which, step);
  }
  __device__ __forceinline__ Value factor(u32 word) const {
    return word >= below ? scale : Value(0);
  }
};

__device__ __forceinline__ u32 word_at(const uint4& words, int place) {
  return place == 0 ? words.x : place == 1 ? words.y : place == 2 ? words.z : words.w;
}

template <typename Value>
struct Epilogue {
  const Value* bias;
  const Value* skip;
  i64 skip_stride;
  int activation;
  Dropout<Value> drop;

  template <int Count>
  __device__ __forceinline__ void apply(Pack<Value, Count>& pack, i64 row, int feature) const {
    if (bias) {
#pragma unroll
      for (int i = 0; i < Count; ++i) pack.at[i] += __ldg(bias + feature + i);
    }
    if (skip) {
      const Pack<Value, Count> more = Pack<Value, Count>::read(skip + row * skip_stride + feature);
#pragma unroll
      for (int i = 0; i < Count; ++i) pack.at[i] += more.at[i];
    }
#pragma unroll
    for (int i = 0; i < Count; ++i) pack.at[i] = activate(activation, pack.at[i]);
    if (drop.ids) {
      constexpr int kDrawn = Count < 4 ? Count : 4;
#pragma unroll
      for (int from = 0; from < Count; from += kDrawn) {
        const uint4 words = drop.words(row, feature + from);
#pragma unroll
        for (int i = 0; i < kDrawn; ++i) {
          const int place = kDrawn == 4 ? i : (feature + i) % 4;
          pack.at[from + i] *= drop.factor(word_at(words, place));
        }
      }
    }
  }
};

// ``body(row, place)`` for all places of some rows. A thread keeps its place and goes from row to
// row, so that it divides once; it has Unroll rows in flight.
template <int Unroll, class Body>
__device__ __forceinline__ void each_place(i64 first, i64 last, int places, const Body& body) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int together = places < threads ? places : threads, slots = threads / together;
  const int slot = thread / together;
  if (slot >= slots) return;
  const i64 step = static_cast<i64>(gridDim.x) * slots;
  for (int place = thread % together; place < places; place += together) {
#pragma unroll Unroll
    for (i64 row = first + static_cast<i64>(blockIdx.x) * slots + slot; row < last; row += step) {
      body(row, place);
    }
  }
}

// The row of an edge.
__device__ __forceinline__ i64 row_of(const i64* __restrict__ indptr, i64 rows, i64 edge) {
  i64 low = 0, count = rows;  // the last row that starts at or before the edge
  while (count > 1) {
    const i64 half = count / 2;
    if (__ldg(indptr + low + half) <= edge) {
      low += half;
      count -= half;
    } else {
      count = half;
    }
  }
  return low;
}

}  // namespace penstock
