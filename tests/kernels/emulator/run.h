// Follows the source of the kernel KERNEL: runs its blocks one after the other.

alignas(128) char memory[1 << 20];

static const Arguments* arguments_of_run;

static void run_fiber() {
  KERNEL(*arguments_of_run);
  emulator::fibers[emulator::current].done = true;
  emulator::yield();
}

extern "C" int run(const Arguments* arguments, int blocks) {
  using namespace emulator;
  arguments_of_run = arguments;
  threads = THREADS;
  fibers.resize(threads);
  for (int block = 0; block < blocks; block++) {
    blockIdx.x = block;
    memset(memory, 0xFF, sizeof(memory));
    block_barrier = {};
    memset(warp_barriers, 0, sizeof(warp_barriers));
    for (Fiber& fiber : fibers) {
      fiber.stack.resize(1 << 16);
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, run_fiber, 0);
    }
    for (int left = threads; left;) {
      left = 0;
      for (current = 0; current < threads; current++) {
        if (fibers[current].done) continue;
        left++;
        threadIdx.x = current;
        swapcontext(&scheduler, &fibers[current].context);
      }
    }
  }
  return THREADS;
}
