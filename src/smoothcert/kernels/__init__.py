"""Our own kernels: tracing, fusion and CUDA sources, behind one door."""

from smoothcert.kernels.fast_path import Accelerated, Declined, accelerate
from smoothcert.kernels.resnet.classifier import StageClassifier

__all__ = ["Accelerated", "Declined", "StageClassifier", "accelerate"]
