// Pages move between files and device memory, on the GPU's request: see kernels/queue_rules.py.
//
// A block owns a queue, and each thread one entry of it. In a round each thread requests one page:
//
//   BATCH    the thread's number is the position of its command: no lock, no atomic. A thread rings
//            the doorbell for all. A thread polls the completion whose place has its number,
//            for any requester; the last one found rings the doorbell of the completions.
//   LOCKED   as a queue for any kind of access must work: a thread takes the queue's lock to
//            enqueue and ring, searches the ring for its own ticket, and takes the lock again
//            to free completions in order and ring.
//
// All threads then copy between the pages of the round and the queue's staging memory; meanwhile
// other blocks wait for theirs. A block that gives up leaves no command that would write to device
// memory: the controller only knows the staging memory.
#include "queues/host_memory.cuh"

// instance: transfer_pages<0>
// instance: transfer_pages<1>

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// Those of kernels/queue_rules.py.
constexpr int kBatch = 0;
constexpr u32 kRead = 1, kWrite = 2;
constexpr i64 kTimedOut = -1, kStopped = -2;
constexpr int kLine = 128, kDoorbells = 4 * kLine;

struct Command {
  u32 operation, file;
  u64 offset;
  u32 bytes, page;
  u64 ticket, unused[4];
};

struct Completion {
  u32 status, bytes;
  u64 tag;
};

// In device memory, kept from launch to launch.
struct Producer {
  u64 submitted, read;
  u32 lock, unused;
};

struct Side {
  unsigned char* memory;
  Command* commands;
  Completion* completions;
  unsigned char* staging;
  int entries;

  __device__ Side(unsigned char* at, int entries_, i64 staging_at)
      : memory(at), entries(entries_) {
    commands = reinterpret_cast<Command*>(at + kDoorbells);
    completions = reinterpret_cast<Completion*>(commands + entries);
    staging = at + staging_at;
  }
  __device__ void ring(int doorbell, u64 value) {
    penstock::store_shared_word(reinterpret_cast<u64*>(memory + doorbell * kLine), value);
  }
  __device__ bool stopped() {
    return penstock::load_shared_word(reinterpret_cast<u64*>(memory + 2 * kLine)) != 0;
  }
  __device__ u64 tag(u64 place) { return penstock::load_shared_word(&completions[place].tag); }
  __device__ u32 status(u64 place) {
    return *const_cast<volatile u32*>(&completions[place].status);
  }
  __device__ void put(u64 place, const Command& command) {
    // The last 32 bytes mean nothing yet.
    const uint4* from = reinterpret_cast<const uint4*>(&command);
    uint4* to = reinterpret_cast<uint4*>(&commands[place]);
    to[0] = from[0];
    to[1] = from[1];
  }
};

__device__ __forceinline__ u64 lap(u64 number, int entries) {
  return (number / entries + 1) & 0xFFFFFFFFull;
}

__device__ __forceinline__ void lock(u32* word) {
  while (atomicCAS(word, 0u, 1u) != 0u) penstock::wait_a_moment();
  __threadfence();
}

__device__ __forceinline__ void unlock(u32* word) {
  __threadfence();
  atomicExch(word, 0u);
}

// data and all other data begin at multiples of 16 bytes, with such lengths.
template <bool kToStaging>
__device__ void copy(uint4* data, uint4* staging, i64 count) {
  // Several at once: a thread waits over a microsecond for the host's memory.
  constexpr int kAtOnce = 8;
  const i64 step = blockDim.x;
  for (i64 first = threadIdx.x; first < count; first += kAtOnce * step) {
    uint4 moved[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const i64 i = first + k * step;
      if (i < count) moved[k] = kToStaging ? data[i] : penstock::load_host(staging + i);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const i64 i = first + k * step;
      if (i < count) (kToStaging ? staging : data)[i] = moved[k];
    }
  }
}

