// Runs CUDA kernels on the host: a thread is a fiber that runs until it has to wait for others of
// its warp or block. Proves arithmetic, indices and where threads wait for each other; says nothing
// of speed, of data races between waits, or of how tensor cores round.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <ucontext.h>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

namespace emulator {

struct Index { unsigned x, y, z; };
enum State { READY, AT_WARP, AT_BLOCK, DONE };
constexpr int LARGEST = 1024, STACK = 1 << 16, LANES = 32;

struct Words { unsigned word[8]; };

struct Thread {
  Index index;
  State state;
  int number, collectives;
  bool ordered; // has waited for the kernels before
  void* stack_pointer;
  char* stack;
};

struct Warp { int live, waiting; Words slots[2][LANES]; };

inline Thread threads[LARGEST];
inline Warp warps[LARGEST / LANES];
inline Thread* current;
inline Index block_index, block_size, grid_size;
inline int count, live, waiting;
inline void (*kernel)(void**);
inline void** arguments;
inline void* scheduler_stack;
inline bool early;            // the kernel may start before those before it have ended
inline void (*before)(void*); // runs the one before it, which has not run yet
inline void* before_data;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulator: %s (block %u,%u,%u, thread %d)\n", what, block_index.x,
      block_index.y, block_index.z, current ? current->number : -1);
  std::abort();
}

#if defined(__x86_64__)
// Save the registers that a call keeps, and go on with another stack.
__attribute__((naked, noinline)) inline void switch_stack(void**, void*) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#else
#error "the emulator switches stacks on x86-64 only"
#endif

// The next thread that can run; it may be this one.
inline void yield() {
  Thread* from = current;
  for (int i = 1; i <= count; ++i) {
    Thread& next = threads[(from->number + i) % count];
    if (next.state != READY) continue;
    current = &next;
    if (&next != from) switch_stack(&from->stack_pointer, next.stack_pointer);
    return;
  }
  if (live == 0) switch_stack(&from->stack_pointer, scheduler_stack);
  fail("all threads wait: a barrier that some do not reach");
}

inline Warp& warp_of(Thread* thread) { return warps[thread->number / LANES]; }

inline void release_warp(int number) {
  Warp& warp = warps[number];
  if (warp.waiting == 0 || warp.waiting < warp.live) return;
  warp.waiting = 0;
  for (int i = number * LANES; i < (number + 1) * LANES && i < count; ++i)
    if (threads[i].state == AT_WARP) threads[i].state = READY;
}

inline void release_block() {
  if (waiting == 0 || waiting < live) return;
  waiting = 0;
  for (int i = 0; i < count; ++i)
    if (threads[i].state == AT_BLOCK) threads[i].state = READY;
}

inline void wait_warp() {
  const int number = current->number / LANES;
  if (warps[number].live != LANES) fail("a warp's operation without all of its threads");
  current->state = AT_WARP;
  ++warps[number].waiting;
  release_warp(number);
  while (current->state != READY) yield();
}

inline void wait_block() {
  current->state = AT_BLOCK;
  ++waiting;
  release_block();
  while (current->state != READY) yield();
}

// Give `mine` to the warp; returns what all lanes gave.
inline const Words* exchange(const Words& mine) {
  Words* slots = warp_of(current).slots[current->collectives++ % 2];
  slots[current->number % LANES] = mine;
  wait_warp();
  return slots;
}

// Run another kernel while this one's threads stand still.
inline void run_meanwhile(void (*run)(void*), void* data) {
  static Thread kept_threads[LARGEST];
  static Warp kept_warps[LARGEST / LANES];
  static char* stacks[LARGEST];
  const auto kept = std::make_tuple(current, block_index, block_size, grid_size, count, live,
      waiting, kernel, arguments, scheduler_stack, early);
  std::memcpy(kept_threads, threads, sizeof threads);
  std::memcpy(kept_warps, warps, sizeof warps);
  for (int i = 0; i < LARGEST; ++i) threads[i].stack = stacks[i];
  run(data);
  for (int i = 0; i < LARGEST; ++i) stacks[i] = threads[i].stack;
  std::memcpy(threads, kept_threads, sizeof threads);
  std::memcpy(warps, kept_warps, sizeof warps);
  std::tie(current, block_index, block_size, grid_size, count, live, waiting, kernel, arguments,
      scheduler_stack, early) = kept;
}

inline void wait_for_kernels() {
  current->ordered = true;
  if (!before) return;
  auto* run = before;
  before = nullptr;
  run_meanwhile(run, before_data);
}

inline void enter() {
  kernel(arguments);
  if (early && !current->ordered) fail("a kernel that may start early waits for none before it");
  Thread* done = current;
  done->state = DONE;
  --live;
  --warp_of(done).live;
  release_warp(done->number / LANES);
  release_block();
  yield();
  std::abort();
}

inline void prepare(Thread& thread) {
  if (!thread.stack) thread.stack = static_cast<char*>(std::malloc(STACK));
  auto** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(thread.stack) + STACK) & ~15ull);
  *--top = nullptr;                             // so that the stack is aligned as behind a call
  *--top = reinterpret_cast<void*>(&enter);     // popped by ret
  for (int i = 0; i < 6; ++i) *--top = nullptr; // registers
  thread.stack_pointer = top;
}

inline void run_block() {
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    const unsigned n = i;
    thread.index = {n % block_size.x, n / block_size.x % block_size.y,
        n / (block_size.x * block_size.y)};
    thread.number = i;
    thread.state = READY;
    thread.collectives = 0;
    thread.ordered = false;
    prepare(thread);
  }
  for (int w = 0; w * LANES < count; ++w) {
    warps[w].live = count - w * LANES < LANES ? count - w * LANES : LANES;
    warps[w].waiting = 0;
  }
  live = count;
  waiting = 0;
  current = &threads[0];
  switch_stack(&scheduler_stack, current->stack_pointer);
}

