// One stage of a CIFAR ResNet in one kernel. A block of threads holds a few images in shared memory and runs all
// residual blocks of the stage on them. docs/how-it-is-fast.md explains the kernel with a drawing.
//
// Constants, given as -D options (kernels/layout.py):
//   CHANNELS, SIZE       channels and side length of the stage's activations
//   IMAGES               images per block of threads
//   ROWS                 rows of pixels whose results one warp holds in registers
//   COLUMN_WARPS         warps that share the output channels of the same pixels
//   RESIDENT_BLOCKS      blocks that must fit on one multiprocessor
//   IS_FIRST             the stage begins with the first convolution; otherwise, with the end of a strided block
//   INPUT_CHANNELS       channels of the network's inputs
//   NOISE                0: the inputs are noisy; 1: they are clean, and the kernel adds normal noise; 2: noise on a grid
//   IS_LAST              the stage ends with pooling and the linear layer; otherwise, with the start of a strided block
//   NEXT_CHANNELS        channels of the next stage
//   STRIDE               stride of the block that leads to the next stage
//
// Activations lie in shared memory as [image][plane of 8 channels][row][column][8 channels], with a border of zeros one
// pixel wide. The 8 channels of a pixel are 16 bytes, which is a row of the matrices that ldmatrix loads. Eight
// neighbours are 128 bytes, so neither loads nor stores have bank conflicts.

constexpr int PITCH = SIZE + 2;
constexpr int PIXEL_BYTES = 16;
constexpr int ROW_BYTES = PITCH * PIXEL_BYTES;
constexpr int PLANES = CHANNELS / 8;
constexpr int PLANE_BYTES = PITCH * ROW_BYTES;
constexpr int IMAGE_BYTES = PLANES * PLANE_BYTES;
constexpr int BUFFER_BYTES = IMAGES * IMAGE_BYTES;

// A tile is 16 pixels of the same row: of one image or, where rows are shorter, of several images.
constexpr int TILE_WIDTH = SIZE < 16 ? SIZE : 16;
constexpr int TILE_IMAGES = 16 / TILE_WIDTH;
constexpr int TILES_PER_ROW = SIZE / TILE_WIDTH;
constexpr int ROW_GROUPS = SIZE / ROWS;
constexpr int PIXEL_WARPS = IMAGES / TILE_IMAGES * ROW_GROUPS * TILES_PER_ROW;
constexpr int THREADS = 32 * PIXEL_WARPS * COLUMN_WARPS;
constexpr int COLUMNS = PLANES / COLUMN_WARPS;  // groups of 8 output channels per warp

// Weights arrive in steps: one step has the three rows of a filter at one of its columns and for 16 input channels.
constexpr int STEP = 3 * PLANES * 32;
constexpr int CHANNEL_STEPS = CHANNELS / 16;

static_assert(CHANNELS % 16 == 0 && PLANES % COLUMN_WARPS == 0 && SIZE % ROWS == 0 && SIZE % TILE_WIDTH == 0, "layout");
static_assert(16 % TILE_WIDTH == 0 && IMAGES % TILE_IMAGES == 0, "layout");

struct Arguments {
  const void* inputs;        // first stage: noisy inputs or, if the kernel draws noise, clean float32 inputs by slot
  const int* rows;           // first stage that draws noise: slot, id and sample of every row
  const float2* affine;      // first stage: factor and offset of every input channel
  const uint4* hidden;       // other stages: the strided block after its first convolution
  const uint4* shortcut;     // other stages: the shortcut of the strided block
  const uint2* weights;      // of all 3x3 convolutions, in the order of use
  const float2* biases;
  const uint2* next_weights; // of the next strided block: 3x3, then 1x1
  const float2* next_biases;
  u32* next_hidden;
  u32* next_shortcut;
  const float* linear;       // [channel][class]
  const float* linear_bias;
  long long* labels;
  float* logits;             // or null
  const long long* table;    // noise on a grid: see noise.cu
  u64 seed;
  float scale;               // of normal noise; noise on a grid: the step
  float ratio, tail;         // noise on a grid
  int length, smallest;
  int blocks;                // residual blocks of the stage
  int count;                 // images in the batch
  int classes;
};

