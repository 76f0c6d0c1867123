# SPDX-License-Identifier: MIT
"""Keras networks for onnx_frameworks.py: each a function that builds a model which returns scores.

Dropout is left out, as HalfScope ignores it. Samples and answers come from onnx_frameworks.py.
"""
from typing import Callable, Dict, NamedTuple, Tuple

import keras
from keras import layers


class Network(NamedTuple):
    make: Callable[[], keras.Model]
    sample: Tuple[int, ...]  # shape of one sample; of integers if `tokens` is not 0
    loss: str  # "cross-entropy" or "mse"
    lr: float
    tokens: int = 0


def mlp() -> keras.Model:
    return keras.Sequential([
        keras.Input((8,)), layers.Dense(12, activation="relu"),
        layers.Dense(12, activation="tanh"), layers.Dense(4)])


def cnn_batch_norm() -> keras.Model:
    x = y = keras.Input((8, 8, 2))
    for filters in (4, 6):
        y = layers.Conv2D(filters, 3, padding="same", use_bias=filters == 4)(y)
        y = layers.BatchNormalization()(y)
        y = layers.ReLU()(y)
        y = layers.MaxPooling2D()(y)
    y = layers.Dense(4)(layers.Flatten()(y))
    return keras.Model(x, y)


def residual() -> keras.Model:
    """Two residual blocks, the second with stride 2 and a projection."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, padding="same")(x)
    for filters, stride in ((4, 1), (6, 2)):
        across = y
        y = layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)(y)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
        y = layers.BatchNormalization()(y)
        if stride > 1:
            across = layers.BatchNormalization()(layers.Conv2D(filters, 1, stride)(across))
        y = layers.ReLU()(layers.Add()([y, across]))
    return keras.Model(x, layers.Dense(4)(layers.GlobalAveragePooling2D()(y)))


def depthwise() -> keras.Model:
    """MobileNet's blocks: depthwise and separable convolutions, ReLU6 and hard swish."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, 2, padding="same", use_bias=False)(x)
    y = layers.ReLU(max_value=6.0)(layers.BatchNormalization()(y))
    y = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(y)
    y = layers.BatchNormalization()(y)
    y = layers.Activation("hard_swish")(y)
    y = layers.SeparableConv2D(6, 3, padding="same")(y)
    gate = layers.GlobalAveragePooling2D(keepdims=True)(y)
    gate = layers.Conv2D(6, 1, activation="hard_sigmoid")(gate)
    y = layers.Multiply()([y, gate])
    return keras.Model(x, layers.Dense(4)(layers.GlobalAveragePooling2D()(y)))


def unet() -> keras.Model:
    """Down and up again: nearest, bilinear, and a transposed convolution."""
    x = keras.Input((8, 8, 2))
    first = layers.Conv2D(4, 3, padding="same", activation="elu")(x)
    second = layers.Conv2D(6, 3, padding="same", activation="elu")(layers.MaxPooling2D()(first))
    y = layers.Conv2D(6, 3, padding="same", activation="relu")(
        layers.AveragePooling2D(2)(second))
    y = layers.Concatenate()([layers.UpSampling2D()(y), second])
    smooth = layers.UpSampling2D(interpolation="bilinear")(layers.Conv2D(4, 1)(y))
    y = layers.Conv2DTranspose(4, 3, 2, padding="same")(y)
    y = layers.Concatenate()([y, smooth, first])
    return keras.Model(x, layers.Conv2D(2, 3, padding="same")(y))


class Places(layers.Layer):
    """Adds a learned vector for every position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], name="table", initializer="normal")

    def call(self, x):
        return x + self.table


def transformer() -> keras.Model:
    x = keras.Input((6,), dtype="int32")
    y = Places(name="places")(layers.Embedding(12, 8)(x))
    for _ in range(2):
        z = layers.LayerNormalization()(y)
        y = layers.Add()([y, layers.MultiHeadAttention(2, 4)(z, z)])
        z = layers.LayerNormalization(epsilon=1e-6)(y)
        z = layers.Dense(8)(layers.Dense(16, activation="gelu")(z))
        y = layers.Add()([y, z])
    y = layers.LayerNormalization()(y)
    return keras.Model(x, layers.Dense(4)(layers.GlobalAveragePooling1D()(y)))


def text() -> keras.Model:
    """Embedding and pooling, with the padding left out of the mean."""
    return keras.Sequential([
        keras.Input((6,), dtype="int32"), layers.Embedding(12, 8, mask_zero=True),
        layers.GlobalAveragePooling1D(), layers.Dense(8, activation="relu"), layers.Dense(4)])


def lstm() -> keras.Model:
    return keras.Sequential([
        keras.Input((6,), dtype="int32"), layers.Embedding(12, 6),
        layers.Bidirectional(layers.LSTM(4, return_sequences=True, unroll=True)),
        layers.LSTM(5, unroll=True), layers.Dense(4)])


def gru() -> keras.Model:
    return keras.Sequential([
        keras.Input((5, 3)), layers.GRU(5, return_sequences=True), layers.GRU(4),
        layers.Dense(4)])


def decoder() -> keras.Model:
    """The decoder of a variational autoencoder."""
    return keras.Sequential([
        keras.Input((4,)), layers.Dense(2 * 2 * 6, activation="relu"), layers.Reshape((2, 2, 6)),
        layers.Conv2DTranspose(4, 3, 2, padding="same", activation="softplus"),
        layers.Conv2DTranspose(4, 4, 2, padding="same", activation="relu"),
        layers.Conv2D(1, 3, padding="same", activation="sigmoid")])


def discriminator() -> keras.Model:
    """The discriminator of a least-squares GAN."""
    return keras.Sequential([
        keras.Input((8, 8, 1)), layers.Conv2D(4, 3, 2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2), layers.Conv2D(6, 3, 2, padding="same"),
        layers.LayerNormalization(), layers.LeakyReLU(negative_slope=0.2), layers.Flatten(),
        layers.Dense(1)])


NETWORKS: Dict[str, Network] = {
    "mlp": Network(mlp, (8,), "cross-entropy", 0.1),
    "cnn_batch_norm": Network(cnn_batch_norm, (8, 8, 2), "cross-entropy", 0.05),
    "residual": Network(residual, (8, 8, 3), "cross-entropy", 0.05),
    "depthwise": Network(depthwise, (8, 8, 3), "cross-entropy", 0.05),
    "unet": Network(unet, (8, 8, 2), "mse", 0.01),
    "transformer": Network(transformer, (6,), "cross-entropy", 0.01, tokens=12),
    "text": Network(text, (6,), "cross-entropy", 0.1, tokens=12),
    "lstm": Network(lstm, (6,), "cross-entropy", 0.1, tokens=12),
    "gru": Network(gru, (5, 3), "cross-entropy", 0.1),
    "decoder": Network(decoder, (4,), "mse", 0.1),
    "discriminator": Network(discriminator, (8, 8, 1), "mse", 0.02),
}
