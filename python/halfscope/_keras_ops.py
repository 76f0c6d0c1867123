# SPDX-License-Identifier: MIT
"""ONNX operators of Keras' layers, by the class name. Source: keras.layers of Keras 3.15.

A layer that is several operators has the one with its weights. A wrapper and a layer without an
operator keep their class name.
"""


def _by_rank(operator, *names):
    """Layers that exist for one, two and three dimensions."""
    return {f"{name}{rank}D": operator for name in names for rank in (1, 2, 3)}


OPERATORS = {
    "Dense": "Gemm", "EinsumDense": "Einsum", "Dot": "MatMul",
    **_by_rank("Conv", "Conv"),
    "Conv1DTranspose": "ConvTranspose", "Conv2DTranspose": "ConvTranspose",
    "Conv3DTranspose": "ConvTranspose",
    "DepthwiseConv1D": "Conv", "DepthwiseConv2D": "Conv",
    "SeparableConv1D": "Conv", "SeparableConv2D": "Conv",
    **_by_rank("Conv", "ConvLSTM"),
    "LSTM": "LSTM", "GRU": "GRU", "SimpleRNN": "RNN",
    "LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "RNN",
    "MultiHeadAttention": "Attention", "GroupedQueryAttention": "Attention",
    "Attention": "Attention", "AdditiveAttention": "Attention",
    "Embedding": "Gather", "ReversibleEmbedding": "Gather",
    "BatchNormalization": "BatchNormalization", "LayerNormalization": "LayerNormalization",
    "GroupNormalization": "GroupNormalization", "RMSNormalization": "RMSNormalization",
    "UnitNormalization": "LpNormalization",
    "ReLU": "Relu", "LeakyReLU": "LeakyRelu", "PReLU": "PRelu", "ELU": "Elu", "Softmax": "Softmax",
    **_by_rank("MaxPool", "MaxPooling", "AdaptiveMaxPooling"),
    **_by_rank("AveragePool", "AveragePooling", "AdaptiveAveragePooling"),
    **_by_rank("GlobalMaxPool", "GlobalMaxPooling"),
    **_by_rank("GlobalAveragePool", "GlobalAveragePooling"),
    "Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Average": "Mean", "Maximum": "Max",
    "Minimum": "Min", "Concatenate": "Concat",
    "Dropout": "Dropout", "AlphaDropout": "Dropout", "GaussianDropout": "Dropout",
    **_by_rank("Dropout", "SpatialDropout"),
    "Flatten": "Flatten", "Reshape": "Reshape", "Permute": "Transpose", "RepeatVector": "Tile",
    "Identity": "Identity", **_by_rank("Pad", "ZeroPadding"), **_by_rank("Slice", "Cropping"),
    **_by_rank("Resize", "UpSampling"),
}