extern __shared__ __align__(128) char memory[];

// Byte offset of a pixel of a tile, at the top of the warp's rows, for any layout of images, rows and pixels.
__device__ __forceinline__ int find_pixel(int tile, int pixel, int image_bytes, int row_bytes, int pixel_bytes) {
  const int image = tile / (ROW_GROUPS * TILES_PER_ROW) * TILE_IMAGES + pixel / TILE_WIDTH;
  const int top = tile / TILES_PER_ROW % ROW_GROUPS * ROWS;
  const int column = tile % TILES_PER_ROW * TILE_WIDTH + pixel % TILE_WIDTH;
  return image * image_bytes + top * row_bytes + column * pixel_bytes;
}

// A lane holds results of two pixels of a tile: pixel lane / 4 and the one that is eight pixels further.
__device__ constexpr int eight_pixels(int image_bytes, int pixel_bytes) {
  return 8 / TILE_WIDTH * image_bytes + 8 % TILE_WIDTH * pixel_bytes;
}

// Where the pixels of a lane begin.
struct Lane {
  u32 load;   // the row of a matrix whose address this lane gives to ldmatrix
  int store;  // the first of the two pixels whose results it holds
};

__device__ __forceinline__ Lane find_lane(int pixel_warp, int lane) {
  const int load = find_pixel(pixel_warp, lane % 16, IMAGE_BYTES, ROW_BYTES, PIXEL_BYTES) + lane / 16 * PLANE_BYTES;
  const int store = find_pixel(pixel_warp, lane / 4, IMAGE_BYTES, ROW_BYTES, PIXEL_BYTES) + lane % 4 * 4;
  return {shared_address(memory) + load, store + ROW_BYTES + PIXEL_BYTES};
}

// The border of zeros around all planes of a buffer.
__device__ __forceinline__ void clear_border(char* buffer) {
  constexpr int BORDER = 4 * (PITCH - 1);
  for (int i = threadIdx.x; i < IMAGES * PLANES * BORDER; i += THREADS) {
    const int plane = i / BORDER, side = i % BORDER / (PITCH - 1), along = i % (PITCH - 1);
    const int row = side == 0 ? 0 : side == 1 ? PITCH - 1 : side == 2 ? along + 1 : along;
    const int column = side == 0 ? along : side == 1 ? along + 1 : side == 2 ? 0 : PITCH - 1;
    *(uint4*)(buffer + plane * PLANE_BYTES + row * ROW_BYTES + column * PIXEL_BYTES) = make_uint4(0, 0, 0, 0);
  }
}

typedef float Sums[ROWS][COLUMNS][4];
typedef uint2 Weights[3][COLUMNS];

// The weights are one stream through the stage. A step is loaded while the step before it is computed.
__device__ __forceinline__ void load_step(Weights& step, const uint2*& stream) {
  #pragma unroll
  for (int row = 0; row < 3; row++)
    #pragma unroll
    for (int j = 0; j < COLUMNS; j++) step[row][j] = __ldg(stream + (row * PLANES + j) * 32);
  stream += STEP;
}

__device__ __forceinline__ void start_sums(Sums& sums, const float2* bias) {
  #pragma unroll
  for (int j = 0; j < COLUMNS; j++) {
    const float2 pair = __ldg(bias + j * 4);
    #pragma unroll
    for (int row = 0; row < ROWS; row++) {
      sums[row][j][0] = sums[row][j][2] = pair.x;
      sums[row][j][1] = sums[row][j][3] = pair.y;
    }
  }
}

