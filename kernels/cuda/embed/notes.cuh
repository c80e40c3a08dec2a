// Data of a row for tiles, besides its values.
#pragma once

namespace penstock {

struct alignas(16) Note {
  int id;        // a query's answer, or the negative
  float scale;   // factor of the row's halves
  float square;  // for squares of distances: the sum of squares of the rounded values
  float known;   // of a query: the score of its answer; once its sums are finished, what
                 // negative_slope needs of them
};

// Halves have the same bits of mantissa as TF32, but 5 of exponent: rows are divided by a power of
// 2 that brings them below 1, within bounds. With kBoost they keep weights, which are at most 1,
// times a scale from overflow; a row may have values up to a million, and is exact to 11 bits down
// to 6e-8.
constexpr float kLeastScale = 1.0f / 1024, kMostScale = 16.0f, kBoost = 2048.0f;

// Weights of L2 distances are divided by these: bounded below, so that a weight times a scale is at
// most 2048, since a row's norm is at least half of its scale; below the bound, the difference of
// two sums of squares is 0 in float32 anyway.
constexpr float kDistanceBoost = 16.0f, kLeastSquare = 1.0f / (1 << 20);

// The scale of a row whose largest value is this.
__device__ __forceinline__ float scale_of(float largest) {
  const float above = __uint_as_float((__float_as_uint(largest) & 0x7F800000u) + 0x00800000u);
  return fminf(fmaxf(above, kLeastScale), kMostScale);
}

}  // namespace penstock
