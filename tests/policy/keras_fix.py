# SPDX-License-Identifier: MIT
"""Runs files/keras_fix.txt, the advice for Keras, with tf_keras and with Keras 3.

Functional and subclassed models, before and after their first call: the advised layer computes in
float32, the others do not, and the output is float32 where the text can make it so.
"""
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import numpy as np

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"
TEXT = Path(__file__).resolve().parent / "files" / "keras_fix.txt"
X = np.ones((2, 5), np.float32)


def check(keras: Any, functional: bool, built: bool) -> None:
    seen: Dict[str, str] = {}

    class Seen(keras.layers.Dense):
        def call(self, inputs: Any) -> Any:
            result = super().call(inputs)
            seen[self.name] = result.dtype.name
            return result

    class Block(keras.layers.Layer):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            self.inner, self.other = Seen(4, name="inner"), Seen(4, name="other")

        def call(self, inputs: Any) -> Any:
            return self.other(self.inner(inputs))

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.first, self.block = Seen(4, name="first"), Block(name="block")
            self.head = Seen(3, name="logits")

        def call(self, inputs: Any) -> Any:
            return self.head(self.block(self.first(inputs)))

    if functional:
        x = keras.Input((5,))
        y = Seen(3, name="logits")(Block(name="block")(Seen(4, name="first")(x)))
        model = keras.Model(x, y, name="net")
    else:
        model = Net()
    if built:
        model(X)
    text = TEXT.read_text(encoding="utf-8")
    if keras.__name__ == "tf_keras":
        text = text.replace("import keras  # or: import tf_keras as keras",
                            "import tf_keras as keras")
    scope = {"model": model}
    exec(compile(text, "pasted", "exec"), scope)  # pylint: disable=exec-used
    seen.clear()
    y = scope["model"](X)
    assert seen == {"first": "float16", "inner": "float32", "other": "float16",
                    "logits": "float16"}, seen
    assert y.dtype.name == ("float32" if functional else "float16"), y.dtype


def main() -> int:
    if len(sys.argv) == 1:
        for version in ("keras3", "tf_keras"):
            environment = dict(os.environ)
            if version == "tf_keras":
                environment["TF_USE_LEGACY_KERAS"] = "1"
            subprocess.run([sys.executable, "-B", __file__, version], env=environment, check=True)
        return 0
    if sys.argv[1] == "keras3":
        import keras  # pylint: disable=import-outside-toplevel
        keras.config.set_dtype_policy("mixed_float16")
    else:
        import tf_keras as keras  # pylint: disable=import-outside-toplevel
        keras.mixed_precision.set_global_policy("mixed_float16")
    for functional in (True, False):
        for built in (True, False):
            check(keras, functional, built)
    print(f"{sys.argv[1]}: inner in float32")
    return 0


if __name__ == "__main__":
    sys.exit(main())
