# SPDX-License-Identifier: MIT
"""Networks for keras_dtypes.py, each built by Keras 3 or by tf_keras (the module `k`).

Together they use every kind of layer and operation whose dtype a Keras policy decides.
"""
from typing import Any, Callable, Dict, Tuple

import numpy as np

CLASSES = 4


class Sizes:
    """Shapes and types of the inputs, without the batch."""

    def __init__(self, *shape: int, dtype: str = "float32", high: int = 0) -> None:
        self.shape, self.dtype, self.high = shape, dtype, high

    def sample(self, batch: int) -> np.ndarray:
        random = np.random.default_rng(7)
        if self.high:
            return random.integers(0, self.high, (batch, *self.shape)).astype(self.dtype)
        return random.normal(size=(batch, *self.shape)).astype(self.dtype)


def mlp(k: Any, x: Any) -> Any:
    x = k.layers.Rescaling(0.5, name="rescaling")(x)
    x = k.layers.Flatten(name="flatten")(x)
    x = k.layers.Dense(6, activation="relu", name="hidden")(x)
    x = k.layers.Dropout(0.25, name="dropout")(x)
    return k.layers.Dense(CLASSES, activation="softmax", name="probabilities")(x)


def output_rule(k: Any, x: Any) -> Any:
    """The mixed precision guide: the last activation in float32, the product before it not."""
    x = k.layers.Dense(6, activation="tanh", name="hidden")(x)
    x = k.layers.Dense(CLASSES, name="logits")(x)
    return k.layers.Activation("softmax", dtype="float32", name="probabilities")(x)


