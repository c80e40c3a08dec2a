// Queries, scores and their derivatives by value, as in kernels/embed_rules.py.
//
// A thread has one value of a row; in complex models the real and imaginary part of one.
#pragma once

namespace penstock {

enum Model {
  DOT = 0,
  DISTMULT = 1,
  COMPLEX = 2,
  RESCAL = 3,
  TUCKER = 4,
  TRANSE_L1 = 5,
  TRANSE_L2 = 6,
  ROTATE = 7
};

template <int kModel>
constexpr bool is_complex = kModel == COMPLEX || kModel == ROTATE;
template <int kModel>
constexpr bool is_distance = kModel >= TRANSE_L1;
// The square of a distance from a product and two squares: |a - b|^2 = |a|^2 + |b|^2 - 2 ab.
template <int kModel>
constexpr bool is_product = !is_distance<kModel> || kModel == TRANSE_L2;

struct Value {
  float re, im;
};

__device__ __forceinline__ Value times(Value a, Value b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

__device__ __forceinline__ Value conjugate(Value a) { return {a.re, -a.im}; }

// The k-th value of a row, whose imaginary parts begin at ``half``.
template <int kModel>
__device__ __forceinline__ Value value_of(const float* row, int k, int half) {
  return {row[k], is_complex<kModel> ? row[k + half] : 0.0f};
}

// A relation's, as a factor: ROTATE has phases.
template <int kModel>
__device__ __forceinline__ Value relation_of(const float* row, int k, int half) {
  if (kModel == DOT) return {0.0f, 0.0f};
  if (kModel == ROTATE) {
    float sine, cosine;
    sincosf(row[k], &sine, &cosine);
    return {cosine, sine};
  }
  return value_of<kModel>(row, k, half);
}

template <int kModel>
__device__ __forceinline__ Value query_of(Value x, Value r, bool head) {
  if (kModel == DOT) return x;
  if (kModel == DISTMULT) return {x.re * r.re, 0.0f};
  if (kModel == TRANSE_L1 || kModel == TRANSE_L2) {
    return {head ? x.re - r.re : x.re + r.re, 0.0f};
  }
  return times(x, head ? conjugate(r) : r);
}

// A value's part of a score's sum: of products, or of a distance before negation.
template <int kModel, typename Number>
__device__ __forceinline__ Number score_term(Number q_re, Number q_im, Number v_re, Number v_im) {
  if (!is_distance<kModel>) return is_complex<kModel> ? q_re * v_re + q_im * v_im : q_re * v_re;
  const Number re = q_re - v_re, im = q_im - v_im;
  if (kModel == TRANSE_L1) return re < Number(0) ? -re : re;
  if (kModel == TRANSE_L2) return re * re;
  return sqrt(re * re + im * im);
}

template <int kModel, typename Number>
__device__ __forceinline__ Number score_of(Number sum) {
  if (!is_distance<kModel>) return sum;
  return kModel == TRANSE_L2 ? -sqrt(sum) : -sum;
}

// The derivative of the distance of a and b in a. TRANSE_L2: without the division by that distance.
template <int kModel>
__device__ __forceinline__ Value unit(Value a, Value b) {
  const float re = a.re - b.re, im = a.im - b.im;
  if (kModel == TRANSE_L1) {
    return {re > 0.0f ? 1.0f : re < 0.0f ? -1.0f : re, 0.0f};  // a NaN stays one
  }
  if (kModel == TRANSE_L2) return {re, 0.0f};
  const float square = re * re + im * im;
  const float inverse = square == 0.0f ? 0.0f : rsqrtf(square);
  return {re * inverse, im * inverse};
}

// The factor of the slope in a score that makes ``unit`` the derivative.
template <int kModel>
__device__ __forceinline__ float unit_scale(float score) {
  if (kModel != TRANSE_L2) return 1.0f;
  return score == 0.0f ? 0.0f : -1.0f / score;
}

// Gradients in the node and the relation from those in the query. ROTATE's is that of the phase.
template <int kModel>
__device__ __forceinline__ void query_slopes(Value x, Value r, Value slope, bool head, Value& in_x,
                                             Value& in_r) {
  if (kModel == DOT) {
    in_x = slope;
    in_r = {0.0f, 0.0f};
  } else if (kModel == DISTMULT) {
    in_x = {slope.re * r.re, 0.0f};
    in_r = {slope.re * x.re, 0.0f};
  } else if (kModel == TRANSE_L1 || kModel == TRANSE_L2) {
    in_x = slope;
    in_r = {head ? -slope.re : slope.re, 0.0f};
  } else {
    const Value factor = head ? conjugate(r) : r;
    in_x = times(slope, conjugate(factor));
    Value in_factor = times(slope, conjugate(x));
    if (head) in_factor = conjugate(in_factor);
    // exp(i r) moves by i exp(i r).
    in_r = kModel == COMPLEX ? in_factor
                             : Value{in_factor.im * r.re - in_factor.re * r.im, 0.0f};
  }
}

}  // namespace penstock
