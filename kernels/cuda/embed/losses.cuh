// The weight of a negative's score in each loss of kernels/embed_rules.py, and sums over them.
//
// A row of scores is summed in pieces, in any order, as (largest, sum, extra) and a vector of
// weighted rows. Those of exponential losses are relative to the largest score so far.
#pragma once

#include "embed/fast_math.cuh"

namespace penstock {

enum Loss { SOFTMAX = 0, CONTRASTIVE = 1, LOGISTIC = 2, MARGIN = 3, SELF_ADVERSARIAL = 4 };

// Minus infinity: NVRTC has no <cmath>.
__device__ __forceinline__ float lowest() { return __int_as_float(0xFF800000); }

template <int kLoss>
constexpr bool is_exponential = kLoss == SOFTMAX || kLoss == CONTRASTIVE ||
                                kLoss == SELF_ADVERSARIAL;

struct LossNumbers {
  float margin, temperature;
  float share;  // 1 / N if the loss is a mean over negatives, else 1
};

__device__ __forceinline__ float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x)));
}

__device__ __forceinline__ float sigmoid(float x) {
  const float power = __expf(-fabsf(x));
  return (x >= 0.0f ? 1.0f : power) / (1.0f + power);
}

// The argument of the exponential.
template <int kLoss>
__device__ __forceinline__ float exponent(float n, const LossNumbers& numbers) {
  return kLoss == SELF_ADVERSARIAL && n != lowest() ? numbers.temperature * n : n;
}

// If no negative is left the largest is -infinity, and differences from it are NaN.
__device__ __forceinline__ float finite_base(float largest) {
  return largest == lowest() ? 0.0f : largest;
}

// Sums of a row's negatives, without the vector.
struct RowSums {
  float largest, sum, extra;
};

// Return the weight of a negative in the vector, and add it to sums. n is -infinity for one that is
// left out; base is at least every exponent.
template <int kLoss>
__device__ __forceinline__ float take_negative(float n, float p, float base, float& sum,
                                               float& extra, const LossNumbers& numbers) {
  if (kLoss == LOGISTIC) {
    extra += softplus(n);
    return sigmoid(n);
  }
  if (kLoss == MARGIN) {
    const float missing = numbers.margin - p + n;
    extra += missing <= 0.0f ? 0.0f : missing;  // a NaN stays one
    const float weight = missing > 0.0f ? 1.0f : 0.0f;
    sum += weight;
    return weight;
  }
  const float power = fast_exp(exponent<kLoss>(n, numbers), base);
  sum += power;
  if (kLoss == SELF_ADVERSARIAL) {
    // Left out: 0 times a number.
    const float above = n + numbers.margin;
    extra += power * softplus(above);
    return power * sigmoid(above);
  }
  return power;
}

// Return the slope of a batch's loss in a negative's score; ``known`` is finish_row's result for
// its row.
template <int kLoss>
__device__ __forceinline__ float negative_slope(float n, float known, const LossNumbers& numbers) {
  if (kLoss == LOGISTIC) return sigmoid(n) * numbers.share;
  if (kLoss == MARGIN) return numbers.margin - known + n > 0.0f ? numbers.share : 0.0f;
  const float power = fast_exp(exponent<kLoss>(n, numbers), known);
  return kLoss == SELF_ADVERSARIAL ? power * sigmoid(n + numbers.margin) : power;
}

// The result of finish for a row's sums.
struct RowEnd {
  float loss, by_positive;
  float known;  // to negative_slope
  float scale;  // of a vector whose largest is ``base``
  float base;
};

template <int kLoss>
__device__ __forceinline__ RowEnd finish_row(const RowSums& row, float p,
                                             const LossNumbers& numbers) {
  RowEnd end;
  end.base = finite_base(row.largest);
  if (kLoss == SOFTMAX) {
    const float top = fmaxf(row.largest, p);
    end.known = top + logf(row.sum * __expf(row.largest - top) + __expf(p - top));
    end.loss = end.known - p;
    end.by_positive = expm1f(p - end.known);
    end.scale = row.largest == lowest() ? 0.0f : __expf(row.largest - end.known);
  } else if (kLoss == CONTRASTIVE) {
    const bool some = !(row.sum == 0.0f);
    end.known = some ? end.base + logf(row.sum) : 0.0f;
    end.loss = some ? end.known - p : 0.0f;
    end.by_positive = some ? -1.0f : 0.0f;
    end.scale = some ? 1.0f / row.sum : 0.0f;
  } else if (kLoss == LOGISTIC) {
    end.known = 0.0f;
    end.loss = softplus(-p) + row.extra * numbers.share;
    end.by_positive = -sigmoid(-p);
    end.scale = numbers.share;
  } else if (kLoss == MARGIN) {
    end.known = p;
    end.loss = row.extra * numbers.share;
    end.by_positive = -row.sum * numbers.share;
    end.scale = numbers.share;
  } else {
    const bool some = !(row.sum == 0.0f);
    const float below = -p - numbers.margin;
    end.known = some ? end.base + logf(row.sum) : 0.0f;
    end.scale = some ? 1.0f / row.sum : 0.0f;
    end.loss = softplus(below) + row.extra * end.scale;
    end.by_positive = -sigmoid(below);
  }
  return end;
}

// Join the sums of two pieces of a row.
template <int kLoss>
__device__ __forceinline__ void join(RowSums& row, const RowSums& other) {
  if (!is_exponential<kLoss>) {
    row.sum += other.sum;
    row.extra += other.extra;
    return;
  }
  const float largest = fmaxf(row.largest, other.largest), base = finite_base(largest);
  const float mine = __expf(row.largest - base), theirs = __expf(other.largest - base);
  row.sum = row.sum * mine + other.sum * theirs;
  row.extra = row.extra * mine + other.extra * theirs;
  row.largest = largest;
}

}  // namespace penstock