// A row of inputs belongs to three rows of outputs, so it is loaded once for all three.
__device__ __forceinline__ void add_row(Sums& sums, const u32 (&pixels)[4], const Weights& step, int row) {
  #pragma unroll
  for (int filter_row = 0; filter_row < 3; filter_row++)
    if (row - filter_row >= 0 && row - filter_row < ROWS)
      #pragma unroll
      for (int j = 0; j < COLUMNS; j++) multiply_add(sums[row - filter_row][j], pixels, step[filter_row][j]);
}

// Rows above and below the image are zeros.
__device__ __forceinline__ constexpr bool is_padding(int row) { return ROWS == SIZE && (row == 0 || row == ROWS + 1); }

// ReLU and rounding; ADDS: after the addition of what lies there, the shortcut.
template <bool ADDS> __device__ __forceinline__ void store_sums(const Sums& sums, char* buffer, const Lane& lane) {
  #pragma unroll
  for (int row = 0; row < ROWS; row++)
    #pragma unroll
    for (int half = 0; half < 2; half++)
      #pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        const int offset = half * eight_pixels(IMAGE_BYTES, PIXEL_BYTES) + row * ROW_BYTES + j * PLANE_BYTES;
        u32* target = (u32*)(buffer + lane.store + offset);
        float low = sums[row][j][2 * half], high = sums[row][j][2 * half + 1];
        if (ADDS) {
          const u32 shortcut = *target;
          low += to_float((u16)shortcut);
          high += to_float((u16)(shortcut >> 16));
        }
        *target = pack_relu(low, high);
      }
}

// One 3x3 convolution from shared memory to shared memory: the first of a residual block writes `hidden`, the second
// one reads it and adds to `state`.
template <bool IS_SECOND> __device__ __forceinline__ void convolve(
    char* state, char* hidden, const Lane& lane, Weights& step, const uint2*& stream, const float2*& bias) {
  Sums sums;
  start_sums(sums, bias);
  bias += CHANNELS / 2;
  u32 source = lane.load + (IS_SECOND ? BUFFER_BYTES : 0);
  #pragma unroll(CHANNEL_STEPS <= 2 ? CHANNEL_STEPS : 1)
  for (int k = 0; k < CHANNEL_STEPS; k++) {
    #pragma unroll
    for (int column = 0; column < 3; column++) {
      Weights next;
      load_step(next, stream);
      #pragma unroll
      for (int row = 0; row < ROWS + 2; row++) {
        if (is_padding(row)) continue;
        u32 pixels[4];
        load_matrices(pixels, source + row * ROW_BYTES + column * PIXEL_BYTES);
        add_row(sums, pixels, step, row);
      }
      #pragma unroll
      for (int row = 0; row < 3; row++)
        #pragma unroll
        for (int j = 0; j < COLUMNS; j++) step[row][j] = next[row][j];
    }
    source += 2 * PLANE_BYTES;
  }
  store_sums<IS_SECOND>(sums, IS_SECOND ? state : hidden, lane);
  __syncthreads();
}

#if IS_FIRST

constexpr int NOISY_PITCH = SIZE + 4;
constexpr int NOISY_BYTES = (SIZE + 2) * NOISY_PITCH * 8;
static_assert(NOISY_BYTES <= IMAGE_BYTES && INPUT_CHANNELS <= 4, "the noisy input uses the second buffer");

// The noisy inputs, normalised, as [row][column][4 channels] with a border of zeros.
__device__ __forceinline__ void put_noisy(const Arguments& arguments, char* noisy, int image, int element, float value) {
  const int pixel = element / INPUT_CHANNELS, channel = element % INPUT_CHANNELS;
  const float2 affine = __ldg(arguments.affine + channel);
  const float rounded = to_float((u16)pack(value, 0.f));  // as in a batch of noisy inputs
  *(u16*)(noisy + image * NOISY_BYTES + ((pixel / SIZE + 1) * NOISY_PITCH + pixel % SIZE + 1) * 8 + channel * 2) =
      (u16)pack(fmaf(rounded, affine.x, affine.y), 0.f);
}

