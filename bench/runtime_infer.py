# SPDX-License-Identifier: MIT
"""Times another runtime's float32 forward pass, for a ratio within one run of a benchmark.

    runtime_infer.py FILE.onnx [--threads N] [--batch 128] [--rounds 10]

Runs FILE with ONNX Runtime on random inputs, and ResNet-20 for CIFAR-10 with PyTorch, as far as
they are there. Prints one line of JSON; times are medians in milliseconds per batch:
    {"onnxruntime": "1.17.0", "onnxruntime_ms": ..., "torch": "1.13.0", "torch_resnet20_ms": ...}
"""
import argparse
import json
import os
import statistics
import time


def median_ms(run, rounds):
    times = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:]) * 1000.0


def time_onnxruntime(path, threads, rounds, result):
    try:
        import numpy as np
        import onnxruntime as ort
    except ImportError:
        return
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    inputs = {i.name: rng.standard_normal(i.shape).astype(np.float32)
              for i in session.get_inputs()}
    result["onnxruntime"] = ort.__version__
    result["onnxruntime_ms"] = median_ms(lambda: session.run(None, inputs), rounds)


def resnet20():
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.grows = after != before
            stride = 2 if self.grows else 1
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            if self.grows:
                more = self.conv2.out_channels // 4
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more))
            return F.relu(x + y)

    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    before = 16
    for after in (16, 32, 64):
        for _ in range(3):
            layers.append(Block(before, after))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()


def time_torch(threads, batch, rounds, result):
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(threads)
    model, x = resnet20(), torch.randn(batch, 3, 32, 32)
    with torch.no_grad():
        result["torch"] = torch.__version__
        result["torch_resnet20_ms"] = median_ms(lambda: model(x), rounds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(args.threads))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    result = {}
    time_onnxruntime(args.file, args.threads, args.rounds, result)
    time_torch(args.threads, args.batch, args.rounds, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
