// A step of PageRank of one graph: each node adds what its in-neighbours give.
//
// Row ends and edges are merged, and a block takes ITEMS of them (Merrill and Garland, 2016), so that
// no row is too long and none too short. Gathered values go through shared memory, a thread adds EACH
// of them, and what threads and blocks leave of a row is added in one order: sums are the same in
// every run and on every GPU. Edges are read once, past the caches, which hold values of nodes.
// Tiles are numbered over the whole graph; a rank has some, and the indices of their edges.
//
// instance: pull<int, None, float>
// instance: pull<int, None, double>
// instance: pull<int, float, float>
// instance: pull<int, float, double>
// instance: pull<int, double, float>
// instance: pull<int, double, double>
// instance: pull<long long, None, float>
// instance: pull<long long, None, double>
// instance: pull<long long, float, float>
// instance: pull<long long, float, double>
// instance: pull<long long, double, float>
// instance: pull<long long, double, double>
// instance: finish_rows<float>
// instance: finish_rows<double>
// instance: cut_rows
// instance: add_parts
#include "grid.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int EACH = 7;  // odd: threads read shared memory at this stride
constexpr int ITEMS = THREADS * EACH;
constexpr unsigned ALL = ~0u;

struct None {};  // all weights are 1

__device__ __forceinline__ double weighted(double value, const None*, long long) { return value; }
template <typename Weight>
__device__ __forceinline__ double weighted(double value, const Weight* weights, long long edge) {
  return value * __ldcs(weights + edge);
}

// The number of row ends among the first `items` of row ends and edges, of which an end comes before
// the edge with its number.
template <typename End>
__device__ __forceinline__ long long ends_before(const End* ends, long long rows, long long edges,
                                                 long long items) {
  long long low = max(0LL, items - edges), high = min(items, rows);
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (ends[middle] <= items - middle - 1) low = middle + 1; else high = middle;
  }
  return low;
}

// starts  (tiles + 1,): the row in which each tile begins
__global__ void cut_rows(long long tiles, long long nodes, long long edges,
                         const long long* indptr, long long* starts) {
  for (long long i = penstock::thread_number(); i <= tiles; i += penstock::thread_count())
    starts[i] = ends_before(indptr + 1, nodes, edges, min(i * ITEMS, nodes + edges));
}

// What becomes of a node's sum. `personal` and `dangling` are null if all nodes have the same.
template <typename Value>
struct Step {
  const double *sums, *personal, *dangling;
  double lost, damping, even;
  double* x;    // ranks
  Value* then;  // what a node gives per unit of weight in the next step

  __device__ __forceinline__ void operator()(long long node, double total, double* change,
                                             double* losing) const {
    const double begins = personal ? personal[node] : even, takes = dangling ? dangling[node] : even;
    const double next = damping * (total + lost * takes) + (1 - damping) * begins;
    const double sum = sums[node];
    *change += fabs(next - x[node]);
    if (!(sum > 0)) *losing += next;
    x[node] = next;
    then[node] = static_cast<Value>(sum > 0 ? next / sum : 0);
  }
};

// Add up two numbers of all threads, in one order; the first thread gets the sums.
__device__ __forceinline__ void over_block(double* a, double* b) {
  __shared__ double parts[2 * WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 16; step > 0; step /= 2) {
    *a += __shfl_xor_sync(ALL, *a, step);
    *b += __shfl_xor_sync(ALL, *b, step);
  }
  if (lane == 0) parts[2 * warp] = *a, parts[2 * warp + 1] = *b;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < WARPS; ++i) *a += parts[2 * i], *b += parts[2 * i + 1];
}