def cnn_batch_norm(k: Any, x: Any) -> Any:
    x = k.layers.Conv2D(4, 3, use_bias=False, padding="same", name="conv")(x)
    x = k.layers.BatchNormalization(name="norm")(x)
    x = k.layers.ReLU(name="relu")(x)
    x = k.layers.MaxPooling2D(2, name="pool")(x)
    x = k.layers.Conv2D(4, 3, name="conv_2", activation="elu")(x)
    x = k.layers.AveragePooling2D(2, name="average")(x)
    x = k.layers.GlobalAveragePooling2D(name="global_pool")(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def residual(k: Any, x: Any) -> Any:
    """Both branches of the second sum differ in their dtype."""
    x = k.layers.Conv2D(4, 3, padding="same", name="stem")(x)
    y = k.layers.Conv2D(4, 3, padding="same", name="conv_a")(x)
    y = k.layers.BatchNormalization(name="norm_a", epsilon=1e-5)(y)
    x = k.layers.Add(name="sum_a")([x, y])
    x = k.layers.ReLU(name="relu_a")(x)
    y = k.layers.Conv2D(4, 1, name="conv_b", dtype="float32")(x)
    y = k.layers.BatchNormalization(name="norm_b", dtype="float32")(y)
    x = k.layers.Add(name="sum_b")([x, y])
    x = k.layers.LeakyReLU(name="relu_b")(x)
    x = k.layers.GlobalMaxPooling2D(name="pool")(x)
    return k.layers.Dense(CLASSES, name="logits", dtype="float32")(x)


def layer_norm(k: Any, x: Any) -> Any:
    x = k.layers.Dense(6, name="hidden")(x)
    x = k.layers.LayerNormalization(name="norm")(x)
    x = k.layers.Dense(6, name="hidden_2", activation="sigmoid")(x)
    x = k.layers.LayerNormalization(name="norm_small", epsilon=1e-6)(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def group_norm(k: Any, x: Any) -> Any:
    x = k.layers.Conv2D(4, 3, name="conv")(x)
    x = k.layers.GroupNormalization(groups=2, name="norm")(x)
    x = k.layers.PReLU(shared_axes=[1, 2], name="prelu")(x)
    x = k.layers.Flatten(name="flatten")(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def embedding(k: Any, x: Any) -> Any:
    x = k.layers.Embedding(11, 5, name="embedding")(x)
    x = k.layers.Conv1D(6, 3, name="conv", activation="relu")(x)
    x = k.layers.GlobalAveragePooling1D(name="pool")(x)
    return k.layers.Dense(CLASSES, activation="sigmoid", name="labels")(x)


def transformer(k: Any, x: Any) -> Any:
    """The attention of Keras 3 without dropout: its softmax is fp32."""
    x = k.layers.Dense(8, name="embed")(x)
    y = k.layers.LayerNormalization(name="norm_1", epsilon=1e-6)(x)
    y = k.layers.MultiHeadAttention(2, 4, name="attention")(y, y)
    x = k.layers.Add(name="sum_1")([x, y])
    y = k.layers.LayerNormalization(name="norm_2", epsilon=1e-6)(x)
    y = k.layers.Dense(12, name="up", activation=lambda x: k.activations.gelu(x, approximate=True))(y)
    y = k.layers.Dense(8, name="down")(y)
    x = k.layers.Add(name="sum_2")([x, y])
    x = k.layers.GlobalAveragePooling1D(name="pool")(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def attention_with_dropout(k: Any, x: Any) -> Any:
    """With dropout, the attention of Keras 3 uses its Softmax layer instead."""
    x = k.layers.Dense(8, name="embed")(x)
    x = k.layers.MultiHeadAttention(2, 4, dropout=0.1, name="attention")(
        x, x, use_causal_mask=True)
    x = k.layers.Flatten(name="flatten")(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def causal_attention(k: Any, x: Any) -> Any:
    x = k.layers.Dense(8, name="embed")(x)
    x = k.layers.MultiHeadAttention(2, 4, name="attention")(x, x, use_causal_mask=True)
    x = k.layers.Flatten(name="flatten")(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def unet(k: Any, x: Any) -> Any:
    a = k.layers.Conv2D(3, 3, padding="same", activation="relu", name="down")(x)
    b = k.layers.MaxPooling2D(2, name="pool")(a)
    b = k.layers.Conv2D(4, 3, padding="same", activation="swish", name="bottom")(b)
    # HalfScope does not read the coordinates of this layer in tf_keras.
    b = (k.layers.UpSampling2D(2, name="up")(b) if hasattr(k, "ops") else
         k.layers.Conv2DTranspose(4, 2, strides=2, name="up")(b))
    x = k.layers.Concatenate(name="join")([a, b])
    x = k.layers.ZeroPadding2D(1, name="pad")(x)
    x = k.layers.Conv2D(1, 3, name="mask")(x)
    return k.layers.Activation("sigmoid", dtype="float32", name="probability")(x)


def generator(k: Any, x: Any) -> Any:
    x = k.layers.Dense(12, use_bias=False, name="project")(x)
    x = k.layers.BatchNormalization(name="norm_1")(x)
    x = k.layers.LeakyReLU(name="relu_1")(x)
    x = k.layers.Reshape((2, 2, 3), name="reshape")(x)
    x = k.layers.Conv2DTranspose(4, 2, strides=2, use_bias=False, name="deconv")(x)
    x = k.layers.BatchNormalization(name="norm_2")(x)
    x = k.layers.LeakyReLU(name="relu_2")(x)
    return k.layers.Conv2DTranspose(1, 2, strides=2, activation="tanh", name="image")(x)


def detection_head(k: Any, x: Any) -> Any:
    x = k.layers.Conv2D(4, 3, padding="same", activation="relu", name="features")(x)
    boxes = k.layers.Conv2D(4, 1, name="boxes")(x)
    boxes = k.layers.Reshape((-1, 4), name="boxes_flat")(boxes)
    scores = k.layers.Conv2D(3, 1, name="scores")(x)
    scores = k.layers.Reshape((-1, 3), name="scores_flat")(scores)
    scores = k.layers.Softmax(name="classes")(scores)
    return k.layers.Concatenate(name="predictions")([boxes, scores])


def depthwise(k: Any, x: Any) -> Any:
    x = k.layers.Conv2D(4, 3, strides=2, name="stem")(x)
    x = k.layers.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
    x = k.layers.BatchNormalization(name="norm")(x)
    x = k.layers.ReLU(6.0, name="relu6")(x)
    x = k.layers.SeparableConv2D(4, 3, padding="same", name="separable")(x)
    x = k.layers.GlobalAveragePooling2D(name="pool")(x)
    return k.layers.Dense(CLASSES, name="logits")(x)


def squeeze_excite(k: Any, x: Any) -> Any:
    x = k.layers.Conv2D(4, 3, name="conv")(x)
    s = k.layers.GlobalAveragePooling2D(keepdims=True, name="squeeze")(x)
    s = k.layers.Conv2D(2, 1, activation="relu", name="reduce")(s)
    s = k.layers.Conv2D(4, 1, activation="sigmoid", name="expand")(s)
    x = k.layers.Multiply(name="excite")([x, s])
    y = k.layers.Average(name="average")([x, x])
    y = k.layers.Maximum(name="maximum")([y, x])
    y = k.layers.Subtract(name="difference")([y, x])
    y = k.layers.Flatten(name="flatten")(y)
    return k.layers.Dense(CLASSES, activation="softplus", name="logits")(y)


def gate(k: Any, x: Any) -> Any:
    """Raw operations between layers: they take the dtype of what arrives."""

    class Gate(k.layers.Layer):
        def __init__(self, ops: Any, **arguments: Any) -> None:
            super().__init__(**arguments)
            self.ops = ops
            # Layers inside do not inherit the dtype of the layer around them.
            self.inner = k.layers.Dense(6, name="inner", dtype=arguments.get("dtype"))

        def build(self, shape: Any) -> None:
            self.factor = self.add_weight(name="factor", shape=(6,), initializer="ones")
            self.inner.build(shape)
            super().build(shape)

        def call(self, x: Any) -> Any:
            return x * self.factor + self.ops.sigmoid(self.inner(x))

    ops = k.ops if hasattr(k, "ops") else k.backend
    x = k.layers.Dense(6, name="hidden")(x)
    x = Gate(ops, name="gate")(x)
    x = Gate(ops, name="gate_fp32", dtype="float32")(x)
    x = k.layers.Dot(axes=1, name="dot")([x, x])
    return x


NETWORKS: Dict[str, Tuple[Callable[[Any, Any], Any], Sizes]] = {
    "mlp": (mlp, Sizes(2, 3)),
    "output_rule": (output_rule, Sizes(5)),
    "cnn_batch_norm": (cnn_batch_norm, Sizes(8, 8, 2)),
    "residual": (residual, Sizes(5, 5, 2)),
    "layer_norm": (layer_norm, Sizes(5)),
    "group_norm": (group_norm, Sizes(5, 5, 2)),
    "embedding": (embedding, Sizes(7, dtype="int32", high=11)),
    "transformer": (transformer, Sizes(5, 6)),
    "attention_with_dropout": (attention_with_dropout, Sizes(5, 6)),
    "causal_attention": (causal_attention, Sizes(5, 6)),
    "unet": (unet, Sizes(4, 4, 2)),
    "generator": (generator, Sizes(5)),
    "detection_head": (detection_head, Sizes(3, 3, 2)),
    "depthwise": (depthwise, Sizes(9, 9, 2)),
    "squeeze_excite": (squeeze_excite, Sizes(5, 5, 2)),
    "gate": (gate, Sizes(5)),
}


def build(k: Any, name: str, policy: str) -> Any:
    """Returns the model under a global dtype policy, with the same weights for every policy."""
    make, sizes = NETWORKS[name]
    k.backend.clear_session()
    k.utils.set_random_seed(5)
    if hasattr(k, "config"):
        k.config.set_dtype_policy(policy)
    else:
        k.mixed_precision.set_global_policy(policy)
    x = k.Input(sizes.shape, dtype=sizes.dtype, name="x")
    model = k.Model(x, make(k, x), name=name)
    # tf2onnx merges equal weights and drops zeros.
    random = np.random.default_rng(11)
    model.set_weights([np.abs(random.normal(size=w.shape)) * 0.3 + 0.1
                       for w in model.get_weights()])
    return model
