// Rows that other ranks need, packed, and received rows of ghosts added: workers/gnn/halo/rows.py.
#include "gnn/values.cuh"

// instance: take_rows<uint4>
// instance: take_rows<uint2>
// instance: take_rows<unsigned int>
// instance: take_rows<unsigned short>
// instance: add_rows<float, 4>
// instance: add_rows<float, 2>
// instance: add_rows<float, 1>
// instance: add_rows<double, 2>
// instance: add_rows<double, 1>

using namespace penstock;

namespace {

template <typename Word>
struct Taking {
  const Word* x;
  i64 x_stride;
  const i64* rows;
  Word* out;
  int width;
  __device__ __forceinline__ void operator()(i64 row, int place) const {
    out[row * width + place] = __ldg(x + __ldg(rows + row) * x_stride + place);
  }
};

template <typename Value, int Vec>
struct Adding {
  Value* x;
  i64 x_stride;
  const i64* rows;
  const Value* came;
  int width;
  __device__ __forceinline__ void operator()(i64 row, int place) const {
    Value* const at = x + (rows ? __ldg(rows + row) : row) * x_stride + Vec * place;
    auto sum = Pack<Value, Vec>::read(at);
    const auto more = Pack<Value, Vec>::load(came + row * width + Vec * place);
#pragma unroll
    for (int i = 0; i < Vec; ++i) sum.at[i] += more.at[i];
    sum.store(at);
  }
};

}  // namespace

// Words are bytes of any type; a row has ``width`` of them.
template <typename Word>
__launch_bounds__(256) __global__
    void take_rows(const Word* x, i64 x_stride, const i64* rows, i64 count, int width, Word* out) {
  each_place<4>(0, count, width, Taking<Word>{x, x_stride, rows, out, width});
}

// Rows are distinct, so the order of additions is fixed. Without ``rows`` they are the first of x.
template <typename Value, int Vec>
__launch_bounds__(256) __global__
    void add_rows(Value* x, i64 x_stride, const i64* rows, i64 count, int width,
                  const Value* came) {
  each_place<4>(0, count, width / Vec, Adding<Value, Vec>{x, x_stride, rows, came, width});
}
