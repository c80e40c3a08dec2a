// One step of an optimizer over all parameters. Names and meaning are naive/optimizer.py's.
#include "grid.cuh"

// instance: sgd<float>
// instance: sgd<double>
// instance: adam<float>
// instance: adam<double>

using i64 = long long;

template <typename Value>
__global__ void sgd(Value* __restrict__ parameters, const Value* __restrict__ gradient,
                    Value* __restrict__ velocity, i64 count, Value lr, Value momentum,
                    Value weight_decay, Value scale) {
  for (i64 i = penstock::thread_number(); i < count; i += penstock::thread_count()) {
    const Value parameter = parameters[i];
    const Value now = momentum * velocity[i] + (gradient[i] * scale + weight_decay * parameter);
    velocity[i] = now;
    parameters[i] = parameter - lr * now;
  }
}

// shrink: factor of decoupled decay; fresh1, fresh2: 1 - beta;
// rest2: 1 - beta2**step; pace: lr / (1 - beta1**step).
template <typename Value>
__global__ void adam(Value* __restrict__ parameters, const Value* __restrict__ gradient,
                     Value* __restrict__ mean, Value* __restrict__ square, i64 count, Value shrink,
                     Value weight_decay, Value beta1, Value fresh1, Value beta2, Value fresh2,
                     Value rest2, Value pace, Value epsilon, Value scale) {
  for (i64 i = penstock::thread_number(); i < count; i += penstock::thread_count()) {
    const Value parameter = parameters[i];
    const Value slope = gradient[i] * scale + weight_decay * parameter;
    const Value first = beta1 * mean[i] + fresh1 * slope;
    const Value second = beta2 * square[i] + fresh2 * slope * slope;
    mean[i] = first;
    square[i] = second;
    parameters[i] = parameter * shrink - pace * first / (sqrt(second / rest2) + epsilon);
  }
}