__device__ __forceinline__ void load_noisy(const Arguments& arguments, char* noisy) {
  constexpr int ELEMENTS = INPUT_CHANNELS * SIZE * SIZE;
  for (int i = threadIdx.x; i < IMAGES * NOISY_BYTES / 8; i += THREADS) ((uint2*)noisy)[i] = make_uint2(0, 0);
  __syncthreads();
  const int first = blockIdx.x * IMAGES;
#if NOISE
  constexpr int QUARTER = (ELEMENTS + 3) / 4;
  for (int i = threadIdx.x; i < IMAGES * QUARTER; i += THREADS) {
    const int image = i / QUARTER, element = i % QUARTER, row = first + image;
    if (row >= arguments.count) continue;
    const float* input = (const float*)arguments.inputs + (u64)__ldg(arguments.rows + row) * ELEMENTS;
    const u32 id = __ldg(arguments.rows + arguments.count + row), sample = __ldg(arguments.rows + 2 * arguments.count + row);
    float noise[4];
#if NOISE == 1
    draw_normal(noise, arguments.seed, element, sample, id);
#else
    const Grid grid = {arguments.table, arguments.length, arguments.smallest, arguments.ratio, arguments.tail};
    draw_grid(noise, grid, arguments.seed, element, sample, id);
#endif
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const int target = element + j * QUARTER;
      if (target >= ELEMENTS) continue;
#if NOISE == 1
      const float value = __fmaf_rn(arguments.scale, noise[j], __ldg(input + target));
#else
      const float level = floorf(__fadd_rn(quotient(__ldg(input + target), arguments.scale), 0.5f));
      const float value = __fmul_rn(__fadd_rn(level, noise[j]), arguments.scale);
#endif
      put_noisy(arguments, noisy, image, target, value);
    }
  }
#else
  for (int i = threadIdx.x; i < IMAGES * ELEMENTS; i += THREADS) {
    const int image = i / ELEMENTS, element = i % ELEMENTS;
    if (first + image < arguments.count)
      put_noisy(arguments, noisy, image, element,
                to_float(__ldg((const u16*)arguments.inputs + (u64)(first + image) * ELEMENTS + element)));
  }
#endif
  __syncthreads();
}

// The first convolution is a single step: 4 columns of the filter (the last one is zero) times 4 input channels are 16.
__device__ __forceinline__ void first_convolution(
    char* state, const char* noisy, const Lane& position, int tile, int lane, Weights& step, const uint2*& stream, const float2*& bias) {
  Sums sums;
  start_sums(sums, bias);
  bias += CHANNELS / 2;
  noisy += find_pixel(tile, lane / 4, NOISY_BYTES, NOISY_PITCH * 8, 8) + lane % 4 * 4;
  #pragma unroll
  for (int row = 0; row < ROWS + 2; row++) {
    if (is_padding(row)) continue;
    u32 pixels[4];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const char* source = noisy + half * eight_pixels(NOISY_BYTES, 8) + row * NOISY_PITCH * 8;
      pixels[half] = *(const u32*)source;
      pixels[half + 2] = *(const u32*)(source + 16);
    }
    add_row(sums, pixels, step, row);
  }
  load_step(step, stream);
  store_sums<false>(sums, state, position);
  __syncthreads();
}

#else

__device__ __forceinline__ void load_activations(char* buffer, const uint4* source, int count) {
  constexpr int PIXELS = SIZE * SIZE;
  const int first = blockIdx.x * IMAGES;
  for (int i = threadIdx.x; i < IMAGES * PLANES * PIXELS; i += THREADS) {
    const int plane = i / PIXELS, pixel = i % PIXELS;
    const bool exists = first + plane / PLANES < count;
    *(uint4*)(buffer + plane * PLANE_BYTES + (pixel / SIZE + 1) * ROW_BYTES + (pixel % SIZE + 1) * PIXEL_BYTES) =
        exists ? __ldg(source + (u64)first * PLANES * PIXELS + i) : make_uint4(0, 0, 0, 0);
  }
}

