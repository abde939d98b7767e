"""The layers of the fast path: fused operations, and the passes that write a graph with them."""
