// Losses, their gradients, and how often the prediction was right. Names and meaning are
// naive/loss.py's. Some lanes of a warp (a power of 2) have a row; each block leaves its share of
// the twelve sums, which are then added in their order. Gradients may take the logits' place.
#include "gnn_values.cuh"

// instance: cross_entropy<float, int, 2, 8>
// instance: cross_entropy<float, int, 4, 8>
// instance: cross_entropy<float, int, 8, 6>
// instance: cross_entropy<float, int, 8, 8>
// instance: cross_entropy<float, int, 16, 8>
// instance: cross_entropy<float, int, 32, 8>
// instance: cross_entropy<float, long long, 2, 8>
// instance: cross_entropy<float, long long, 4, 8>
// instance: cross_entropy<float, long long, 8, 6>
// instance: cross_entropy<float, long long, 8, 8>
// instance: cross_entropy<float, long long, 16, 8>
// instance: cross_entropy<float, long long, 32, 8>
// instance: cross_entropy<double, int, 32, 8>
// instance: cross_entropy<double, long long, 32, 8>
// instance: wide_cross_entropy<float, int>
// instance: wide_cross_entropy<float, long long>
// instance: wide_cross_entropy<double, int>
// instance: wide_cross_entropy<double, long long>
// instance: binary_cross_entropy<float, int>
// instance: binary_cross_entropy<float, long long>
// instance: binary_cross_entropy<double, int>
// instance: binary_cross_entropy<double, long long>
// instance: squared_error<float>
// instance: squared_error<double>
// instance: add_losses

using namespace penstock;

namespace {

constexpr int kLanes = 32;
constexpr int kThreads = 256;
constexpr int kRoles = 3, kSums = 4;
constexpr u32 kAll = 0xFFFFFFFFu;

template <typename Value>
__device__ __forceinline__ Value sum_lanes(Value value, int lanes) {
  for (int apart = lanes / 2; apart; apart /= 2) value += __shfl_xor_sync(kAll, value, apart);
  return value;
}

// The sums of a block's threads at partial, (blocks, 12); ``of(n)`` is the thread's own n-th.
template <class Sum>
__device__ __forceinline__ void end_sums(const Sum& of, double* __restrict__ partial) {
  __shared__ double shared[kThreads / kLanes][kRoles * kSums];
#pragma unroll
  for (int n = 0; n < kRoles * kSums; ++n) {
    const double sum = sum_lanes(of(n), kLanes);
    if (threadIdx.x % kLanes == 0) shared[threadIdx.x / kLanes][n] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kRoles * kSums) {
    double sum = 0.0;
    for (int warp = 0; warp < kThreads / kLanes; ++warp) sum += shared[warp][threadIdx.x];
    partial[static_cast<i64>(blockIdx.x) * kRoles * kSums + threadIdx.x] = sum;
  }
}

// A thread's share of sums. Roles are compared, not used as an index, so that it stays in
// registers.
struct Tally {
  double sums[kRoles][kSums];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) sums[r][s] = 0.0;
    }
  }
  __device__ __forceinline__ void add(int role, double loss, double terms, double right,
                                      double of) {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
      if (role != r) continue;
      sums[r][0] += loss;
      sums[r][1] += terms;
      sums[r][2] += right;
      sums[r][3] += of;
    }
  }
  __device__ __forceinline__ void end(double* __restrict__ partial) const {
    end_sums([&](int n) { return sums[n / kSums][n % kSums]; }, partial);
  }
};

// The same where rows are counted, in fewer registers.
struct RowTally {
  double losses[kRoles];
  int rows[kRoles], right[kRoles];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
      losses[r] = 0.0;
      rows[r] = right[r] = 0;
    }
  }
  __device__ __forceinline__ void add(int role, double loss, bool is_right) {
#pragma unroll
    for (int r = 0; r < kRoles; ++r) {
      if (role != r) continue;
      losses[r] += loss;
      rows[r] += 1;
      right[r] += is_right;
    }
  }
  __device__ __forceinline__ void end(double* __restrict__ partial) const {
    end_sums(
        [&](int n) {
          const int r = n / kSums, s = n % kSums;
          return s == 0 ? losses[r] : static_cast<double>(s == 2 ? right[r] : rows[r]);
        },
        partial);
  }
};

// The larger, which NaN is.
template <typename Value>
__device__ __forceinline__ Value larger(Value a, Value b) {
  return a > b || a != a ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ float larger(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
#endif

// Read a value, minus infinity unless wanted. As one instruction, in the order written, so that
// several are under way at once (gnn_values.cuh); kernels may write what they read so.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ float read_or_least(bool wanted, const float* from) {
  float value;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b32 %0, 0xFF800000;\n"
      "@p ld.global.f32 %0, [%1];\n}"
      : "=&f"(value)
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
  return value;
}
__device__ __forceinline__ double read_or_least(bool wanted, const double* from) {
  double value;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b64 %0, 0xFFF0000000000000;\n"
      "@p ld.global.f64 %0, [%1];\n}"
      : "=&d"(value)
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<u32>(wanted)));
  return value;
}
#else
template <typename Value>
__device__ __forceinline__ Value read_or_least(bool wanted, const Value* from) {
  return wanted ? *from : -static_cast<Value>(INFINITY);
}
#endif

