# SPDX-License-Identifier: MIT
"""The table of Keras' layers against Keras: each layer is in it, or has no operator of its own."""
import importlib.util
import os
import pathlib
import unittest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras  # noqa: E402

TABLE = pathlib.Path(__file__).parents[2] / "python/halfscope/_keras_ops.py"

# Of these, a run shows the class name.
WITHOUT = {
    # functions, wrappers and containers of others
    "Activation", "Lambda", "Layer", "Wrapper", "Bidirectional", "TimeDistributed", "RNN", "Pipeline",
    "StackedRNNCells", "SpectralNormalization", "FlaxLayer", "JaxLayer", "TFSMLayer",
    "TorchModuleWrapper", "InputLayer",
    # several operators without weights, or none
    "ActivityRegularization", "Masking", "GaussianNoise", "Normalization",
}
PREPROCESSING = "keras.src.layers.preprocessing"


def operators():
    spec = importlib.util.spec_from_file_location("keras_ops", TABLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OPERATORS


def layers():
    """All layers of Keras by class name, without aliases and without preparation of data."""
    found = {}
    for each in vars(keras.layers).values():
        if isinstance(each, type) and issubclass(each, keras.layers.Layer):
            if not each.__module__.startswith(PREPROCESSING):
                found[each.__name__] = each
    return found


class Operators(unittest.TestCase):
    def test_every_layer_has_its_operator(self):
        missing = set(layers()) - set(operators()) - WITHOUT
        self.assertEqual(missing, set())

    def test_every_name_is_a_layer(self):
        self.assertEqual(set(operators()) - set(layers()), set())
        self.assertEqual(set(operators()) & WITHOUT, set())

    def test_pools_of_every_rank(self):
        for kind, operator in (("MaxPooling", "MaxPool"), ("AveragePooling", "AveragePool"),
                               ("GlobalMaxPooling", "GlobalMaxPool"),
                               ("GlobalAveragePooling", "GlobalAveragePool")):
            for rank in (1, 2, 3):
                self.assertEqual(operators()[f"{kind}{rank}D"], operator)


if __name__ == "__main__":
    unittest.main()
