// Preparation of training: counts of words, initial vectors, and the shares of changes and pieces
// of each block of sentences.
#include "grid.cuh"
#include "philox.cuh"

// instance: count_words
// instance: start_rows
// instance: share_rows
// instance: count_pieces

using namespace penstock;

// counts[word] of each token; negative numbers are none.
__global__ void count_words(const int* __restrict__ tokens, long long size, u64* counts) {
  for (long long i = thread_number(); i < size; i += thread_count()) {
    if (tokens[i] >= 0) atomicAdd(counts + tokens[i], u64{1});
  }
}

// One thread per draw, which is four columns of a row.
__global__ void start_rows(u64 seed, u32 stream, const long long* __restrict__ words,
                           long long count, int dimension, float* __restrict__ rows) {
  const int draws = (dimension + 3) / 4;
  for (long long i = thread_number(); i < count * draws; i += thread_count()) {
    const long long row = i / draws;
    const u32 step = static_cast<u32>(i - row * draws);
    const uint4 drawn = philox4x32(seed, stream, static_cast<u64>(words[row]), step);
    const u32 four[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
    float* const to = rows + row * dimension + 4 * step;
    for (int j = 0; j < 4 && 4 * static_cast<int>(step) + j < dimension; ++j) {
      to[j] = (uniform(four[j]) - 0.5f) / static_cast<float>(dimension);
    }
  }
}

// The share of its changes that a row gets: under_way is its expected number per team at once.
__global__ void share_rows(const double* __restrict__ under_way, long long count,
                           const float* __restrict__ lr, double crowd, float* __restrict__ shares) {
  const double most = crowd / fmax(static_cast<double>(*lr), 1e-12);
  for (long long i = thread_number(); i < count; i += thread_count()) {
    shares[i] = static_cast<float>(fmin(1.0, most / under_way[i]));
  }
}

// The number of pieces, of a given number of places, of each sentence.
__global__ void count_pieces(const long long* __restrict__ offsets, long long count, int piece,
                             long long* __restrict__ pieces) {
  for (long long i = thread_number(); i < count; i += thread_count()) {
    pieces[i] = (offsets[i + 1] - offsets[i] + piece - 1) / piece;
  }
}
