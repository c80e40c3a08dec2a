// Losses, their gradients, and counts of correct predictions. Names and meaning are
// naive/loss.py's. Some lanes of a warp (a power of 2) share a row; each block writes its share of
// the twelve sums, which are then added in order. Gradients may replace the logits.
#include "loss_rows.cuh"

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

// Up to Lanes * Each classes: a row's logits are read once, a row ahead, and stay in registers.
template <typename Value, typename Id, int Lanes, int Each>
__launch_bounds__(256, sizeof(Value) == 4 ? 4 : 2) __global__
    void cross_entropy(const Value* logits, i64 stride, const Id* __restrict__ labels,
                       const signed char* __restrict__ splits, Value scale, Value* grad,
                       i64 grad_stride, i64 first, i64 last, int classes, double* partial) {
  constexpr u32 kTeam = Lanes == kLanes ? kAll : (1u << Lanes % kLanes) - 1;
  const int place = threadIdx.x % Lanes, team = threadIdx.x % kLanes / Lanes;
  const i64 step = thread_count() / Lanes;
  RowTally tally;
  tally.begin();
  Row<Value, Lanes, Each> next;
  i64 row = first + thread_number() / Lanes;
  next.read(logits, stride, labels, splits, row, row < last, place, classes);
#pragma unroll 1
  for (; row - team < last; row += step) {  // the same for all of a warp
    Row<Value, Lanes, Each> now = next;
    Value(&value)[Each] = now.at;
    next.read(logits, stride, labels, splits, row + step, row + step < last, place, classes);
    Value largest = value[0];
#pragma unroll
    for (int i = 1; i < Each; ++i) largest = larger(largest, value[i]);
#pragma unroll
    for (int apart = Lanes / 2; apart; apart /= 2) {
      largest = larger(largest, __shfl_xor_sync(kAll, largest, apart));
    }
    const bool strange = largest != largest;
    const bool counts = now.split >= 0 && now.label >= 0;
    // The position of the label among this lane's logits, and whether an earlier one is equal.
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
      tally.add(now.split, log(total) - (labelled - largest), is_largest && !others);
    }
    if (grad && row < last) {
      const bool trains = counts && now.split == 0;
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
                       const signed char* __restrict__ splits, Value scale, Value* grad,
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
    const int split = exists ? splits[row] : -1;
    const i64 label = exists ? static_cast<i64>(labels[row]) : -1;
    const bool counts = split >= 0 && label >= 0;
    const int count = counts ? classes : 0;
    const Value* from = logits + row * stride;
    // The first of the largest; NaN is largest, as in NumPy.
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
      tally.add(split, loss, 1.0, best == label, 1.0);
    }
    __syncwarp();  // read the label's logit before it becomes a gradient
    if (grad && exists) {
      Value* to = grad + row * grad_stride;
      const bool trains = counts && split == 0;
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
                              const Id* __restrict__ listed, const signed char* __restrict__ splits,
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
    const int split = splits[row];
    const i64 low = indptr[row], high = indptr[row + 1];
    double loss = 0.0, terms = 0.0, hits = 0.0, wrong = 0.0;
    for (int c = place; c < classes; c += lanes) {
      Value slope = Value(0);
      if (split >= 0) {
        const Value value = logits[row * stride + c];
        bool truth = false;
        for (i64 i = low; i < high; ++i) truth = truth || __ldg(listed + i) == c;
        const Value share = exp(-fabs(value));
        loss += static_cast<double>((value > 0 ? value : Value(0)) - (truth ? value : Value(0)) +
                                    log1p(share));
        terms += 1.0;
        hits += value > 0 && truth;
        wrong += (value > 0) != truth;
        if (split == 0) slope = (1 / (1 + exp(-value)) - (truth ? Value(1) : Value(0))) * scale;
      }
      if (grad) grad[row * grad_stride + c] = slope;
    }
    tally.add(split, loss, terms, 2 * hits, 2 * hits + wrong);
  }
  tally.end(partial);
}

template <typename Value>
__launch_bounds__(256) __global__
    void squared_error(const Value* values, i64 stride, const Value* __restrict__ truth,
                       const signed char* __restrict__ splits, Value scale, Value* grad,
                       i64 grad_stride, i64 first, i64 last, double* partial) {
  Tally tally;
  tally.begin();
  for (i64 row = first + thread_number(); row < last; row += thread_count()) {
    const int split = splits[row];
    const Value wanted = truth[row], apart = values[row * stride] - wanted;
    const bool counts = split >= 0 && wanted == wanted;
    if (counts) tally.add(split, apart * apart, 1.0, 0.0, 1.0);
    if (grad) grad[row * grad_stride] = counts && split == 0 ? 2 * apart * scale : Value(0);
  }
  tally.end(partial);
}

// One warp per sum.
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
