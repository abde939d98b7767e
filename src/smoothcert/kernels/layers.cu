// Layers that torch runs far below the speed of memory, for bfloat16 (HALF_IS_BFLOAT16 = 1) or float16. Images are stored
// with their channels last. Every thread handles vectors of 8 numbers (16 bytes). All sizes are constants.

constexpr int VECTOR = 8;

struct Arguments {
  const u16* x;
  const u16* y;
  const u16* weight;
  const u16* bias;
  u16* out;
  u16* sum;
  u64 count;
  float epsilon;
};

__device__ __forceinline__ void unpack(float (&values)[VECTOR], uint4 packed) {
  const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) values[i] = to_float((u16)(words[i / 2] >> i % 2 * 16));
}

__device__ __forceinline__ uint4 packed(const float (&values)[VECTOR]) {
  return make_uint4(pack(values[0], values[1]), pack(values[2], values[3]), pack(values[4], values[5]), pack(values[6], values[7]));
}

__device__ __forceinline__ uint4 load(const u16* pointer, u64 vector) { return __ldg((const uint4*)pointer + vector); }

__device__ __forceinline__ u64 global_thread() { return (u64)blockIdx.x * THREADS + threadIdx.x; }

#ifdef SPACE_TO_DEPTH

// Cells of BLOCK x BLOCK pixels become the channels of one pixel, after PADDING zeros on the upper and left side. Channels
// that are missing to OUT_CHANNELS are zero. Every value is multiplied by the factor of its channel and then gets its
// offset. `count` is the number of vectors of the result.
__device__ constexpr float FACTORS[] = {FACTOR}, OFFSETS[] = {OFFSET};

extern "C" __global__ void space_to_depth(const Arguments a) {
  const u64 index = global_thread();
  if (index >= a.count) return;
  constexpr int VECTORS = OUT_CHANNELS / VECTOR;
  const int first = (int)(index % VECTORS) * VECTOR, column = (int)(index / VECTORS % OUT_WIDTH);
  const int row = (int)(index / VECTORS / OUT_WIDTH % OUT_HEIGHT);
  const u64 image = index / VECTORS / OUT_WIDTH / OUT_HEIGHT;
  float values[VECTOR];
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) {
    const int cell = (first + i) / CHANNELS, channel = (first + i) % CHANNELS;
    const int h = row * BLOCK + cell / BLOCK - PADDING, w = column * BLOCK + cell % BLOCK - PADDING;
    const bool inside = cell < BLOCK * BLOCK && h >= 0 && h < HEIGHT && w >= 0 && w < WIDTH;
    values[i] = 0;
    if (inside) values[i] = to_float(a.x[((image * HEIGHT + h) * WIDTH + w) * CHANNELS + channel]) * FACTORS[channel] + OFFSETS[channel];
  }
  ((uint4*)a.out)[index] = packed(values);
}

#endif

#ifdef MAX_POOL

// The maximum over SIZE x SIZE pixels; NaN if one of them is NaN. `count` is the number of vectors of the result.
extern "C" __global__ void max_pool(const Arguments a) {
  const u64 index = global_thread();
  if (index >= a.count) return;
  constexpr int VECTORS = CHANNELS / VECTOR;
  const int vector = (int)(index % VECTORS), column = (int)(index / VECTORS % OUT_WIDTH);
  const int row = (int)(index / VECTORS / OUT_WIDTH % OUT_HEIGHT);
  const u64 image = index / VECTORS / OUT_WIDTH / OUT_HEIGHT;
  float best[VECTOR];
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) best[i] = __uint_as_float(0xFF800000u);
  #pragma unroll
  for (int tap = 0; tap < SIZE * SIZE; tap++) {
    const int h = row * STRIDE + tap / SIZE - PADDING, w = column * STRIDE + tap % SIZE - PADDING;
    if (h < 0 || h >= HEIGHT || w < 0 || w >= WIDTH) continue;
    float values[VECTOR];
    unpack(values, load(a.x, ((image * HEIGHT + h) * WIDTH + w) * VECTORS + vector));
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) best[i] = values[i] > best[i] || values[i] != values[i] ? values[i] : best[i];
  }
  ((uint4*)a.out)[index] = packed(best);
}

