// Scores from products: a tile of rows stays, other tiles stream past, in tensor cores.
//
// With kQueries the staying rows are queries of a chunk and the others its negatives: the sums of
// each query's loss and its weighted sum of negatives are kept in registers, with a running
// maximum, as in flash attention. Without it, negatives stay and queries stream: gradients of
// negatives are sums of queries with slopes, for which finish_rows has left the data. Both compute
// the scores of their tile; scores are never written to memory.
//
// Rows are halves, with a scale each (notes.cuh). A warp has 16 kM of the staying rows, whole, and
// takes 32 of the others at a time: the scores that a tensor core leaves in its registers have the
// layout of the left factor of the second product, and are rounded to halves in place. Rows in
// shared memory are an odd number of 16 bytes apart, so that the eight rows of a matrix are in
// different banks. Three tiles are in memory at once: one is computed, one is loaded or loading,
// and one is requested when all warps have finished with its buffer, which they have when they
// synchronize for the next.
//
// kSlice columns of the sums are kept: for wide rows a block has one slice, and others the rest.
//
// With kDistance scores are negated L2 distances: the root of two squares less twice a product. The
// rounding of rows moves them by 2^-12 of their size; nothing else is lost, as their squares are
// those of the rounded rows, except where rows nearly meet. Sums are of weighted differences: the
// weighted others, as for products, less the staying row times the sum of its weights, which is one
// more column of the second product.
#include "embed/losses.cuh"
#include "embed/notes.cuh"
#include "embed/tensor_cores.cuh"

// instance: product_tiles<8, 8, 2, 4, 64, SOFTMAX, false, true>
// instance: product_tiles<104, 104, 2, 4, 64, SOFTMAX, false, true>
// instance: product_tiles<104, 104, 2, 4, 64, SOFTMAX, false, false>
// instance: product_tiles<128, 128, 2, 4, 64, LOGISTIC, false, true>
// instance: product_tiles<128, 128, 2, 4, 64, LOGISTIC, false, false>
// instance: product_tiles<200, 200, 1, 4, 32, CONTRASTIVE, false, true>
// instance: product_tiles<256, 256, 1, 4, 32, SELF_ADVERSARIAL, false, true>
// instance: product_tiles<256, 256, 1, 4, 32, SELF_ADVERSARIAL, false, false>
// instance: product_tiles<400, 200, 1, 4, 32, MARGIN, false, true>
// instance: product_tiles<512, 256, 1, 4, 32, SOFTMAX, false, true>
// instance: product_tiles<512, 256, 1, 4, 32, SOFTMAX, false, false>
// instance: product_tiles<104, 104, 2, 4, 64, SOFTMAX, true, true>
// instance: product_tiles<104, 104, 2, 4, 64, MARGIN, true, false>
// instance: product_tiles<400, 200, 1, 4, 32, SELF_ADVERSARIAL, true, true>
// instance: product_tiles<104, 104, 2, 4, 64, SOFTMAX, false, false, true>
// instance: product_tiles<104, 104, 2, 4, 64, MARGIN, true, false, true>
// instance: add_splits

using namespace penstock;
using i64 = long long;

constexpr int kPart = 32, kColumns = kPart / 8, kStages = 3;
constexpr int kHeld = 104;  // the widest rows that stay in registers

// At least 4.
__host__ __device__ constexpr int power_of_2(int least) {
  int power = 4;
  while (power < least) power *= 2;
  return power;
}

// The negated distance of two rows, from their product and the sum of their squares.
__device__ __forceinline__ float distance_score(float product, float squares) {
  const float square = fmaf(-2.0f, product, squares);
  const float least = fmaf(squares, kLeastSquare, kLeastSquare * kLeastSquare);
  return -fast_sqrt(square < least ? least : square);  // a NaN stays one
}

// Of a power of 2, or 0 of 0: rows beyond the last have that scale, and no weight.
__device__ __forceinline__ float inverse_of(float power) {
  return power == 0.0f ? 0.0f : __uint_as_float(0x7F000000u - __float_as_uint(power));
}

// queries     (sides, edges, kWidth) halves; query_notes (sides, edges)
// negatives   (negative_sides, chunks, count, kWidth) halves, with notes; negative_sides: 1 or sides
// weights     with kWeighted: (edges + 1): of edges, relative to the largest, which comes last
// vectors     kQueries: (splits, sides, edges, dim); else (sides, chunks, splits, count, dim)
// sums        (splits, sides, edges, 3), written with kQueries
template <int kWidth, int kSlice, int kM, int kWarps, int kTile, int kLoss, bool kDistance,
          bool kQueries, bool kWeighted = false>
