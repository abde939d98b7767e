"""Our own kernels: tracing, fusion and CUDA sources, behind one door."""