// consumed  (queues, entries), LOCKED only: the lap of the last completion read at each place
// result    the first error, and the number of moved pages
template <int kHow>
__global__ void transfer_pages(unsigned char* __restrict__ memory, int entries, i64 staging_at,
                               i64 page_bytes, i64 stride, Producer* __restrict__ producers,
                               u64* __restrict__ consumed, unsigned char* __restrict__ data,
                               i64 bytes, u32 operation, u32 file, u64 offset, u64 patience,
                               u64* __restrict__ result) {
  __shared__ int found;
  __shared__ int failed;
  Side side(memory + blockIdx.x * stride, entries, staging_at);
  Producer& producer = producers[blockIdx.x];
  const i64 pages = (bytes + page_bytes - 1) / page_bytes;
  const int me = threadIdx.x;
  for (i64 first = static_cast<i64>(blockIdx.x) * entries; first < pages;
       first += static_cast<i64>(gridDim.x) * entries) {
    const int count = pages - first < entries ? static_cast<int>(pages - first) : entries;
    if (me == 0) found = failed = 0;
    __syncthreads();
    const u64 start = producer.submitted;  // as many as were read: rounds leave nothing behind
    __syncthreads();                       // LOCKED changes it before others come here
    const i64 begin = (first + me) * page_bytes;
    const i64 left = bytes - begin;
    const i64 size = left < page_bytes ? left : page_bytes;
    if (operation == kWrite) {
      // The k-th page of the round is in the k-th page of the staging memory.
      const i64 from = first * page_bytes, all = bytes - from;
      const i64 most = count * page_bytes;
      copy<true>(reinterpret_cast<uint4*>(data + from), reinterpret_cast<uint4*>(side.staging),
                 (all < most ? all : most) / 16);
      penstock::fence_host();
      __syncthreads();
    }
    const u64 end = penstock::nanoseconds() + patience;
    u64 ticket = start + me;
    Command command = {operation, file, offset + begin, static_cast<u32>(size),
                       static_cast<u32>(me), ticket};
    if (kHow == kBatch) {
      if (me < count) side.put(ticket % entries, command);
      penstock::fence_host();
      __syncthreads();
      if (me == 0) {
        producer.submitted = start + count;
        side.ring(0, start + count);
      }
    } else if (me < count) {
      lock(&producer.lock);
      ticket = *const_cast<volatile u64*>(&producer.submitted);
      command.ticket = ticket;
      side.put(ticket % entries, command);
      penstock::fence_host();
      *const_cast<volatile u64*>(&producer.submitted) = ticket + 1;
      side.ring(0, ticket + 1);
      unlock(&producer.lock);
    }

    u64 place = (start + me) % entries;
    u64 looks = 0;
    while (me < count) {
      bool here;
      if (kHow == kBatch) {
        here = side.tag(place) >> 32 == lap(start + me, entries);
      } else {
        const u64 seen = side.tag(place);
        here = seen >> 32 != 0 && (seen & 0xFFFFFFFFull) == (ticket & 0xFFFFFFFFull);
      }
      if (here) {
        penstock::fence_host();  // read the controller's earlier writes after the tag
        const u32 status = side.status(place);
        if (status) {
          atomicCAS(result, 0ull, static_cast<u64>(status));
          failed = 1;
        } else {
          atomicAdd(result + 1, 1ull);
        }
        break;
      }
      if (kHow != kBatch) place = place + 1 == entries ? 0 : place + 1;
      if (++looks % 64 == 0) {
        penstock::wait_a_moment();
        const bool stopped = side.stopped();
        if (stopped || penstock::nanoseconds() > end) {
          atomicCAS(result, 0ull, static_cast<u64>(stopped ? kStopped : kTimedOut));
          failed = 2;
          break;
        }
      }
    }
    if (kHow == kBatch) {
      if (me < count && atomicAdd(&found, 1) == count - 1 && failed != 2) {
        producer.read = start + count;
        side.ring(1, start + count);
      }
    } else if (me < count && failed != 2) {
      lock(&producer.lock);
      volatile u64* laps = consumed + static_cast<i64>(blockIdx.x) * entries;
      laps[place] = side.tag(place) >> 32;
      u64 head = *const_cast<volatile u64*>(&producer.read);
      while (laps[head % entries] == lap(head, entries)) ++head;
      *const_cast<volatile u64*>(&producer.read) = head;
      side.ring(1, head);
      unlock(&producer.lock);
    }
    __syncthreads();
    if (failed) return;
    if (operation == kRead) {
      const i64 from = first * page_bytes, all = bytes - from;
      const i64 most = count * page_bytes;
      copy<false>(reinterpret_cast<uint4*>(data + from), reinterpret_cast<uint4*>(side.staging),
                  (all < most ? all : most) / 16);
    }
    __syncthreads();  // the next round's commands overwrite the staging memory
  }
}
