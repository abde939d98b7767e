"""How a classifier is run: number format, compilation, CUDA graphs, batch size."""
