"""GPU and CPU: finding one, generators, CUDA graphs, compilation, memory."""