#endif

#if !IS_LAST

constexpr int WARPS = THREADS / 32;
constexpr int NEXT_SIZE = SIZE / STRIDE;
constexpr int NEXT_PIXELS = NEXT_SIZE * NEXT_SIZE;
constexpr int NEXT_PLANES = NEXT_CHANNELS / 8;
constexpr int NEXT_TILES = IMAGES * NEXT_PIXELS / 16;
constexpr int NEXT_COLUMNS = NEXT_PLANES % 4 == 0 ? 4 : NEXT_PLANES % 2 == 0 ? 2 : 1;  // per piece of work
constexpr int NEXT_PIECES = NEXT_TILES * (NEXT_PLANES / NEXT_COLUMNS);
static_assert(IMAGES * NEXT_PIXELS % 16 == 0 && NEXT_CHANNELS % 8 == 0, "layout");

// A convolution from shared memory to the next stage's inputs: 3x3 with ReLU, or 1x1 without.
template <int SIDE> __device__ __forceinline__ void convolve_to_next(
    const uint2* weights, const float2* biases, u32* output, int warp, int lane, int count) {
  for (int piece = warp; piece < NEXT_PIECES; piece += WARPS) {
    const int tile = piece % NEXT_TILES, first_plane = piece / NEXT_TILES * NEXT_COLUMNS;
    const int pixel = tile * 16 + lane % 16, inside = pixel % NEXT_PIXELS;
    const int top = inside / NEXT_SIZE * STRIDE + (SIDE == 1), left = inside % NEXT_SIZE * STRIDE + (SIDE == 1);
    const u32 source = shared_address(memory) + pixel / NEXT_PIXELS * IMAGE_BYTES + (lane >> 4) * PLANE_BYTES
        + top * ROW_BYTES + left * PIXEL_BYTES;
    float sums[NEXT_COLUMNS][4];
    #pragma unroll
    for (int j = 0; j < NEXT_COLUMNS; j++) {
      const float2 bias = __ldg(biases + (first_plane + j) * 4 + lane % 4);
      sums[j][0] = sums[j][2] = bias.x;
      sums[j][1] = sums[j][3] = bias.y;
    }
    const uint2* stream = weights + first_plane * 32 + lane;
    #pragma unroll 1
    for (int k = 0; k < CHANNEL_STEPS; k++)
      #pragma unroll
      for (int tap = 0; tap < SIDE * SIDE; tap++) {
        u32 pixels[4];
        load_matrices(pixels, source + 2 * k * PLANE_BYTES + tap / SIDE * ROW_BYTES + tap % SIDE * PIXEL_BYTES);
        #pragma unroll
        for (int j = 0; j < NEXT_COLUMNS; j++) multiply_add(sums[j], pixels, __ldg(stream + j * 32));
        stream += NEXT_PLANES * 32;
      }
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const int target = tile * 16 + half * 8 + lane / 4, image = blockIdx.x * IMAGES + target / NEXT_PIXELS;
      if (image < count)
        #pragma unroll
        for (int j = 0; j < NEXT_COLUMNS; j++) {
          const float low = sums[j][2 * half], high = sums[j][2 * half + 1];
          output[(((u64)image * NEXT_PLANES + first_plane + j) * NEXT_PIXELS + target % NEXT_PIXELS) * 4 + lane % 4] =
              SIDE == 3 ? pack_relu(low, high) : pack(low, high);
        }
    }
  }
}

#else

constexpr int WARPS = THREADS / 32;

