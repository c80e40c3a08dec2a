// Rows by relation: a stable counting sort of each row.
//
// A row is cut into pieces of at most ``kPiece`` edges, at least one; a warp counts and places a
// piece. Counts are ordered by row, group and piece, so one running sum gives every place.
#include "walk/row_teams.cuh"

// instance: list_pieces
// instance: count_groups
// instance: pick_groups<int>
// instance: pick_groups<long long>

using namespace penstock;

constexpr int kPiece = 1024;

// ``first_piece`` is the running sum of the pieces of rows: (rows + 1,).
__global__ void list_pieces(const i64* __restrict__ first_piece, i64 rows,
                            int* __restrict__ row_of_piece) {
  for (i64 row = thread_number(); row < rows; row += thread_count()) {
    for (i64 piece = first_piece[row]; piece < first_piece[row + 1]; ++piece) {
      row_of_piece[piece] = static_cast<int>(row);
    }
  }
}

namespace {

struct Piece {
  i64 low, high;  // its edges
  i64 cell;       // position of its count for group 0
  i64 stride;     // from one group to the next
};

__device__ __forceinline__ Piece find_piece(i64 number, const i64* __restrict__ indptr,
                                            const i64* __restrict__ first_piece,
                                            const int* __restrict__ row_of_piece, int groups) {
  const i64 row = row_of_piece[number], first = first_piece[row];
  const i64 low = indptr[row] + (number - first) * kPiece, high = indptr[row + 1];
  return {low, high - low < kPiece ? high : low + kPiece, first * groups + number - first,
          first_piece[row + 1] - first};
}

__device__ __forceinline__ int group_of(const int* __restrict__ groups_of, int known,
                                        int relation) {
  return relation >= 0 && relation < known ? groups_of[relation] : -1;
}

}  // namespace

__global__ void count_groups(const i64* __restrict__ indptr, const int* __restrict__ relations,
                             const int* __restrict__ groups_of, int known, int groups,
                             const i64* __restrict__ first_piece,
                             const int* __restrict__ row_of_piece, i64 pieces,
                             int* __restrict__ counts) {
  const int lane = threadIdx.x % kLanes;
  for (i64 n = Team<kLanes>::number(); n < pieces; n += Team<kLanes>::count()) {
    const Piece piece = find_piece(n, indptr, first_piece, row_of_piece, groups);
    for (i64 from = piece.low; from < piece.high; from += kLanes) {
      const i64 e = from + lane;
      const int group = e < piece.high ? group_of(groups_of, known, relations[e]) : -1;
      const u32 alike = __match_any_sync(kAll, group);
      if (group >= 0 && lane == __ffs(alike) - 1) {
        atomicAdd(counts + piece.cell + group * piece.stride, __popc(alike));
      }
    }
  }
}

// ``ends`` are the running sums of counts, ``counts`` the counts again: the next place of a cell is
// its end less its remaining edges.
template <typename Id>
__global__ void pick_groups(const i64* __restrict__ indptr, const int* __restrict__ relations,
                            const int* __restrict__ groups_of, int known, int groups,
                            const i64* __restrict__ first_piece,
                            const int* __restrict__ row_of_piece, i64 pieces, int* counts,
                            const i64* __restrict__ ends, const Id* __restrict__ indices,
                            const float* __restrict__ weights, const i64* __restrict__ times,
                            Id* __restrict__ picked_indices, float* __restrict__ picked_weights,
                            i64* __restrict__ picked_times, int* __restrict__ picked_relations) {
  const int lane = threadIdx.x % kLanes;
  for (i64 n = Team<kLanes>::number(); n < pieces; n += Team<kLanes>::count()) {
    const Piece piece = find_piece(n, indptr, first_piece, row_of_piece, groups);
    for (i64 from = piece.low; from < piece.high; from += kLanes) {
      const i64 e = from + lane;
      const int relation = e < piece.high ? relations[e] : -1;
      const int group = group_of(groups_of, known, relation);
      const u32 alike = __match_any_sync(kAll, group);
      const int leader = __ffs(alike) - 1;
      const i64 cell = piece.cell + group * piece.stride;
      i64 place = 0;
      if (group >= 0 && lane == leader) {
        place = ends[cell] - atomicSub(counts + cell, __popc(alike));
      }
      place = __shfl_sync(kAll, place, leader) + __popc(alike & ((1u << lane) - 1));
      if (group < 0) continue;
      picked_indices[place] = indices[e];
      picked_relations[place] = relation;
      if (weights) picked_weights[place] = weights[e];
      if (times) picked_times[place] = times[e];
    }
  }
}
