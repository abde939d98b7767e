// The noise of sampling/philox.py: Philox-4x32-10 with the counter (element, sample, input, part). Normal numbers are made
// by the Box-Muller transform, with the rounding of Triton's functions, bit by bit. Numbers on a grid are integers.

struct Words { u32 a, b, c, d; };

__device__ __forceinline__ Words philox(u64 seed, u32 element, u32 sample, u32 id, u32 part) {
  u32 c0 = element, c1 = sample, c2 = id, c3 = part, k0 = (u32)seed, k1 = (u32)(seed >> 32);
  #pragma unroll
  for (int round = 0; round < 10; round++) {
    const u32 old0 = c0, old2 = c2;
    c0 = __umulhi(0xCD9E8D57u, old2) ^ c1 ^ k0;
    c2 = __umulhi(0xD2511F53u, old0) ^ c3 ^ k1;
    c1 = 0xCD9E8D57u * old2;
    c3 = 0xD2511F53u * old0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// The word as a signed number, without its sign: from 0 to 2^31 - 1.
__device__ __forceinline__ int folded(u32 word) { return (int)word < 0 ? ~(int)word : (int)word; }

// A number from [0, 1) that is never above the one that the word stands for: times 2^-31 (1 - 2^-22).
__device__ __forceinline__ float uniform(u32 word) { return __fmul_rn((float)folded(word), __uint_as_float(0x2FFFFFFCu)); }

// Below 2^-20, 32 random bits are too few for the tails of the normal law, and 32 more are drawn.
constexpr int COARSE = 2048;

__device__ __forceinline__ float finer(u32 word, u32 more) {
  const float units = __fmaf_rn(__fadd_rn((float)more, 0.5f), __uint_as_float(0x2F800000u), (float)folded(word));
  return __fmul_rn(units, __uint_as_float(0x30000000u));
}

// The natural logarithm of a positive number that is not tiny.
__device__ __forceinline__ float logarithm(float x) {
  const int bits = __float_as_int(x), exponent = (bits - 0x3F2AAAAB) & 0xFF800000;
  const float i = fma_ftz((float)exponent, __uint_as_float(0x34000000u), 0.f);
  const float m = __fadd_rn(__int_as_float(bits - exponent), -1.f);
  float p = fma_ftz(__uint_as_float(0xBE055027u), m, __uint_as_float(0x3E1039F6u));
  p = fma_ftz(p, m, __uint_as_float(0xBDF8CDCCu));
  p = fma_ftz(p, m, __uint_as_float(0x3E0F2955u));
  p = fma_ftz(p, m, __uint_as_float(0xBE2AD8B9u));
  p = fma_ftz(p, m, __uint_as_float(0x3E4CED0Bu));
  p = fma_ftz(p, m, __uint_as_float(0xBE7FFF22u));
  p = fma_ftz(p, m, __uint_as_float(0x3EAAAA78u));
  p = fma_ftz(p, m, -0.5f);
  p = __fmul_rn(m, p);
  p = fma_ftz(p, m, m);
  return fma_ftz(i, __uint_as_float(0x3F317218u), p);
}

// sin(remainder + quadrant * pi / 2)
__device__ __forceinline__ float sine(float remainder, int quadrant) {
  const float square = __fmul_rn(remainder, remainder);
  const bool odd = quadrant & 1;
  const float factor = odd ? 1.f : remainder;
  const float product = fma_ftz(square, factor, 0.f);
  float p = odd ? fma_ftz(__uint_as_float(0x37CBAC00u), square, __uint_as_float(0xBAB607EDu)) : __uint_as_float(0xB94D4153u);
  p = fma_ftz(p, square, __uint_as_float(odd ? 0x3D2AAABBu : 0x3C0885E4u));
  p = fma_ftz(p, square, __uint_as_float(odd ? 0xBEFFFFFFu : 0xBE2AAAA8u));
  p = fma_ftz(p, product, factor);
  return quadrant & 2 ? fma_ftz(p, -1.f, 0.f) : p;
}

// Two independent normal numbers, from a uniform number and a word. Two bits of the word choose a quadrant, the others an
// angle from -pi/4 to pi/4. There, sine and cosine are accurate to a few units in the last place, also near 0.
__device__ __forceinline__ float2 normal_pair(float first, u32 second) {
  const float radius = square_root(__fmul_rn(-2.f, logarithm(first)));
  const int quadrant = second >> 30, steps = (int)(second & 0x3FFFFFFFu) - 0x20000000;
  const float angle = __fmul_rn(__fadd_rn((float)steps, 0.5f), __uint_as_float(0x30C90FDBu));
  return make_float2(__fmul_rn(radius, sine(angle, quadrant + 1)), __fmul_rn(radius, sine(angle, quadrant)));
}

// The four normal numbers of an element of the counter.
__device__ __forceinline__ void draw_normal(float (&noise)[4], u64 seed, u32 element, u32 sample, u32 id) {
  const Words words = philox(seed, element, sample, id, 0);
  float early = uniform(words.a), late = uniform(words.c);
  if (folded(words.a) < COARSE || folded(words.c) < COARSE) {
    const Words more = philox(seed, element, sample, id, 1);
    if (folded(words.a) < COARSE) early = finer(words.a, more.a);
    if (folded(words.c) < COARSE) late = finer(words.c, more.c);
  }
  const float2 pair = normal_pair(early, words.b), other = normal_pair(late, words.d);
  noise[0] = pair.x;
  noise[1] = pair.y;
  noise[2] = other.x;
  noise[3] = other.y;
}

// Rounded normal numbers (kernels/grid_noise.py). They are integers with exact probabilities, so only the integers have to
// be those of sampling/philox.py, not the rounding on the way to them.
struct Grid {
  const long long* table;  // thresholds for 64 random bits, both as signed numbers
  int length, smallest;
  float ratio, tail;
};

// erfinv(1 - 2 p) for the probability p of a tail, by the polynomials of Giles (2010).
__device__ __forceinline__ float inverse_error(float p) {
  const float w = -logarithm(4.f * p * (1.f - p));
  float v, result;
  if (w < 5.f) {
    v = w - 2.5f;
    result = 2.81022636e-08f * v + 3.43273939e-07f;
    result = result * v - 3.5233877e-06f;
    result = result * v - 4.39150654e-06f;
    result = result * v + 0.00021858087f;
    result = result * v - 0.00125372503f;
    result = result * v - 0.00417768164f;
    result = result * v + 0.246640727f;
    result = result * v + 1.50140941f;
  } else {
    v = square_root(w) - 3.f;
    result = -0.000200214257f * v + 0.000100950558f;
    result = result * v + 0.00134934322f;
    result = result * v - 0.00367342844f;
    result = result * v + 0.00573950773f;
    result = result * v - 0.0076224613f;
    result = result * v + 0.00943887047f;
    result = result * v + 1.00167406f;
    result = result * v + 2.83297682f;
  }
  return result * (1.f - 2.f * p);
}

// The number that 32 bits give, and whether they are enough. Only an estimate next to the boundary of two numbers is
// compared with the upper half of its threshold.
__device__ __forceinline__ float grid_number(u32 word, const Grid& grid, bool& is_open) {
  const float p = ((float)(0x7FFFFFFF - folded(word)) + 0.5f) * __uint_as_float(0x2F800000u);  // of the nearer tail
  float y = grid.ratio * 1.41421356f * inverse_error(p);
  if ((int)word < 0) y = -y;
  const float k = floorf(y + 0.5f);
  is_open = p < grid.tail;
  if (fabsf(y - k) <= 0.48f) return k;
  const float below = floorf(y);
  const int index = (int)below - grid.smallest;
  if (index < 0 || index >= grid.length) {
    is_open = true;
    return k;
  }
  const int threshold = __ldg((const int*)grid.table + 2 * index + 1);
  is_open = is_open || (int)word == threshold;
  return (int)word > threshold ? below + 1.f : below;
}

// The number that 64 bits give: the smallest one plus the number of thresholds that are at most the bits.
__device__ __forceinline__ float search_grid(u32 word, u32 more, const Grid& grid) {
  const long long bits = (long long)((u64)word << 32 | more);
  int low = 0, high = grid.length;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (bits >= __ldg(grid.table + middle)) low = middle + 1;
    else high = middle;
  }
  return (float)(low + grid.smallest);
}

// The four rounded normal numbers of an element of the counter.
__device__ __forceinline__ void draw_grid(float (&steps)[4], const Grid& grid, u64 seed, u32 element, u32 sample, u32 id) {
  const Words words = philox(seed, element, sample, id, 0);
  bool open[4];
  steps[0] = grid_number(words.a, grid, open[0]);
  steps[1] = grid_number(words.b, grid, open[1]);
  steps[2] = grid_number(words.c, grid, open[2]);
  steps[3] = grid_number(words.d, grid, open[3]);
  if (open[0] || open[1] || open[2] || open[3]) {
    const Words more = philox(seed, element, sample, id, 1);
    if (open[0]) steps[0] = search_grid(words.a, more.a, grid);
    if (open[1]) steps[1] = search_grid(words.b, more.b, grid);
    if (open[2]) steps[2] = search_grid(words.c, more.c, grid);
    if (open[3]) steps[3] = search_grid(words.d, more.d, grid);
  }
}