__global__ void __launch_bounds__(32 * kWarps)
    product_tiles(const Half* __restrict__ queries, const Note* __restrict__ query_notes,
                  const Half* __restrict__ negatives, const Note* __restrict__ negative_notes,
                  int dim, i64 edges, i64 chunk, int chunks, i64 count, int sides,
                  int negative_sides, int splits, int tiles, float margin, float temperature,
                  float share, const float* __restrict__ weights, float* __restrict__ vectors,
                  float* __restrict__ sums) {
  static_assert(!(kQueries && kWeighted), "weights of staying rows are applied when these end");
  constexpr int kStride = (kWidth / 8 | 1) * 8, kRows = 16 * kM * kWarps;
  constexpr int kSlices = kWidth / kSlice, kParts = kSlice / 8;
  constexpr float kWeightBoost = kDistance ? kDistanceBoost : kBoost;
  constexpr unsigned kRowBytes = 2 * kStride, kTileBytes = kTile * kRowBytes;
  static_assert(kWidth % 8 == 0 && kSlice % 8 == 0 && kTile % kPart == 0, "");
  Half* staying = reinterpret_cast<Half*>(dynamic_shared());
  Half* coming = staying + kRows * kStride;
  Note* coming_notes = reinterpret_cast<Note*>(coming + kStages * kTile * kStride);
  const LossNumbers numbers = {margin, temperature, share};

  i64 block = blockIdx.x;
  const int tile = block % tiles;
  block /= tiles;
  const int slice = block % kSlices * kSlice;
  block /= kSlices;
  const int split = block % splits;
  block /= splits;
  const int group = static_cast<int>(block), side = group / chunks, c = group % chunks;

  const i64 first_edge = c * chunk;
  const i64 here = edges - first_edge < chunk ? edges - first_edge : chunk;
  const i64 query_at = side * edges + first_edge;
  const i64 negative_at = ((negative_sides > 1 ? side : 0) * static_cast<i64>(chunks) + c) * count;
  const i64 rows_at = kQueries ? query_at : negative_at;
  const i64 others_at = kQueries ? negative_at : query_at;
  const Half* rows = (kQueries ? queries : negatives) + rows_at * kWidth;
  const Half* others = (kQueries ? negatives : queries) + others_at * kWidth;
  const Note* row_notes = (kQueries ? query_notes : negative_notes) + rows_at;
  const Note* other_notes = (kQueries ? negative_notes : query_notes) + others_at;
  const int row_count = static_cast<int>(kQueries ? here : count);
  const int other_count = static_cast<int>(kQueries ? count : here);
  const int first_row = tile * kRows;
  if (first_row >= row_count) return;
  const i64 other_tiles = (other_count + kTile - 1) / kTile;
  const int from = static_cast<int>(other_tiles * split / splits);
  const int to = static_cast<int>(other_tiles * (split + 1) / splits);

  const int thread = threadIdx.x, lane = thread & 31, g = lane / 4, q = lane % 4;
  const int warp_row = thread / 32 * 16 * kM;

  // A thread copies the same piece of rows kAtOnce apart.
  auto load = [&](unsigned at, const Half* source, int left, int size) {
    constexpr int kPieces = kWidth / 8, kLanes = power_of_2(kPieces);
    constexpr int kAtOnce = 32 * kWarps / kLanes;
    const int piece = thread % kLanes, first = thread / kLanes;
    if (piece >= kPieces) return;
    at += first * kRowBytes + piece * 16;
    source += first * kWidth + piece * 8;
#pragma unroll
    for (int row = 0; row < size; row += kAtOnce) {
      const bool there = first + row < left;
      copy_async(at + row * kRowBytes, there ? source + row * kWidth : source - first * kWidth,
                 there);
    }
  };
  auto load_others = [&](int number) {
    if (number < to) {
      const int first = number * kTile, left = other_count - first;
      const int stage = (number - from) % kStages;
      load(shared_address(coming) + stage * kTileBytes, others + static_cast<i64>(first) * kWidth,
           left, kTile);
      for (int i = thread; i < kTile; i += 32 * kWarps) {
        copy_async(shared_address(coming_notes + stage * kTile + i),
                   other_notes + first + (i < left ? i : 0), i < left);
      }
    }
    copies_commit();
  };

  load(shared_address(staying), rows + static_cast<i64>(first_row) * kWidth, row_count - first_row,
       kRows);
  load_others(from);
  load_others(from + 1);

  // Two rows of each 16 are a lane's: g and g + 8.
  int ids[kM][2];
  float scale[kM][2], square[kM][2], p[kM][2], largest[kM][2], sum[kM][2], extra[kM][2];
  float out[kM][kParts][4];
  float taken[kM][4];  // of distances: sums of weights, at any second index the same
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + warp_row + m * 16 + h * 8 + g;
      Note note = {-2, 0.0f, 0.0f, 0.0f};
      if (row < row_count) note = row_notes[row];
      ids[m][h] = note.id;
      scale[m][h] = note.scale;
      square[m][h] = note.square;
      p[m][h] = note.known;
      largest[m][h] = lowest();
      sum[m][h] = extra[m][h] = 0.0f;
    }
