# SPDX-License-Identifier: MIT
"""ONNX operators of PyTorch's modules. Rules reason about operators, so names are those of ONNX."""

OPERATORS = {
    "Linear": "Gemm", "NonDynamicallyQuantizableLinear": "Gemm", "LazyLinear": "Gemm",
    "Bilinear": "Gemm",
    "Conv1d": "Conv", "Conv2d": "Conv", "Conv3d": "Conv",
    "ConvTranspose1d": "ConvTranspose", "ConvTranspose2d": "ConvTranspose",
    "ConvTranspose3d": "ConvTranspose",
    "BatchNorm1d": "BatchNormalization", "BatchNorm2d": "BatchNormalization",
    "BatchNorm3d": "BatchNormalization", "SyncBatchNorm": "BatchNormalization",
    "InstanceNorm1d": "InstanceNormalization", "InstanceNorm2d": "InstanceNormalization",
    "InstanceNorm3d": "InstanceNormalization",
    "LayerNorm": "LayerNormalization", "GroupNorm": "GroupNormalization",
    "RMSNorm": "RMSNormalization",
    "ReLU": "Relu", "LeakyReLU": "LeakyRelu", "PReLU": "PRelu", "ELU": "Elu", "SELU": "Selu",
    "CELU": "Celu", "GELU": "Gelu", "Mish": "Mish", "SiLU": "Swish", "Hardswish": "HardSwish",
    "Hardsigmoid": "HardSigmoid", "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Softplus": "Softplus",
    "Softsign": "Softsign", "ReLU6": "Clip", "Hardtanh": "Clip",
    "Softmax": "Softmax", "LogSoftmax": "LogSoftmax", "Softmin": "Softmax",
    "MaxPool1d": "MaxPool", "MaxPool2d": "MaxPool", "MaxPool3d": "MaxPool",
    "AvgPool1d": "AveragePool", "AvgPool2d": "AveragePool", "AvgPool3d": "AveragePool",
    "AdaptiveAvgPool1d": "AveragePool", "AdaptiveAvgPool2d": "AveragePool",
    "AdaptiveAvgPool3d": "AveragePool", "AdaptiveMaxPool2d": "MaxPool",
    "Embedding": "Gather", "EmbeddingBag": "Gather",
    "Dropout": "Dropout", "Dropout1d": "Dropout", "Dropout2d": "Dropout", "Dropout3d": "Dropout",
    "Flatten": "Flatten", "Unflatten": "Reshape", "Identity": "Identity",
    "Upsample": "Resize", "PixelShuffle": "DepthToSpace", "ZeroPad2d": "Pad",
    "RNN": "RNN", "LSTM": "LSTM", "GRU": "GRU",
    "MultiheadAttention": "Attention",
    "CrossEntropyLoss": "SoftmaxCrossEntropyLoss", "NLLLoss": "NegativeLogLikelihoodLoss",
}

# Under autocast these read their weights in the format of their output.
PRODUCTS = ("Gemm", "Conv", "ConvTranspose", "RNN", "LSTM", "GRU", "Attention")


# The operator of code that is no module. The rules know it by this name.
FUNCTION = "Function"


def operator_of(module):
    """Returns the ONNX operator of a module; its class name if there is none."""
    for each in type(module).__mro__:
        name = OPERATORS.get(each.__name__)
        if name is not None and each.__module__.startswith("torch.nn"):
            return name
    return type(module).__name__
