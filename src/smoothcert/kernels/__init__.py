"""Our own kernels: tracing, fusion and CUDA sources, behind one door."""

from smoothcert.kernels.base import KernelClassifier
from smoothcert.kernels.fast_path import Accelerated, Declined, accelerate

__all__ = ["Accelerated", "Declined", "KernelClassifier", "accelerate"]