// A row's label and role, and each Lanes-th of its logits, which a lane has.
template <typename Value, int Lanes, int Each>
struct Row {
  Value at[Each];
  int label, role;

  // All loads are under way at once, whatever the role.
  template <typename Id>
  __device__ __forceinline__ void read(const Value* logits, i64 stride,
                                       const Id* __restrict__ labels,
                                       const signed char* __restrict__ roles, i64 row, bool exists,
                                       int place, int classes) {
    const Value* const from = logits + row * stride + place;
    const int count = exists ? classes - place : 0;
#pragma unroll
    for (int i = 0; i < Each; ++i) at[i] = read_or_least(i * Lanes < count, from + i * Lanes);
    const Id given = exists ? __ldg(labels + row) : Id(-1);
    label = given < 0 ? -1 : static_cast<int>(given);
    role = exists ? static_cast<int>(__ldg(roles + row)) : -1;
  }
};

}  // namespace

// Up to Lanes * Each classes: a row's logits are read once, a row ahead, and stay in registers.
template <typename Value, typename Id, int Lanes, int Each>
__launch_bounds__(256, sizeof(Value) == 4 ? 4 : 2) __global__
    void cross_entropy(const Value* logits, i64 stride, const Id* __restrict__ labels,
                       const signed char* __restrict__ roles, Value scale, Value* grad,
                       i64 grad_stride, i64 first, i64 last, int classes, double* partial) {
  constexpr u32 kTeam = Lanes == kLanes ? kAll : (1u << Lanes % kLanes) - 1;
  const int place = threadIdx.x % Lanes, team = threadIdx.x % kLanes / Lanes;
  const i64 step = thread_count() / Lanes;
  RowTally tally;
  tally.begin();
  Row<Value, Lanes, Each> next;
  i64 row = first + thread_number() / Lanes;
  next.read(logits, stride, labels, roles, row, row < last, place, classes);
#pragma unroll 1
  for (; row - team < last; row += step) {  // the same for all of a warp
    Row<Value, Lanes, Each> now = next;
    Value(&value)[Each] = now.at;
    next.read(logits, stride, labels, roles, row + step, row + step < last, place, classes);
    Value largest = value[0];
#pragma unroll
    for (int i = 1; i < Each; ++i) largest = larger(largest, value[i]);
#pragma unroll
    for (int apart = Lanes / 2; apart; apart /= 2) {
      largest = larger(largest, __shfl_xor_sync(kAll, largest, apart));
    }
    const bool strange = largest != largest;
    const bool counts = now.role >= 0 && now.label >= 0;
    // Where the label is among this lane's logits, and whether one before it is as large.
    const int ahead = now.label - place;
    Value labelled = Value(0), total = Value(0);
    bool before = false;
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      const bool first_of_all = strange ? value[i] != value[i] : value[i] == largest;
      before = before || (first_of_all && i * Lanes < ahead);
      if (i * Lanes == ahead) labelled = value[i];
      value[i] = exp(value[i] - largest);
      total += value[i];
    }
    total = sum_lanes(total, Lanes);
    const u32 others = __ballot_sync(kAll, before) >> team * Lanes & kTeam;
    if (counts && ahead >= 0 && ahead % Lanes == 0) {
      const bool is_largest = strange ? labelled != labelled : labelled == largest;
      tally.add(now.role, log(total) - (labelled - largest), is_largest && !others);
    }
    if (grad && row < last) {
      const bool trains = counts && now.role == 0;
      const Value share = scale / total;
      Value* const to = grad + row * grad_stride + place;
#pragma unroll
      for (int i = 0; i < Each; ++i) {
        const Value slope = value[i] * share - (i * Lanes == ahead ? scale : Value(0));
        if (i * Lanes + place < classes) to[i * Lanes] = trains ? slope : Value(0);
      }
    }
  }
  tally.end(partial);
}

