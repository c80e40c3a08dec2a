// The preparation of walks: names and meaning are naive/walk.py's. One warp per row, or one block
// if it is long and Python lists it.
#include "walk/row_teams.cuh"

// instance: row_bounds<32>
// instance: row_bounds<256>
// instance: prefix_sums<32>
// instance: prefix_sums<256>
// instance: alias_tables<32>
// instance: alias_tables<256>
// instance: pack_rows
// instance: pack_edges<int>
// instance: pack_edges<long long>
// instance: pack_slots<32, int>
// instance: pack_slots<32, long long>
// instance: pack_slots<256, int>
// instance: pack_slots<256, long long>

using namespace penstock;

// ``listed`` has ``rows`` rows, or is null: then all rows up to ``longest``.
// ``first`` holds the first bad edge and the first row without weight.
template <int Size>
__global__ void row_bounds(const i64* __restrict__ indptr, const float* __restrict__ weights,
                           const i64* listed, i64 rows, i64 longest, float* __restrict__ bounds,
                           i64* __restrict__ first) {
  for (i64 n = Team<Size>::number(); n < rows; n += Team<Size>::count()) {
    const i64 row = row_for_team<Size>(listed, indptr, n, longest);
    if (row < 0) continue;
    const i64 low = indptr[row], high = indptr[row + 1];
    float largest = 0.0f;
#pragma unroll 4
    for (i64 e = low + Team<Size>::rank(); e < high; e += Size) {
      const float weight = weights[e];
      if (!(weight >= 0.0f && weight <= 3.402823466e38f)) atomicMin(first, e);
      largest = weight > largest ? weight : largest;
    }
    largest = Team<Size>::reduce(largest, Larger());
    if (Team<Size>::rank() != 0) continue;
    bounds[row] = largest;
    if (largest == 0.0f && high > low) atomicMin(first + 1, row);
  }
}

template <int Size>
__global__ void prefix_sums(const i64* __restrict__ indptr, const float* __restrict__ weights,
                            const i64* listed, i64 rows, i64 longest,
                            double* __restrict__ prefix) {
  for (i64 n = Team<Size>::number(); n < rows; n += Team<Size>::count()) {
    const i64 row = row_for_team<Size>(listed, indptr, n, longest);
    if (row < 0) continue;
    const i64 low = indptr[row], high = indptr[row + 1];
    double before = 0.0, total;
    for (i64 from = low; from < high; from += Size) {
      const i64 e = from + Team<Size>::rank();
      const double running = Team<Size>::scan(e < high ? double(weights[e]) : 0.0, total);
      if (e < high) prefix[e] = before + running;
      before += total;
    }
  }
}

// Shares below 1 have a deficit, the others a surplus. Laid end to end, in the order of the row,
// the deficits and the surpluses cover the same line: a deficit that begins inside (or at the end
// of) a surplus is filled from there; a slot with surplus gives until a deficit ends beyond it, and
// gets the rest from the next slot with surplus. So each slot is one binary search.
template <int Size>
__global__ void alias_tables(const i64* __restrict__ indptr, const float* __restrict__ weights,
                             const i64* listed, i64 rows, i64 longest, double* sums, int* places,
                             float* __restrict__ chance, int* __restrict__ other) {
  using Rows = Team<Size>;
  for (i64 n = Rows::number(); n < rows; n += Rows::count()) {
    const i64 row = row_for_team<Size>(listed, indptr, n, longest);
    if (row < 0) continue;
    const i64 low = indptr[row];
    const int count = static_cast<int>(indptr[row + 1] - low), rank = Rows::rank();

    // The sum of weights, and the place of the largest: the upper half of ``best`` is the weight,
    // the lower is larger for earlier places.
    double sum = 0.0;
    u64 best = 0;
    for (int i = rank; i < count; i += Size) {
      const float weight = weights[low + i];
      sum += weight;
      const u32 bits = weight > 0.0f ? __float_as_uint(weight) : 0;
      const u64 key = static_cast<u64>(bits) << 32 | (0xFFFFFFFFu - u32(i));
      best = key > best ? key : best;
    }
    sum = Rows::reduce(sum, Sum());
    best = Rows::reduce(best, Larger());
    const int largest = static_cast<int>(0xFFFFFFFFu - static_cast<u32>(best));
    if (!(sum > 0.0)) {
      for (int i = rank; i < count; i += Size) {
        chance[low + i] = 1.0f;
        other[low + i] = 0;
      }
      continue;
    }

    // Slots with deficit at the front, slots with surplus at the back, with running sums.
    const double scale = count / sum;
    int givers = 0, takers = 0;
    double given = 0.0, lacked = 0.0;
    for (int from = 0; from < count; from += Size) {
      const int i = from + rank;
      const double share = i < count ? weights[low + i] * scale : 0.0;
      const bool gives = i < count && (share >= 1.0 || i == largest);
      const bool takes = i < count && !gives;
      int all_givers;
      double all_given, all_lacked;
      const int giver = givers + Rows::scan(static_cast<int>(gives), all_givers) - 1;
      const double surplus = given + Rows::scan(gives && share > 1.0 ? share - 1 : 0.0, all_given);
      const double lack = lacked + Rows::scan(takes ? 1.0 - share : 0.0, all_lacked);
      if (i < count) {
        const int taker = i - giver - 1;  // earlier ones that do not give
        const i64 at = low + (gives ? count - 1 - giver : taker);
        sums[at] = gives ? surplus : lack;
        places[at] = i;
      }
      givers += all_givers;
      given += all_given;
      lacked += all_lacked;
    }
    takers = count - givers;
    Rows::sync();

    for (int slot = rank; slot < count; slot += Size) {
      const int place = places[low + slot];
      float own = 1.0f;
      int rest = 0;
      if (slot < takers) {  // the first surplus that ends after this deficit begins
        const double begins = slot ? sums[low + slot - 1] : 0.0;
        int giver = 0, left = givers;
        while (left > 0) {
          const int half = left >> 1;
          const bool before = sums[low + count - 1 - (giver + half)] < begins;
          giver = before ? giver + half + 1 : giver;
          left = before ? left - half - 1 : half;
        }
        if (giver == givers) --giver;
        own = static_cast<float>(weights[low + place] * scale);
        rest = places[low + count - 1 - giver];
      } else {  // the first deficit that ends beyond this surplus
        const int giver = count - 1 - slot;
        const double ends = sums[low + slot];
        int taker = 0, left = takers;
        while (left > 0) {
          const int half = left >> 1;
          const bool before = sums[low + taker + half] <= ends;
          taker = before ? taker + half + 1 : taker;
          left = before ? left - half - 1 : half;
        }
        if (taker < takers && giver + 1 < givers) {
          const double over = sums[low + taker] - ends;
          own = static_cast<float>(over < 1.0 ? 1.0 - over : 0.0);
          rest = places[low + slot - 1];
        }
      }
      chance[low + place] = own;
      other[low + place] = rest;
    }
    Rows::sync();
  }
}

