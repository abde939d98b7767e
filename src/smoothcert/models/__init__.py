"""Base classifiers and the sources that they come from.

`load_classifier` takes a bundled name (`fashion-cnn`, `cifar-resnet18`, ...), `torchvision:NAME`,
`timm:NAME`, `hf:NAME_OR_FOLDER`, `onnx:FILE`, `file.py:function` or `package.module:function`. To
add a source, write a function like that of `huggingface.py`, and add its prefix in `load.py`.
"""

from smoothcert.models.base import Classifier, state_hash
from smoothcert.models.load import load_classifier
from smoothcert.models.wrappers import SeededRows

__all__ = ["Classifier", "SeededRows", "load_classifier", "state_hash"]
