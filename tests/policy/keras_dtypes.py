# SPDX-License-Identifier: MIT
"""Records the dtypes that Keras gives every operation of some networks.

    keras_dtypes.py --out FOLDER [--only NAME]     writes FOLDER/keras_dtypes.json and *.onnx
    keras_dtypes.py --check FILE                   compares with a recorded keras_dtypes.json

Each network of keras_networks.py is built by tf_keras and by Keras 3 (with TensorFlow), under
mixed_float16 and mixed_bfloat16. Its training step is traced: forward pass, loss and gradients. For
every operation the file has

    "STORED from READ,READ"        or "integer"

where STORED is the dtype in which its result is kept, after a cast that all readers share, and
READ are the dtypes in which it reads its real inputs, before they were widened. For every weight
the file has the dtype of its gradient before the last cast to the dtype of the weight. The ONNX file
is that of the same network under the policy float32.

keras_test.cpp plans the ONNX files with HalfScope's Keras policies and compares.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"
sys.path.insert(0, str(Path(__file__).resolve().parent))

POLICIES = {"mixed_float16": "fp16", "mixed_bfloat16": "bf16"}
NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
BITS = {"fp32": 32, "fp16": 16, "bf16": 16}
BATCH = 2


def format_of(tensor: Any) -> Optional[str]:
    return NAMES.get(tensor.dtype.name)


def narrowest(tensor: Any) -> Optional[str]:
    """The format with the fewest bits that the value had on its way through casts."""
    own = format_of(tensor)
    while own and tensor.op.type in ("Cast", "Identity"):
        tensor = tensor.op.inputs[0]
        before = format_of(tensor)
        if before is None:
            return own
        if BITS[before] < BITS[own]:
            own = before
    return own


def is_constant(tensor: Any) -> bool:
    """Constants, and what is computed from them alone."""
    op = tensor.op
    if op.type in ("Const", "Fill", "ZerosLike", "OnesLike", "Shape", "Size"):
        return True
    return bool(op.inputs) and all(is_constant(each) for each in op.inputs)


def readers_of(tensor: Any) -> List[Any]:
    """The forward operations that read the value, also through identities."""
    readers = []
    for op in tensor.consumers():
        if op.type == "Identity":
            readers += readers_of(op.outputs[0])
        elif not op.name.startswith("gradient_tape"):
            readers.append(op)
    return readers


def stored(tensor: Any) -> Optional[str]:
    """The format of the value once a cast in the same layer is done that all its readers share."""
    own = format_of(tensor)
    readers = readers_of(tensor)
    layer = tensor.op.name.split("/")[:2]
    if own is None or not readers or any(
            op.type != "Cast" or op.name.split("/")[:2] != layer for op in readers):
        return own
    to = {format_of(op.outputs[0]) for op in readers}
    narrow = to.pop()
    return narrow if not to and narrow and BITS[narrow] < BITS[own] else own


def gradient_format(gradient: Any) -> str:
    """Before the last cast to the weight's dtype. Rows of an embedding are summed in the weight's."""
    if hasattr(gradient, "indices"):
        return "fp32"
    tensor = gradient
    while tensor.op.type in ("Reshape", "Identity"):
        tensor = tensor.op.inputs[0]
    return narrowest(tensor) or "none"


def record(k: Any, name: str, policy: str) -> Dict[str, Any]:
    import tensorflow as tf
    import keras_networks
    model = keras_networks.build(k, name, policy)
    x = tf.constant(keras_networks.NETWORKS[name][1].sample(BATCH))
    target = tf.zeros(model(x).shape)
    loss_function = k.losses.MeanSquaredError()
    seen: Dict[str, Any] = {}

    @tf.function
    def step(x: Any, target: Any) -> Any:
        with tf.GradientTape() as tape:
            y = model(x, training=True)
            loss = loss_function(target, y)
        gradients = tape.gradient(loss, model.trainable_variables)
        seen.update(gradients=gradients, y=y, loss=loss)
        return [tf.convert_to_tensor(each) for each in gradients]

    graph = step.get_concrete_function(x, target).graph
    operations: Dict[str, Any] = {}
    reads: Dict[str, str] = {}  # name of the operation that reads a variable -> its handle
    for op in graph.get_operations():
        if op.type in ("ReadVariableOp", "ResourceGather"):
            reads[op.name] = op.inputs[0].name
        if op.name.startswith(("gradient_tape", "AddN")) or op.type in ("Cast", "Const", "Placeholder",
                                                              "ReadVariableOp", "Identity"):
            continue
        if not op.outputs:
            continue
        if format_of(op.outputs[0]) is None:
            operations[op.name] = "integer"
            continue
        inputs = [each for each in op.inputs if format_of(each) and not is_constant(each)]
        reads_in = ",".join(sorted({str(narrowest(each)) for each in inputs}))
        if op.type == "ResourceGather":
            reads_in = NAMES[op.outputs[0].dtype.name]
        operations[op.name] = f"{stored(op.outputs[0])} from {reads_in}"
    captured = {tensor.name: resource for resource, tensor in graph.captures}
    weights: Dict[str, str] = {}
    for variable, gradient in zip(model.trainable_variables, seen["gradients"]):
        handle = getattr(variable, "value", variable)
        handle = getattr(handle, "handle", None)
        if handle is None:
            handle = getattr(variable, "handle")
        for read, tensor_name in reads.items():
            if captured[tensor_name] is handle:
                weights[read] = gradient_format(gradient)
    layers = {}
    for layer in model.layers:
        output = layer.output
        if not isinstance(output, (list, tuple)):
            layers[layer.name] = NAMES.get(str(getattr(output.dtype, "name", output.dtype)))
    loss_name = format_of(seen["loss"])
    return {"operations": operations, "gradients": weights, "layers": layers, "loss": loss_name,
            "output": format_of(seen["y"])}


def export(k: Any, name: str, path: Path) -> None:
    """Writes the network under the policy float32, with batch normalizations in one piece."""
    import tensorflow as tf
    import tf2onnx
    import keras_networks
    # tf2onnx merges batch normalizations into other layers; they have to stay to be planned.
    from tf2onnx.optimizer import back_to_back_optimizer as merges
    for key in [key for key in merges._func_map if "BatchNormalization" in key]:
        del merges._func_map[key]
    model = keras_networks.build(k, name, "float32")
    sizes = keras_networks.NETWORKS[name][1]
    signature = tf.TensorSpec((BATCH, *sizes.shape), sizes.dtype, name="x")
    function = tf.function(lambda x: model(x, training=False), input_signature=[signature])
    with fused_batch_normalization(k):
        proto, _ = tf2onnx.convert.from_function(function, input_signature=[signature], opset=15)
    proto.producer_version = ""
    path.write_bytes(proto.SerializeToString(deterministic=True))


class fused_batch_normalization:  # pylint: disable=invalid-name
    """Makes batch normalizations one operation in inference, as training computes them."""

    def __init__(self, k: Any) -> None:
        self.k, self.patched = k, []

    def __enter__(self) -> None:
        import tensorflow as tf

        def fused(x: Any, mean: Any, variance: Any, offset: Any, scale: Any, epsilon: float) -> Any:
            shape = tf.shape(x)
            x = tf.reshape(x, (-1, 1, 1, x.shape[-1])) if len(x.shape) != 4 else x
            y, *_ = tf.compat.v1.nn.fused_batch_norm(
                x, scale, offset, mean, variance, epsilon, is_training=False)
            return tf.reshape(y, shape)

        if hasattr(self.k, "ops"):
            from keras.src.layers.normalization import batch_normalization as module

            class Patched:
                def __getattr__(self, name: str) -> Any:
                    return getattr(self.ops, name)

                def batch_normalization(self, x: Any, mean: Any, variance: Any, axis: int,
                                        offset: Any, scale: Any, epsilon: float) -> Any:
                    del axis
                    return fused(x, mean, variance, offset, scale, epsilon)

            patched = Patched()
            patched.ops = module.ops
            self.patched.append((module, "ops", module.ops))
            module.ops = patched
        else:
            from tf_keras.src.layers.normalization import batch_normalization as module
            layer = module.BatchNormalizationBase
            before = layer.call

            def call(self: Any, inputs: Any, mask: Any = None, training: Any = None) -> Any:
                if self.fused:
                    return before(self, inputs, mask, training)
                return fused(inputs, self.moving_mean, self.moving_variance, self.beta, self.gamma,
                             self.epsilon)

            self.patched.append((layer, "call", before))
            layer.call = call
            # tf2onnx cannot export its fused kernel in training mode.
            from tf_keras.src.layers.normalization import layer_normalization
            layer = layer_normalization.LayerNormalization
            unfused = layer.call

            def normalize(self: Any, inputs: Any) -> Any:
                if not self._fused:
                    return unfused(self, inputs)
                centred = inputs - tf.reduce_mean(inputs, self.axis, keepdims=True)
                variance = tf.reduce_mean(tf.square(centred), self.axis, keepdims=True)
                return centred / tf.sqrt(variance + self.epsilon) * self.gamma + self.beta

            self.patched.append((layer, "call", unfused))
            layer.call = normalize

    def __exit__(self, *_: Any) -> None:
        for where, name, before in self.patched:
            setattr(where, name, before)


def import_keras(version: str) -> Any:
    if version == "keras3":
        import keras
        assert keras.__version__.startswith("3.")
        return keras
    import tf_keras
    return tf_keras


def record_all(version: str, out: Path, only: str) -> Dict[str, Any]:
    import keras_networks
    k = import_keras(version)
    recorded = {}
    for name in keras_networks.NETWORKS:
        if only and name != only:
            continue
        file = f"{version}_{name}.onnx"
        export(k, name, out / file)
        by_format = {short: record(k, name, policy) for policy, short in POLICIES.items()}
        # bf16 is recorded only where it is not fp16 under another name.
        same = same_but_for_names(by_format["fp16"], by_format["bf16"])
        recorded[file] = {"fp16": by_format["fp16"]} if same else by_format
        print(f"{file}: {len(by_format['fp16']['operations'])} operations", file=sys.stderr)
    return recorded


def in_new_process(version: str, out: Path, only: str) -> Dict[str, Any]:
    """tf_keras and Keras 3 cannot share a process: both patch TensorFlow."""
    environment = dict(os.environ)
    if version == "tf_keras":
        environment["TF_USE_LEGACY_KERAS"] = "1"
    done = subprocess.run([sys.executable, "-B", __file__, "--version", version, "--out", str(out),
                           "--only", only], stdout=subprocess.PIPE, env=environment, check=True)
    return json.loads(done.stdout)


def shown(value: Any, depth: int = 0) -> str:
    """JSON with one operation a line."""
    if not isinstance(value, dict):
        return json.dumps(value)
    lines = [f"{json.dumps(key)}: {shown(value[key], depth + 1)}" for key in sorted(value)]
    return "{\n" + ",\n".join(" " * (depth + 1) + line for line in lines) + "}"


def same_but_for_names(fp16: Any, bf16: Any) -> bool:
    return json.dumps(fp16, sort_keys=True).replace("fp16", "bf16") == json.dumps(bf16,
                                                                                 sort_keys=True)


def differences(a: Any, b: Any, path: str = "") -> List[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [line for key in sorted({*a, *b})
                for line in differences(a.get(key), b.get(key), f"{path}/{key}")]
    return [] if a == b else [f"{path}: recorded {a}, now {b}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--version", default="")
    options = parser.parse_args()
    if options.version:
        json.dump(record_all(options.version, options.out, options.only), sys.stdout)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        recorded: Dict[str, Any] = {}
        for version in ("tf_keras", "keras3"):
            recorded.update(in_new_process(version, out, options.only))
    if options.out:
        (options.out / "keras_dtypes.json").write_text(shown(recorded) + "\n", encoding="utf-8")
    if options.check:
        lines = differences(json.loads(options.check.read_text(encoding="utf-8")), recorded)
        print("\n".join(lines[:40]))
        return 1 if lines else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