// The mean over all pixels, the linear layer and the class of the largest logit, in float32.
__device__ __forceinline__ void classify(const Arguments& arguments, const char* state, float* means, int warp, int lane) {
  for (int i = threadIdx.x; i < IMAGES * CHANNELS / 2; i += THREADS) {
    const int image = i / (CHANNELS / 2), pair = i % (CHANNELS / 2);
    const char* source = state + image * IMAGE_BYTES + pair / 4 * PLANE_BYTES + pair % 4 * 4;
    float low = 0, high = 0;
    for (int row = 1; row <= SIZE; row++)
      #pragma unroll
      for (int column = 1; column <= SIZE; column++) {
        const u32 packed = *(const u32*)(source + row * ROW_BYTES + column * PIXEL_BYTES);
        low += to_float((u16)packed);
        high += to_float((u16)(packed >> 16));
      }
    means[image * CHANNELS + 2 * pair] = low * (1.f / (SIZE * SIZE));
    means[image * CHANNELS + 2 * pair + 1] = high * (1.f / (SIZE * SIZE));
  }
  __syncthreads();
  for (int image = warp; image < IMAGES; image += WARPS) {
    const int row = blockIdx.x * IMAGES + image;
    if (row >= arguments.count) break;
    float best = -__uint_as_float(0x7F800000u);
    int label = arguments.classes;
    bool finite = true;
    for (int c = lane; c < arguments.classes; c += 32) {
      float logit = __ldg(arguments.linear_bias + c);
      for (int k = 0; k < CHANNELS; k++)
        logit = fmaf(means[image * CHANNELS + k], __ldg(arguments.linear + k * arguments.classes + c), logit);
      finite = finite && fabsf(logit) < __uint_as_float(0x7F800000u);
      if (logit > best) { best = logit; label = c; }
      if (arguments.logits) arguments.logits[(u64)row * arguments.classes + c] = logit;
    }
    #pragma unroll
    for (int distance = 16; distance; distance /= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, best, distance);
      const int candidate = __shfl_xor_sync(0xFFFFFFFFu, label, distance);
      if (other > best || (other == best && candidate < label)) { best = other; label = candidate; }
    }
    finite = __all_sync(0xFFFFFFFFu, finite);
    if (lane == 0) arguments.labels[row] = finite ? label : arguments.classes;  // not a class: no vote
  }
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS) stage(const __grid_constant__ Arguments arguments) {
  char* const state = memory;
  char* const hidden = memory + BUFFER_BYTES;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int plane = warp / PIXEL_WARPS * COLUMNS;
  Lane position = find_lane(warp % PIXEL_WARPS, lane);
  position.store += plane * PLANE_BYTES;

  const uint2* stream = arguments.weights + plane * 32 + lane;
  const float2* bias = arguments.biases + plane * 4 + lane % 4;
  Weights step;
  load_step(step, stream);
  clear_border(state);
#if IS_FIRST
  load_noisy(arguments, hidden);
  first_convolution(state, hidden, position, warp % PIXEL_WARPS, lane, step, stream, bias);
  clear_border(hidden);
#else
  clear_border(hidden);
  load_activations(hidden, arguments.hidden, arguments.count);
  load_activations(state, arguments.shortcut, arguments.count);
  __syncthreads();
#endif
  for (int block = 0; block < arguments.blocks; block++) {
    if (IS_FIRST || block) convolve<false>(state, hidden, position, step, stream, bias);
    convolve<true>(state, hidden, position, step, stream, bias);
  }
#if IS_LAST
  classify(arguments, state, (float*)hidden, warp, lane);
#else
  convolve_to_next<3>(arguments.next_weights, arguments.next_biases, arguments.next_hidden, warp, lane, arguments.count);
  convolve_to_next<1>(arguments.next_weights + 9 * CHANNEL_STEPS * NEXT_PLANES * 32, arguments.next_biases + NEXT_CHANNELS / 2,
                      arguments.next_shortcut, warp, lane, arguments.count);
#endif
}
