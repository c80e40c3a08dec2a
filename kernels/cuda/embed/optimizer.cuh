// How a gradient changes a value and its state; see kernels/embed_rules.py.
#pragma once

#include "embed/fast_math.cuh"

namespace penstock {

enum Optimizer { ADAGRAD = 0, SGD = 1, ADAM = 2 };

// rest1 and rest2 are 1 - beta^n in the n-th batch.
struct Rates {
  float lr, epsilon, beta1, beta2, rest1, rest2;
};

// state: the value's own; ADAM's is a mean and a square, the others have one or none.
template <int kOptimizer>
__device__ __forceinline__ float changed(float x, float slope, float& state, float& square,
                                         const Rates& rates) {
  if (kOptimizer == ADAGRAD) {
    state += slope * slope;
    return x - __fdividef(rates.lr * slope, fast_sqrt(state) + rates.epsilon);
  }
  if (kOptimizer == SGD) return x - rates.lr * slope;
  state = rates.beta1 * state + (1.0f - rates.beta1) * slope;
  square = rates.beta2 * square + (1.0f - rates.beta2) * slope * slope;
  const float size = fast_sqrt(square / rates.rest2) + rates.epsilon;
  return x - __fdividef(rates.lr / rates.rest1 * state, size);
}

}  // namespace penstock
