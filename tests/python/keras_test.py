# SPDX-License-Identifier: MIT
"""hs.KerasCallback on a training with Keras 3."""
import os
import tempfile
import unittest

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras  # noqa: E402
import numpy as np  # noqa: E402

import halfscope as hs  # noqa: E402


def train(callbacks, policy="mixed_float16", loss_scale=True, eager=False):
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, activation="relu", name="a"),
                              keras.layers.Dense(3, name="b")])
    optimizer = keras.optimizers.Adam(1e-2)
    if loss_scale:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**15)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  auto_scale_loss=False, run_eagerly=eager)
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((32, 8)).astype("float32"), generator.integers(0, 3, 32)
    history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0,
                        callbacks=callbacks)
    keras.mixed_precision.set_dtype_policy("float32")
    return model, history.history["loss"]


class Keras(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "run.hscope")

    def test_records_weights_updates_state_and_scale(self):
        model, losses = train([hs.KerasCallback(self.file, every=2)])
        run = hs.open(self.file)
        rows = run.steps()
        self.assertEqual((run.status, run.lanes), ("complete", ["mixed_float16"]))
        self.assertEqual(len(rows["step"]), 12)
        for epoch in range(3):
            mean = rows["loss"][4 * epoch:4 * epoch + 4].mean()
            self.assertAlmostEqual(mean, losses[epoch], places=5)
        self.assertEqual(rows["loss_scale"][0], 2.0**15)
        names = {site["name"]: site["format"] for site in run.sites()}
        self.assertEqual(names["a.kernel"], "fp16")
        self.assertEqual(names["a.kernel_update"], "fp32")
        self.assertIn("b.bias_adam_v", names)
        np.testing.assert_array_equal(run.stats("b.kernel_adam_m")["step"][-1:], [10])

    def test_scale_of_the_first_batch(self):
        keras.mixed_precision.set_dtype_policy("mixed_float16")
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
        model.compile("adam", "mse")  # Keras adds the scaler itself and builds it in batch 0
        x, y = np.ones((16, 8), "float32"), np.ones((16, 3), "float32")
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[hs.KerasCallback(self.file)])
        keras.mixed_precision.set_dtype_policy("float32")
        self.assertEqual(hs.open(self.file).steps()["loss_scale"].tolist(), [2.0**15, 2.0**15])
        with open(self.file, "rb") as file:
            self.assertIn(b"keras3:init=32768,", file.read())

    def test_last_update_equals_numpy(self):
        seen = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append(keras.ops.convert_to_numpy(self.model.layers[-1].kernel).copy())
        model, _ = train([Look(), hs.KerasCallback(self.file)], "float32", False)
        update = keras.ops.convert_to_numpy(model.layers[-1].kernel) - seen[-1]
        stats = hs.open(self.file).stats("b.kernel_update")
        self.assertEqual(stats["max_abs"][-1], np.abs(update).max())
        np.testing.assert_allclose(stats["sum_sq"][-1], (update.astype("float64") ** 2).sum())

    def test_eager_outputs_and_gradients_equal_numpy(self):
        seen = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append([np.array(keras.ops.convert_to_numpy(v)) for v in
                             self.model.trainable_variables])
        train([Look(), hs.KerasCallback(self.file)], "float32", False, eager=True)
        generator = np.random.default_rng(0)
        x, y = generator.standard_normal((32, 8))[24:], generator.integers(0, 3, 32)[24:]
        w, b, v, c = (each.astype("float64") for each in seen[-1])
        hidden = np.maximum(x.astype("float32").astype("float64") @ w + b, 0)
        logits = hidden @ v + c
        weights = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        delta = (weights - np.eye(3)[y]) / len(y)
        run = hs.open(self.file)
        for site, value in (("a.activation", hidden), ("b.activation", logits),
                            ("b.kernel_grad", hidden.T @ delta), ("b.bias_grad", delta.sum(0))):
            got = run.stats(site)
            self.assertEqual(got["n"][-1], value.size, site)
            np.testing.assert_allclose(got["sum_sq"][-1], (value ** 2).sum(), rtol=1e-4)
            np.testing.assert_allclose(got["max_abs"][-1], np.abs(value).max(), rtol=1e-4)
        self.assertEqual(run.stats("a.activation")["zero"][-1], (hidden == 0).sum())
        self.assertTrue(np.isfinite(run.steps()["grad_norm"]).all())

    def test_eager_gradients_have_the_loss_scale(self):
        train([hs.KerasCallback(self.file)], eager=True)
        run = hs.open(self.file)
        scaled = run.stats("b.bias_grad")["max_abs"][0]
        self.assertGreater(scaled, 2.0**15 * 1e-3)
        self.assertLess(run.steps()["grad_norm"][0], 10)

    def test_layers_get_their_methods_back(self):
        model, _ = train([hs.KerasCallback(self.file)], eager=True)
        self.assertFalse(any("call" in vars(layer) for layer in model.layers))
        self.assertNotIn("apply", vars(model.optimizer))

    def test_compiled_layers_have_no_activations(self):
        if keras.backend.backend() == "torch":
            self.skipTest("layers of the torch backend run eagerly")
        train([hs.KerasCallback(self.file)])
        self.assertFalse(any(s["role"] in ("activation", "weight_grad")
                             for s in hs.open(self.file).sites()))

    def test_changes_nothing(self):
        for number, eager in enumerate((False, True)):
            plain, losses = train([], eager=eager)
            callback = hs.KerasCallback(f"{self.file}{number}")
            watched, losses_too = train([callback], eager=eager)
            self.assertEqual(losses, losses_too)
            for a, b in zip(plain.get_weights(), watched.get_weights()):
                np.testing.assert_array_equal(a, b)

    def test_its_own_faults_end_the_recording_only(self):
        callback = hs.KerasCallback(self.file)

        def fail(*args):
            raise RuntimeError("on purpose")
        callback._measure_update = fail
        with self.assertWarnsRegex(UserWarning, "stopped at step 0: RuntimeError: on purpose"):
            train([callback])


if __name__ == "__main__":
    unittest.main()