#endif

#ifdef ADD_LAYER_NORM

// sum = x + y, rounded, and out = its layer normalisation; without y, x alone. One warp for each of `count` rows, which
// keeps the row in registers.
extern "C" __global__ void add_layer_norm(const Arguments a) {
  constexpr int VECTORS = WIDTH / VECTOR, PER_LANE = (VECTORS + 31) / 32;
  const u64 row = global_thread() / 32;
  if (row >= a.count) return;
  const int lane = threadIdx.x % 32;
  float values[PER_LANE][VECTOR];
  float total = 0;
  #pragma unroll
  for (int part = 0; part < PER_LANE; part++) {
    const int vector = lane + 32 * part;
    if (vector >= VECTORS) break;
    const u64 at = row * VECTORS + vector;
    unpack(values[part], load(a.x, at));
    if (ADDS) {
      float added[VECTOR];
      unpack(added, load(a.y, at));
      #pragma unroll
      for (int i = 0; i < VECTOR; i++) values[part][i] += added[i];
      const uint4 rounded = packed(values[part]);
      ((uint4*)a.sum)[at] = rounded;
      unpack(values[part], rounded);
    }
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) total += values[part][i];
  }
  #pragma unroll
  for (int distance = 16; distance; distance /= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, distance);
  const float mean = total / WIDTH;
  float squares = 0;
  #pragma unroll
  for (int part = 0; part < PER_LANE; part++) {
    if (lane + 32 * part >= VECTORS) break;
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) squares += (values[part][i] - mean) * (values[part][i] - mean);
  }
  #pragma unroll
  for (int distance = 16; distance; distance /= 2) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, distance);
  const float factor = 1.f / sqrtf(squares / WIDTH + a.epsilon);
  #pragma unroll
  for (int part = 0; part < PER_LANE; part++) {
    const int vector = lane + 32 * part;
    if (vector >= VECTORS) break;
    float weight[VECTOR], bias[VECTOR];
    unpack(weight, load(a.weight, vector));
    unpack(bias, load(a.bias, vector));
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) values[part][i] = (values[part][i] - mean) * factor * weight[i] + bias[i];
    ((uint4*)a.out)[row * VECTORS + vector] = packed(values[part]);
  }
}

#endif

#ifdef GROUP_NORM

// The group normalisation of x + y, where y has a number for each channel (if SHIFTS), and then SiLU (if ACTIVATES). A block
// has SLICE channels of an image, which are whole groups. It reads them twice, the second time from the cache.
extern __shared__ __align__(16) char memory[];