template <typename Value, typename Id>
__launch_bounds__(256) __global__
    void wide_cross_entropy(const Value* logits, i64 stride, const Id* __restrict__ labels,
                       const signed char* __restrict__ roles, Value scale, Value* grad,
                       i64 grad_stride, i64 first, i64 last, int classes, int lanes,
                       double* partial) {
  const int place = threadIdx.x % lanes, teams = kLanes / lanes;
  const int team = threadIdx.x % kLanes / lanes;
  const i64 step = thread_count() / kLanes * teams;
  Tally tally;
  tally.begin();
  for (i64 start = first + thread_number() / kLanes * teams; start < last; start += step) {
    const i64 row = start + team;
    const bool exists = row < last;
    const int role = exists ? roles[row] : -1;
    const i64 label = exists ? static_cast<i64>(labels[row]) : -1;
    const bool counts = role >= 0 && label >= 0;
    const int count = counts ? classes : 0;
    const Value* from = logits + row * stride;
    // The first of the largest; NaN is larger than all, as NumPy has it.
    Value largest = Value(0);
    int best = -1;
    for (int c = place; c < count; c += lanes) {
      const Value value = from[c];
      if (best < 0 || value > largest || (value != value && largest == largest)) {
        largest = value;
        best = c;
      }
    }
    for (int apart = lanes / 2; apart; apart /= 2) {
      const Value other = __shfl_xor_sync(kAll, largest, apart);
      const int whose = __shfl_xor_sync(kAll, best, apart);
      const bool strange = largest != largest, other_strange = other != other;
      const bool more = strange != other_strange ? other_strange : other > largest;
      const bool equal = other == largest || (strange && other_strange);
      if (whose >= 0 && (best < 0 || more || (equal && whose < best))) {
        largest = other;
        best = whose;
      }
    }
    Value total = Value(0);
    for (int c = place; c < count; c += lanes) total += exp(from[c] - largest);
    total = sum_lanes(total, lanes);
    if (counts && place == 0) {
      const Value loss = log(total) - (from[label] - largest);
      tally.add(role, loss, 1.0, best == label, 1.0);
    }
    __syncwarp();  // the label's logit is read before it may become a gradient
    if (grad && exists) {
      Value* to = grad + row * grad_stride;
      const bool trains = counts && role == 0;
      for (int c = place; c < classes; c += lanes) {
        Value slope = Value(0);
        if (trains) slope = exp(from[c] - largest) / total * scale - (c == label ? scale : 0);
        to[c] = slope;
      }
    }
  }
  tally.end(partial);
}

template <typename Value, typename Id>
__launch_bounds__(256) __global__
    void binary_cross_entropy(const Value* logits, i64 stride, const i64* __restrict__ indptr,
                              const Id* __restrict__ listed, const signed char* __restrict__ roles,
                              Value scale, Value* grad, i64 grad_stride, i64 first, i64 last,
                              int classes, int lanes, double* partial) {
  const int place = threadIdx.x % lanes, teams = kLanes / lanes;
  const int team = threadIdx.x % kLanes / lanes;
  const i64 step = thread_count() / kLanes * teams;
  Tally tally;
  tally.begin();
  for (i64 start = first + thread_number() / kLanes * teams; start < last; start += step) {
    const i64 row = start + team;
    if (row >= last) continue;
    const int role = roles[row];
    const i64 low = indptr[row], high = indptr[row + 1];
    double loss = 0.0, terms = 0.0, hits = 0.0, wrong = 0.0;
    for (int c = place; c < classes; c += lanes) {
      Value slope = Value(0);
      if (role >= 0) {
        const Value value = logits[row * stride + c];
        bool truth = false;
        for (i64 i = low; i < high; ++i) truth = truth || __ldg(listed + i) == c;
        const Value share = exp(-fabs(value));
        loss += static_cast<double>((value > 0 ? value : Value(0)) - (truth ? value : Value(0)) +
                                    log1p(share));
        terms += 1.0;
        hits += value > 0 && truth;
        wrong += (value > 0) != truth;
        if (role == 0) slope = (1 / (1 + exp(-value)) - (truth ? Value(1) : Value(0))) * scale;
      }
      if (grad) grad[row * grad_stride + c] = slope;
    }
    tally.add(role, loss, terms, 2 * hits, 2 * hits + wrong);
  }
  tally.end(partial);
}

template <typename Value>
__launch_bounds__(256) __global__
    void squared_error(const Value* values, i64 stride, const Value* __restrict__ truth,
                       const signed char* __restrict__ roles, Value scale, Value* grad,
                       i64 grad_stride, i64 first, i64 last, double* partial) {
  Tally tally;
  tally.begin();
  for (i64 row = first + thread_number(); row < last; row += thread_count()) {
    const int role = roles[row];
    const Value wanted = truth[row], apart = values[row * stride] - wanted;
    const bool counts = role >= 0 && wanted == wanted;
    if (counts) tally.add(role, apart * apart, 1.0, 0.0, 1.0);
    if (grad) grad[row * grad_stride] = counts && role == 0 ? 2 * apart * scale : Value(0);
  }
  tally.end(partial);
}

// One warp a sum.
__global__ void add_losses(const double* __restrict__ partial, int blocks, double* sums) {
  const i64 n = thread_number() / kLanes;
  if (n >= kRoles * kSums) return;
  double sum = 0.0;
#pragma unroll 4
  for (int block = threadIdx.x % kLanes; block < blocks; block += kLanes) {
    sum += partial[static_cast<i64>(block) * kRoles * kSums + n];
  }
  sum = sum_lanes(sum, kLanes);
  if (threadIdx.x % kLanes == 0) sums[n] += sum;
}
