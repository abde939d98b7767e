"""CIFAR ResNets on CUDA: one kernel per stage, with the activations in shared memory."""