#pragma unroll
    for (int x = 0; x < kParts; ++x) {
      out[m][x][0] = out[m][x][1] = out[m][x][2] = out[m][x][3] = 0.0f;
    }
    taken[m][0] = taken[m][1] = taken[m][2] = taken[m][3] = 0.0f;
  }

  // Where a lane's rows of matrices begin: of staying and of other rows, as right factor of the
  // first product and of the second.
  const unsigned left_at =
      shared_address(staying) + (warp_row + (lane & 15)) * kRowBytes + lane / 16 * 16;
  const unsigned first_at = (lane / 16 * 8 + (lane & 7)) * kRowBytes + (lane / 8 & 1) * 16;
  const unsigned last_at = lane * kRowBytes;
  const unsigned second_at = (lane & 15) * kRowBytes + lane / 16 * 16 + slice * 2;

  constexpr bool kHold = kM == 2 && kWidth <= kHeld;
  constexpr int kSteps = (kWidth + 15) / 16;
  unsigned held[kHold ? kM : 1][kHold ? kSteps : 1][4];
  auto rows_at_step = [&](unsigned(&a)[4], int m, int step) {
    const unsigned at = left_at + m * 16 * kRowBytes + step * 32;
    if (step * 16 + 16 <= kWidth) {
      load_matrices(a, at);
    } else {
      load_two(a[0], a[1], at);
      a[2] = a[3] = 0;
    }
  };
  if (kHold) {
    copies_wait<kStages - 2>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) rows_at_step(held[m][step], m, step);
    }
  }

  for (int number = from; number < to; ++number) {
    copies_wait<kStages - 2>();
    __syncthreads();
    load_others(number + kStages - 1);
    const int stage = (number - from) % kStages;
    const int left = other_count - number * kTile;

#pragma unroll 1
    for (int part = 0; part < kTile && part < left; part += kPart) {
      const unsigned part_at = shared_address(coming) + stage * kTileBytes + part * kRowBytes;
      const Note* notes = coming_notes + stage * kTile + part;
      float score[kM][kColumns][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          score[m][n][0] = score[m][n][1] = score[m][n][2] = score[m][n][3] = 0.0f;
        }
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        unsigned a[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          if (kHold) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[m][i] = held[m][step][i];
          } else {
            rows_at_step(a[m], m, step);
          }
        }
        if (step * 16 + 16 <= kWidth) {
#pragma unroll
          for (int n = 0; n < kColumns; n += 2) {
            unsigned b[4];
            load_matrices(b, part_at + first_at + n * 8 * kRowBytes + step * 32);
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              multiply_add(score[m][n], a[m], b[0], b[1]);
              multiply_add(score[m][n + 1], a[m], b[2], b[3]);
            }
          }
        } else {
          unsigned b[4];
          load_matrices(b, part_at + last_at + step * 32);
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int m = 0; m < kM; ++m) multiply_add_8(score[m][n], a[m][0], a[m][1], b[n]);
          }
        }
      }

      // Leave out answers, and rows beyond the last of the others.
      Note note[kColumns][2];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          note[n][i] = notes[n * 8 + 2 * q + i];
#pragma unroll
          for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              float& n_j = score[m][n][h * 2 + i];
              n_j *= scale[m][h] * note[n][i].scale;
              if (kDistance) n_j = distance_score(n_j, square[m][h] + note[n][i].square);
              n_j = note[n][i].id == ids[m][h] ? lowest() : n_j;
            }
          }
        }
      }
      if (left - part < kPart) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const bool beyond = part + n * 8 + 2 * q + i >= left;
#pragma unroll
            for (int m = 0; m < kM; ++m) {
#pragma unroll
              for (int h = 0; h < 2; ++h) {
                float& n_j = score[m][n][h * 2 + i];
                n_j = beyond ? lowest() : n_j;
              }
            }
          }
        }
      }

      if (kQueries && is_exponential<kLoss>) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float top = largest[m][h];
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
#pragma unroll
              for (int i = 0; i < 2; ++i) {
                top = fmaxf(top, exponent<kLoss>(score[m][n][h * 2 + i], numbers));
              }
            }
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
            if (top != largest[m][h]) {
              const float shrink = __expf(largest[m][h] - finite_base(top));
              largest[m][h] = top;
              sum[m][h] *= shrink;
              extra[m][h] *= shrink;
#pragma unroll
              for (int x = 0; x < kParts; ++x) {
                out[m][x][h * 2] *= shrink;
                out[m][x][h * 2 + 1] *= shrink;
              }
              taken[m][h * 2] *= shrink;
            }
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float factor = note[n][i].scale * kWeightBoost;
          if (kWeighted) {
            const int other = number * kTile + part + n * 8 + 2 * q + i;
            factor *= other < other_count ? weights[first_edge + other] : 0.0f;
          }
