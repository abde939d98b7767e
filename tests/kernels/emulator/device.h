// Runs a CUDA kernel on the CPU, for tests without a GPU: this file takes the place of instructions.cu.
//
// Every CUDA thread is a fiber, and a barrier switches to the next fiber. Instructions of a whole warp exchange their
// operands between two barriers of the warp. Shared memory begins as NaN, so that a read of what nobody wrote is seen.

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __align__(bytes)
#define __launch_bounds__(threads, blocks)
#define __grid_constant__
#define __restrict__

struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct Index { int x; };
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }

static Index threadIdx, blockIdx;
extern char memory[];

namespace emulator {
constexpr int MOST_THREADS = 1024;
struct Fiber { ucontext_t context; std::vector<char> stack; bool done; };
struct Barrier { int arrived, generation; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current, threads;
static Barrier block_barrier, warp_barriers[MOST_THREADS / 32];
static u32 words[MOST_THREADS][8];

static void yield() {
  const int self = current;
  swapcontext(&fibers[self].context, &scheduler);
}

static void wait(Barrier& barrier, int count) {
  const int generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    barrier.generation++;
    return;
  }
  while (barrier.generation == generation) yield();
}

static void warp() { wait(warp_barriers[current / 32], 32); }
static u32* lane_words(int lane) { return words[current / 32 * 32 + lane]; }
}  // namespace emulator

#define __syncthreads() emulator::wait(emulator::block_barrier, emulator::threads)

template <class T> static T __ldg(const T* pointer) { return *pointer; }
static float __uint_as_float(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
static u32 __float_as_uint(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }
static int __float_as_int(float f) { return (int)__float_as_uint(f); }
static float __int_as_float(int bits) { return __uint_as_float((u32)bits); }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static float __fdividef(float a, float b) { return a / b; }
static float fast_exp(float x) { return expf(x); }
#define __expf fast_exp  // the C library has a function with this name
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static int __float2int_rn(float x) { return (int)lrintf(x); }
static u32 __umulhi(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
static float fma_ftz(float a, float b, float c) { return fmaf(a, b, c); }
static float square_root(float x) { return sqrtf(x); }
static float quotient(float a, float b) { return a / b; }

static u32 exchange(u32 word, int distance) {
  emulator::lane_words(threadIdx.x % 32)[0] = word;
  emulator::warp();
  const u32 other = emulator::lane_words(threadIdx.x % 32 ^ distance)[0];
  emulator::warp();
  return other;
}
static float __shfl_xor_sync(u32, float value, int distance) { return __uint_as_float(exchange(__float_as_uint(value), distance)); }
static int __shfl_xor_sync(u32, int value, int distance) { return (int)exchange((u32)value, distance); }
static bool __all_sync(u32, bool value) {
  for (int distance = 16; distance; distance /= 2) value = value & (bool)exchange(value, distance);
  return value;
}

#if HALF_IS_BFLOAT16
static float to_float(u16 half) { return __uint_as_float((u32)half << 16); }
static u16 to_half(float value) {
  if (value != value) return 0x7FFF;
  const u32 bits = __float_as_uint(value);
  return (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
#else
static float to_float(u16 half) { _Float16 h; memcpy(&h, &half, 2); return (float)h; }
static u16 to_half(float value) { const _Float16 h = (_Float16)value; u16 bits; memcpy(&bits, &h, 2); return bits; }
#endif
static u32 pack(float low, float high) { return to_half(low) | (u32)to_half(high) << 16; }
static float relu(float x) { return x < 0 ? 0 : x; }
static u32 pack_relu(float low, float high) { return pack(relu(low), relu(high)); }

static u32 shared_address(const void* pointer) { return (u32)((const char*)pointer - memory); }

static void load_matrices(u32 (&a)[4], u32 address) {
  const int lane = threadIdx.x % 32;
  emulator::lane_words(lane)[0] = address;
  emulator::warp();
  for (int matrix = 0; matrix < 4; matrix++) {
    const u32 row = emulator::lane_words(matrix * 8 + lane / 4)[0];
    if (row % 16) __builtin_trap();
    memcpy(&a[matrix], memory + row + lane % 4 * 4, 4);
  }
  emulator::warp();
}

static void multiply_add(float (&c)[4], const u32 (&a)[4], uint2 b) {
  const int lane = threadIdx.x % 32;
  u32* own = emulator::lane_words(lane);
  memcpy(own, a, 16);
  own[4] = b.x;
  own[5] = b.y;
  emulator::warp();
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      const u32 left = emulator::lane_words(row % 8 * 4 + k % 8 / 2)[row / 8 + k / 8 * 2];
      const u32 right = emulator::lane_words(column * 4 + k % 8 / 2)[4 + k / 8];
      c[i] += to_float((u16)(left >> k % 2 * 16)) * to_float((u16)(right >> k % 2 * 16));
    }
  }
  emulator::warp();
}