// indptr, indices, weights  edges into each node
// totals   the change of the last step, and the ranks of nodes that give nothing
// firsts   of each tile, the sum of a row that began before it, and ends in it
// carries  of each tile, the sum of the row that does not end in it
// parts    of each tile, as in `totals`, of its other rows
template <typename Id, typename Weight, typename Value>
__global__ void __launch_bounds__(THREADS, 5)
    pull(long long first_tile, long long nodes, long long edges, const long long* indptr,
         const Id* indices, const Weight* weights, const long long* starts, const Value* gives,
         const double* sums, const double* personal, const double* dangling, const double* totals,
         double damping, double* x, Value* then, double* firsts, double* carries, double* parts) {
  __shared__ double values[ITEMS];  // of the tile's edges, then sums of its rows
  __shared__ int ends[ITEMS];
  __shared__ int first_row[WARPS], last_row[WARPS];
  __shared__ double left[WARPS];
  const long long tile = first_tile + blockIdx.x;
  const long long row0 = starts[tile], edge0 = tile * ITEMS - row0;
  const int rows = static_cast<int>(starts[tile + 1] - row0);
  const int items = static_cast<int>(min(static_cast<long long>(ITEMS), nodes + edges - tile * ITEMS));
  const int many = items - rows;

  Id other[EACH];
  double value[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int at = k * THREADS + threadIdx.x;
    other[k] = at < many ? __ldcs(indices + edge0 + at) : 0;
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int at = k * THREADS + threadIdx.x;
    if (at < many) value[k] = weighted(__ldg(gives + other[k]), weights, edge0 + at);
  }
#pragma unroll 1
  for (int row = threadIdx.x; row < rows; row += THREADS)
    ends[row] = static_cast<int>(indptr[row0 + row + 1] - edge0);
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int at = k * THREADS + threadIdx.x;
    if (at < many) values[at] = value[k];
  }
  __syncthreads();

  const int begin = min(static_cast<int>(threadIdx.x) * EACH, items), end = min(begin + EACH, items);
  const int first = static_cast<int>(ends_before(ends, rows, many, begin));
  int row = first, edge = begin - first;
  double sum = 0, first_sum = 0;
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    if (row < rows && ends[row] <= edge) {
      if (row == first) first_sum = sum; else values[many + row] = sum;
      sum = 0;
      ++row;
    } else {
      sum += values[edge++];
    }
  }
  // Each thread leaves a sum of `row`, in which the next one begins: add those of a row.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  double run = sum;
  for (int step = 1; step < 32; step *= 2) {
    const int its = __shfl_up_sync(ALL, row, step);
    const double more = __shfl_up_sync(ALL, run, step);
    if (lane >= step && its == row) run += more;
  }
  const int leader = __shfl_sync(ALL, row, 0);
  double before = __shfl_up_sync(ALL, run, 1);
  if (lane == 0) before = 0, first_row[warp] = row;
  if (lane == 31) last_row[warp] = row, left[warp] = run;
  __syncthreads();
  auto of_warps = [&](int which) {
    double found = 0;
#pragma unroll 1
    for (int i = warp - 1; i >= 0 && last_row[i] == which; --i) {
      found += left[i];
      if (first_row[i] != which) break;
    }
    return found;
  };
  if (row > first) {
    if (lane == 0 || leader == first) before += of_warps(first);
    values[many + first] = first_sum + before;
  }
  if (threadIdx.x == THREADS - 1) carries[tile] = leader == row ? run + of_warps(row) : run;
  __syncthreads();

  const Step<Value> step = {sums, personal, dangling, totals[1], damping, 1.0 / nodes, x, then};
  double change = 0, losing = 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < rows; i += THREADS) {
    const double total = values[many + i];
    if (i == 0 && indptr[row0] < edge0) firsts[tile] = total;
    else step(row0 + i, total, &change, &losing);
  }
  over_block(&change, &losing);
  if (threadIdx.x == 0) parts[2 * tile] = change, parts[2 * tile + 1] = losing;
}

// Complete the rows that several tiles have, one warp per tile.
//
// first, tiles  the first tile of this rank, and one after its last
template <typename Value>
__global__ void __launch_bounds__(THREADS)
    finish_rows(long long first, long long tiles, long long nodes, const long long* indptr,
                const long long* starts, const double* sums, const double* personal,
                const double* dangling, const double* totals, double damping, double* x,
                Value* then, const double* firsts, const double* carries, double* parts) {
  const Step<Value> step = {sums, personal, dangling, totals[1], damping, 1.0 / nodes, x, then};
  const int lane = threadIdx.x % 32;
  for (long long tile = first + penstock::thread_number() / 32; tile < tiles;
       tile += penstock::thread_count() / 32) {
    const long long row = starts[tile];
    if (starts[tile + 1] == row || indptr[row] >= tile * ITEMS - row) continue;
    double sum = 0;
    for (long long i = (row + indptr[row]) / ITEMS + lane; i < tile; i += 32) sum += carries[i];
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(ALL, sum, half);
    if (lane == 0) step(row, firsts[tile] + sum, &parts[2 * tile], &parts[2 * tile + 1]);
  }
}

// Add up pairs of numbers, to one pair of each block.
__global__ void __launch_bounds__(THREADS)
    add_parts(long long count, const double* parts, double* sums) {
  double change = 0, losing = 0;
  for (long long i = penstock::thread_number(); i < count; i += penstock::thread_count())
    change += parts[2 * i], losing += parts[2 * i + 1];
  over_block(&change, &losing);
  if (threadIdx.x == 0) sums[2 * blockIdx.x] = change, sums[2 * blockIdx.x + 1] = losing;
}
