r"""Bring your own model: a ResNet-50 with the ImageNet weights of Keras, as a function without arguments.

    smoothcert probe --model examples/keras_resnet50.py:resnet50 --weights resnet50.safetensors --data DIR \
        --sigma 0.25,0.5

The weights are those of Keras under torchvision's names. Two things differ from torchvision's network: the first 1x1
convolution of a strided block has the stride, and batch normalisation adds 1e-3 to the variance. Inputs are in [0, 1],
and the network subtracts the mean of ImageNet and works in steps of 1/255.
"""

import torch
from torch import nn
from torchvision.models import resnet50 as torchvision_resnet50

MEAN = (0.485019, 0.457957, 0.407604)


class Normalized(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.network = network

    def forward(self, x):
        return self.network((x - self.mean) * 255)


def resnet50():
    network = torchvision_resnet50(weights=None)
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = 1e-3
    return Normalized(network)


if __name__ == "__main__":
    print(f"{sum(parameter.numel() for parameter in resnet50().parameters()):,} parameters")
