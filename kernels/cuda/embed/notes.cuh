// What tiles are given of a row besides its values.
#pragma once

namespace penstock {

struct alignas(16) Note {
  int id;          // a query's answer, or the negative
  float scale;     // by which the halves of the row are to be multiplied
  float positive;  // of a query: the score of its answer
  float norm;      // of a query: what finish_row made of its sums
};

// Halves have as many bits of mantissa as TF32, but 5 of exponent: rows are divided by a power of
// 2 that brings them below 1, within bounds. Next to kBoost they keep weights, which are at most 1,
// times a scale from overflow; a row may have values up to a million, and is exact to 11 bits
// down to 6e-8.
constexpr float kLeastScale = 1.0f / 1024, kMostScale = 16.0f, kBoost = 2048.0f;

// The scale of a row whose largest value is this.
__device__ __forceinline__ float scale_of(float largest) {
  const float above = __uint_as_float((__float_as_uint(largest) & 0x7F800000u) + 0x00800000u);
  return fminf(fmaxf(above, kLeastScale), kMostScale);
}

}  // namespace penstock