// -- records: their fields are in walk/step.cuh ---------------------------------------------------

__global__ void pack_rows(const i64* __restrict__ indptr, const float* __restrict__ bounds,
                          i64 rows, int4* __restrict__ records) {
  for (i64 row = thread_number(); row < rows; row += thread_count()) {
    const i64 low = indptr[row];
    const float bound = bounds ? bounds[row] : 1.0f;
    records[row] = make_int4(static_cast<int>(low), static_cast<int>(low >> 32),
                             static_cast<int>(indptr[row + 1] - low), __float_as_int(bound));
  }
}

__device__ __forceinline__ void write_edge(int4* records, i64 edge, int target, float weight) {
  reinterpret_cast<int2*>(records)[edge] = make_int2(target, __float_as_int(weight));
}
__device__ __forceinline__ void write_edge(int4* records, i64 edge, i64 target, float weight) {
  records[edge] = make_int4(static_cast<int>(target), static_cast<int>(target >> 32),
                            __float_as_int(weight), 0);
}

template <typename Id>
__global__ void pack_edges(const Id* __restrict__ indices, const float* __restrict__ weights,
                           i64 edges, int4* __restrict__ records) {
  for (i64 e = thread_number(); e < edges; e += thread_count()) {
    write_edge(records, e, indices[e], weights[e]);
  }
}

__device__ __forceinline__ void write_slot(int4* records, i64 slot, int target, float chance,
                                           int other, int others_target) {
  records[slot] = make_int4(target, __float_as_int(chance), other, others_target);
}
__device__ __forceinline__ void write_slot(int4* records, i64 slot, i64 target, float chance,
                                           int other, i64 others_target) {
  records[2 * slot] = make_int4(static_cast<int>(target), static_cast<int>(target >> 32),
                                __float_as_int(chance), other);
  records[2 * slot + 1] = make_int4(static_cast<int>(others_target),
                                    static_cast<int>(others_target >> 32), 0, 0);
}

template <int Size, typename Id>
__global__ void pack_slots(const i64* __restrict__ indptr, const Id* __restrict__ indices,
                           const float* __restrict__ chance, const int* __restrict__ other,
                           const i64* listed, i64 rows, i64 longest, int4* __restrict__ records) {
  for (i64 n = Team<Size>::number(); n < rows; n += Team<Size>::count()) {
    const i64 row = row_for_team<Size>(listed, indptr, n, longest);
    if (row < 0) continue;
    const i64 low = indptr[row], high = indptr[row + 1];
#pragma unroll 4
    for (i64 e = low + Team<Size>::rank(); e < high; e += Size) {
      write_slot(records, e, indices[e], chance[e], other[e], indices[low + other[e]]);
    }
  }
}