#pragma unroll
          for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const float n_j = score[m][n][h * 2 + i];
              const float weight =
                  kQueries ? take_negative<kLoss>(n_j, p[m][h], finite_base(largest[m][h]),
                                                  sum[m][h], extra[m][h], numbers)
                           : negative_slope<kLoss>(n_j, note[n][i].known, numbers);
              // Rows that are left out are infinitely far.
              score[m][n][h * 2 + i] = factor * (kDistance ? __fdividef(weight, -n_j) : weight);
            }
          }
        }
      }

#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        unsigned a[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          a[m][0] = to_halves(score[m][n][0], score[m][n][1]);
          a[m][1] = to_halves(score[m][n][2], score[m][n][3]);
          a[m][2] = to_halves(score[m][n + 1][0], score[m][n + 1][1]);
          a[m][3] = to_halves(score[m][n + 1][2], score[m][n + 1][3]);
        }
        const unsigned at = part_at + second_at + n * 8 * kRowBytes;
#pragma unroll
        for (int x = 0; x + 2 <= kParts; x += 2) {
          unsigned b[4];
          load_transposed(b, at + x * 16);
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            multiply_add(out[m][x], a[m], b[0], b[1]);
            multiply_add(out[m][x + 1], a[m], b[2], b[3]);
          }
        }
        if (kParts % 2) {
          constexpr int x = kParts - 1;
          unsigned b0, b1;
          load_two_transposed(b0, b1, at + x * 16);
#pragma unroll
          for (int m = 0; m < kM; ++m) multiply_add(out[m][x], a[m], b0, b1);
        }
        if (kDistance) {
          // Rounded weights: a row's weight with itself cancels.
          const unsigned b0 = to_halves(inverse_of(note[n][0].scale), inverse_of(note[n][1].scale));
          const unsigned b1 =
              to_halves(inverse_of(note[n + 1][0].scale), inverse_of(note[n + 1][1].scale));
#pragma unroll
          for (int m = 0; m < kM; ++m) multiply_add(taken[m], a[m], b0, b1);
        }
      }
    }
  }
  const float heaviest = kWeighted ? weights[edges] : 1.0f;
  copies_wait<0>();
  // A split without a tile has not waited, and other threads copied some of these rows.
  if (kDistance) __syncthreads();

#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + warp_row + m * 16 + h * 8 + g;
      float all = sum[m][h], more = extra[m][h];
      if (kQueries) {
        for (int apart = 1; apart < 4; apart *= 2) {
          all += __shfl_xor_sync(0xFFFFFFFFu, all, apart);
          more += __shfl_xor_sync(0xFFFFFFFFu, more, apart);
        }
      }
      if (row >= row_count) continue;
      i64 at;
      if (kQueries) {
        at = static_cast<i64>(split) * sides * edges + query_at + row;
        if (slice == 0 && q == 0) {
          sums[at * 3] = largest[m][h];
          sums[at * 3 + 1] = all;
          sums[at * 3 + 2] = more;
        }
      } else {
        at = (static_cast<i64>(group) * splits + split) * count + row;
      }
      float* place = vectors + at * dim;
#pragma unroll
      for (int x = 0; x < kParts; ++x) {
        const int column = slice + x * 8 + 2 * q;
        float one = out[m][x][h * 2] / kWeightBoost, two = out[m][x][h * 2 + 1] / kWeightBoost;
        if (kDistance) {
          const Half* mine = staying + (row - first_row) * kStride + column;
          const float by = taken[m][h * 2] / kWeightBoost * scale[m][h];
          one -= by * to_float(mine[0]);
          two -= by * to_float(mine[1]);
        }
        if (kWeighted) {
          one *= heaviest;
          two *= heaviest;
        }
        if (dim % 2 == 0) {  // else the second of a pair is not 8-byte aligned
          if (column < dim) *reinterpret_cast<float2*>(place + column) = make_float2(one, two);
        } else {
          if (column < dim) place[column] = one;
          if (column + 1 < dim) place[column + 1] = two;
        }
      }
    }
  }
}

// Add the splits' gradients of negatives, in order: (groups, splits, size) to
// (groups, size).
__global__ void add_splits(const float* __restrict__ pieces, i64 groups, int splits, i64 size,
                           float* __restrict__ out) {
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < groups * size;
       i += stride) {
    const float* from = pieces + i / size * splits * size + i % size;
    float sum = 0.0f;
#pragma unroll 8
    for (int split = 0; split < splits; ++split) sum += from[split * size];
    out[i] = sum;
  }
}
