"""Make the bundled part of Fashion-MNIST: its first 500 test images.

python tools/bundle_fashion_mnist.py DIR    # DIR holds t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz
"""

import sys
from pathlib import Path

import numpy as np

from smoothcert.data.mnist_cifar import BUNDLED, read_idx

COUNT = 500

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    images = read_idx(folder / "t10k-images-idx3-ubyte.gz")[:COUNT]
    labels = read_idx(folder / "t10k-labels-idx1-ubyte.gz")[:COUNT]
    np.savez_compressed(BUNDLED, x=images, y=labels)
    print(f"{BUNDLED}: {len(images)} images, {BUNDLED.stat().st_size:,} bytes")