template <class... Types, size_t... At>
void call(void (*function)(Types...), void** values, std::index_sequence<At...>) {
  function(*static_cast<Types*>(values[At])...);
}
template <class... Types> void call(void (*function)(Types...), void** values) {
  call(function, values, std::index_sequence_for<Types...>());
}

// Copies of a kernel's arguments.
template <class... Types, size_t... At>
void** keep(void (*)(Types...), void** values, std::index_sequence<At...>) {
  return new void*[sizeof...(Types)]{new Types(*static_cast<Types*>(values[At]))...};
}
template <class... Types> void** keep(void (*function)(Types...), void** values) {
  return keep(function, values, std::index_sequence_for<Types...>());
}

} // namespace emulator

extern "C" inline __attribute__((used, visibility("default"))) void emulator_launch(
    void (*kernel)(void**), void** arguments, const unsigned* grid, const unsigned* block,
    bool early, void (*before)(void*), void* before_data) {
  using namespace emulator;
  emulator::early = early;
  emulator::before = before;
  emulator::before_data = before_data;
  emulator::kernel = kernel;
  emulator::arguments = arguments;
  grid_size = {grid[0], grid[1], grid[2]};
  block_size = {block[0], block[1], block[2]};
  count = block[0] * block[1] * block[2];
  if (count > LARGEST || grid[1] > 65535 || grid[2] > 65535) fail("the launch is too large");
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        block_index = {x, y, z};
        run_block();
      }
}

#define threadIdx (emulator::current->index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)

// CUDA's types and functions, as far as the kernels use them.
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class To, class From> To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}
inline float __uint_as_float(unsigned bits) { return bits_as<float>(bits); }
inline unsigned __float_as_uint(float value) { return bits_as<unsigned>(value); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __float2int_rn(float value) { return static_cast<int>(std::nearbyintf(value)); }
using std::max;
using std::min;
inline void __syncthreads() { emulator::wait_block(); }
inline void __syncwarp() { emulator::wait_warp(); }
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  if (mask != 0xffffffffu) emulator::fail("a shuffle of some lanes only");
  emulator::Words words{{bits_as<unsigned>(value)}};
  const auto* slots = emulator::exchange(words);
  return bits_as<T>(slots[(emulator::current->number % 32) ^ lane_mask].word[0]);
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  if (mask != 0xffffffffu) emulator::fail("a vote of some lanes only");
  const auto* slots = emulator::exchange(emulator::Words{{vote ? 1u : 0u}});
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane) votes |= slots[lane].word[0] << lane;
  return votes;
}

// The order of kernels; replaces optc's order.cuh.
#define OPTC_ORDER_CUH
namespace optc {
inline void let_next_kernel_start() {}
inline void wait_for_kernels_before() { emulator::wait_for_kernels(); }
} // namespace optc

// The conversions of optc's convert.cuh by arithmetic; replaces that file.
#define OPTC_CONVERT_CUH
namespace optc {

inline unsigned bf16_pair(float low, float high) {
  auto rounded = [](float value) {
    const unsigned bits = __float_as_uint(value);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  };
  return rounded(low) | (rounded(high) << 16);
}

inline float half_float(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // as if the exponent were that of float32, then moved from bias 127 to 15
  const float value = __uint_as_float(rest << 13) * __uint_as_float(0x77800000u);
  return __uint_as_float(sign | __float_as_uint(value));
}

} // namespace optc

// The fragments of optc's mma.cuh, whose layout is PTX's; replaces that file.
#define OPTC_MMA_CUH
namespace optc {

inline const emulator::Words* fragments(const unsigned (&a)[4], const unsigned (&b)[2]) {
  return emulator::exchange({{a[0], a[1], a[2], a[3], b[0], b[1]}});
}

// Words i of 8 along k of A's row and of B's column.
inline unsigned a_word(const emulator::Words* slots, int row, int i) {
  return slots[row % 8 * 4 + i % 4].word[i / 4 * 2 + row / 8];
}
inline unsigned b_word(const emulator::Words* slots, int column, int i) {
  return slots[column * 4 + i % 4].word[4 + i / 4];
}

template <class C, class Dot>
void mma(C (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Dot dot) {
  const auto* slots = fragments(a, b);
  const int lane = emulator::current->number % 32;
  for (int i = 0; i < 4; ++i)
    for (int w = 0; w < 8; ++w)
      dot(c[i], a_word(slots, lane / 4 + i / 2 * 8, w), b_word(slots, lane % 4 * 2 + i % 2, w));
}

inline void mma_int8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma(c, a, b, [](int& sum, unsigned x, unsigned y) {
    for (int i = 0; i < 32; i += 8) sum += (int8_t)(x >> i) * (int8_t)(y >> i);
  });
}

inline void mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma(c, a, b, [](float& sum, unsigned x, unsigned y) {
    sum = std::fmaf(__uint_as_float(x << 16), __uint_as_float(y << 16), sum);
    sum = std::fmaf(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), sum);
  });
}

inline void copy_async(void* shared, const void* source, bool valid) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 || reinterpret_cast<uintptr_t>(source) % 16)
    emulator::fail("a copy of 16 bytes that is not aligned");
  if (valid) std::memcpy(shared, source, 16);
  else std::memset(shared, 0, 16);
}
inline void copy_commit() {}
template <int> void copy_wait() {}

} // namespace optc