extern "C" __global__ void group_norm(const Arguments a) {
  constexpr int VECTORS = SLICE / VECTOR, ROWS = THREADS / VECTORS, SLICES = CHANNELS / SLICE;
  constexpr bool EVEN = THREADS % VECTORS == 0 && PIXELS % ROWS == 0;  // without it, loads wait for one another
  float (*sums)[SLICE] = (float(*)[SLICE])memory;
  float (*squares)[SLICE] = sums + ROWS;
  float* means = (float*)(squares + ROWS);
  float* factors = means + SLICE;

  const int vector = threadIdx.x % VECTORS, row = threadIdx.x / VECTORS;  // some threads have no row
  const int slice = blockIdx.x % SLICES * VECTORS;
  const u64 image = (u64)(blockIdx.x / SLICES) * PIXELS * (CHANNELS / VECTOR) + slice;
  float shift[VECTOR] = {};
  if (SHIFTS) unpack(shift, load(a.y, slice + vector));

  // Sums of differences to the first number of each group, which is about as large as its mean.
  float pivot[VECTOR], sum[VECTOR] = {}, square[VECTOR] = {};
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) {
    const int first = (vector * VECTOR + i) / GROUP * GROUP;
    pivot[i] = to_float(a.x[image * VECTOR + first]);
    if (SHIFTS) pivot[i] += to_float(a.y[slice * VECTOR + first]);
  }
  #pragma unroll 4
  for (int first = 0; first < PIXELS; first += ROWS) {
    const int pixel = first + row;
    if (!EVEN && (row >= ROWS || pixel >= PIXELS)) break;
    float values[VECTOR];
    unpack(values, load(a.x, image + (u64)pixel * (CHANNELS / VECTOR) + vector));
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      const float difference = values[i] + shift[i] - pivot[i];
      sum[i] += difference;
      square[i] += difference * difference;
    }
  }
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) {
    if (row >= ROWS) break;
    sums[row][vector * VECTOR + i] = sum[i];
    squares[row][vector * VECTOR + i] = square[i];
  }
  __syncthreads();
  for (int rows = ROWS; rows > 1;) {
    const int half = (rows + 1) / 2;
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      if (row + half >= rows) break;
      sums[row][vector * VECTOR + i] += sums[row + half][vector * VECTOR + i];
      squares[row][vector * VECTOR + i] += squares[row + half][vector * VECTOR + i];
    }
    rows = half;
    __syncthreads();
  }
  for (int group = threadIdx.x; group < SLICE / GROUP; group += THREADS) {
    float total = 0, total_square = 0;
    for (int i = 0; i < GROUP; i++) {
      total += sums[0][group * GROUP + i];
      total_square += squares[0][group * GROUP + i];
    }
    const float mean = total / (GROUP * PIXELS), variance = total_square / (GROUP * PIXELS) - mean * mean;
    means[group] = mean;
    factors[group] = 1.f / sqrtf((variance < 0 ? 0 : variance) + a.epsilon);
  }
  __syncthreads();

  float weight[VECTOR], bias[VECTOR];
  unpack(weight, load(a.weight, slice + vector));
  unpack(bias, load(a.bias, slice + vector));
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) {
    const int group = (vector * VECTOR + i) / GROUP;
    pivot[i] += means[group] - shift[i];
    weight[i] *= factors[group];
  }
  #pragma unroll 4
  for (int first = 0; first < PIXELS; first += ROWS) {
    const int pixel = first + row;
    if (!EVEN && (row >= ROWS || pixel >= PIXELS)) break;
    const u64 at = image + (u64)pixel * (CHANNELS / VECTOR) + vector;
    float values[VECTOR];
    unpack(values, load(a.x, at));
    #pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      values[i] = (values[i] - pivot[i]) * weight[i] + bias[i];
      if (ACTIVATES) values[i] = __fdividef(values[i], 1.f + __expf(-values[i]));
    }
    ((uint4*)a.out)[at] = packed(values);
  }
}

#endif

#ifdef ADD_BIAS

// x + y, and the bias of each channel. `count` is the number of vectors of the result.
extern "C" __global__ void add_bias(const Arguments a) {
  const u64 index = global_thread();
  if (index >= a.count) return;
  float values[VECTOR], added[VECTOR], bias[VECTOR];
  unpack(values, load(a.x, index));
  unpack(added, load(a.y, index));
  unpack(bias, load(a.bias, index % (CHANNELS / VECTOR)));
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) values[i] += added[i] + bias[i];
  ((uint4*)a.out)[index] = packed(values);
}

#endif

#ifdef DEPTH_TO_SPACE

// relu(shortcut + x), where the channels of a pixel of x are the cells of BLOCK x BLOCK pixels. x has the shape
// (HEIGHT, WIDTH, BLOCK * BLOCK * CHANNELS); `count` is the number of vectors of the result.
extern "C" __global__ void depth_to_space(const Arguments a) {
  const u64 index = global_thread();
  if (index >= a.count) return;
  constexpr int VECTORS = CHANNELS / VECTOR;
  const int vector = (int)(index % VECTORS), w = (int)(index / VECTORS % (WIDTH * BLOCK));
  const u64 rows = index / VECTORS / (WIDTH * BLOCK);  // of all images
  const int cell = (int)(rows % BLOCK) * BLOCK + w % BLOCK;
  const u64 pixel = rows / BLOCK * WIDTH + w / BLOCK;
  float values[VECTOR], added[VECTOR];
  unpack(values, load(a.x, (pixel * BLOCK * BLOCK + cell) * VECTORS + vector));
  unpack(added, load(a.y, index));
  #pragma unroll
  for (int i = 0; i < VECTOR; i++) {
    const float sum = values[i] + added[i];
    values[i] = sum < 0 ? 0 : sum;
  }
  ((uint4*)a.out)[index] = packed(values);
}

#endif
