# SPDX-License-Identifier: MIT
"""The files of tests/onnx/training_test.cpp: small exports and how PyTorch trains them.

The archive has `NETWORK.VARIANT.onnx`, `NETWORK/INPUT.npy` (eight samples, with labels or targets)
and `training.json`: for every file its loss, rate, the ten losses of SGD and of Adam in float64 and
the elements of each parameter, with those up to the last row that gets a gradient.
"""
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Dict, List

import numpy as np
import onnx
import torch

import onnx_matrix_torch as side
import onnx_networks
from onnx_network import Network

SAMPLES = 2 * side.BATCH
FILES = {
    "albert": ["dynamo-fixed", "script-training"],
    "bert": ["dynamo-open", "script-open"],
    "class_token_layer_scale": ["dynamo-fixed", "dynamo-one", "script-open"],
    "conv3d": ["dynamo-fixed"],
    "convnext": ["script-open"],
    "einsum_attention": ["script-fixed"],
    "embedding_bag": ["script-fixed"],
    "feature_pyramid": ["dynamo-open"],
    "grid_sample_stn": ["dynamo-fixed"],
    "group_norm": ["dynamo-fixed", "script-fixed"],
    "gru_bidirectional_two_layers": ["dynamo-fixed", "script-open"],
    "hf_vit": ["dynamo-fixed"],
    "llama": ["dynamo-open", "script-fixed"],
    "lstm_language_model_tied": ["dynamo-open", "script-fixed"],
    "mha_masks": ["dynamo-fixed", "script-one"],
    "min_gpt_tied": ["dynamo-one", "script-open"],
    "mlp_batch_norm": ["script-training"],
    "mnasnet": ["script-training"],
    "pixel_shuffle_bicubic": ["dynamo-fixed"],
    "resnet_frozen_bn": ["dynamo-fixed", "script-fixed"],
    "rnn_tanh": ["dynamo-open"],
    "shared_modules": ["dynamo-fixed", "script-fixed", "script-training"],
    "temperature_logit_scale": ["dynamo-open", "script-fixed"],
    "tied_autoencoder": ["dynamo-fixed", "script-open"],
    "transformer_encoder": ["dynamo-open", "script-fixed"],
    "vit_torchvision": ["dynamo-one", "script-open"],
    "weight_norm": ["script-training"],
}


def cycled(net: Network) -> Dict[str, torch.Tensor]:
    """Eight samples that float16 holds exactly, over and over."""
    found = {}
    for name, value in side.samples(net).items():
        value = value[:SAMPLES]
        value = value.half().float() if value.is_floating_point() else value
        found[name] = torch.cat([value] * (side.STEPS // 2))
    return found


def array(value: torch.Tensor, exact_half: bool) -> bytes:
    numbers = value[:SAMPLES].numpy()
    if not value.is_floating_point():
        numbers = numbers.astype(np.int32)
    elif exact_half:
        numbers = numbers.astype(np.float16)
    stream = io.BytesIO()
    np.save(stream, numbers)
    return stream.getvalue()


def without_traces(model: onnx.ModelProto) -> bytes:
    """Without the exporter's stack traces, which say where on a disk PyTorch lies."""
    def clean(graph) -> None:
        for node in graph.node:
            node.doc_string = ""
            kept = [each for each in node.metadata_props if "stack_trace" not in each.key]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    clean(attribute.g)
    clean(model.graph)
    for function in model.functions:
        clean(function)
    return model.SerializeToString()


def write(target: Path) -> None:
    torch.set_num_threads(1)
    networks = onnx_networks.all_networks()
    members: Dict[str, bytes] = {}
    cases: List[dict] = []
    for name, variants in FILES.items():
        net = networks[name]
        inputs = cycled(net)
        answer = side.answers(net, inputs)[:SAMPLES]
        if answer.is_floating_point():
            answer = answer.half().float()
        for key, value in inputs.items():
            members[f"{name}/{key}.npy"] = array(value, True)
        members[f"{name}/{'targets' if net.loss == 'mse' else 'labels'}.npy"] = array(answer, True)
        answer = torch.cat([answer] * (side.STEPS // 2))
        model = side.make(net, torch.float64)
        losses = {"sgd": side.train(net, "sgd", torch.float64, inputs, answer, model),
                  "adam": side.train(net, "adam", torch.float64, inputs, answer)}
        trained = side.parameters(model)
        sizes = sorted([each["elements"], each["used"]] for each in trained)
        for how, exact in losses.items():
            gap = side.gap(side.train(net, how, torch.float32, inputs, answer), exact)
            if gap > 1e-5:
                raise SystemExit(f"{name}: float32 and float64 differ by {gap:.1e} under {how}")
        for variant in variants:
            with tempfile.TemporaryDirectory() as temporary:
                side.export_variant(net, variant, Path(temporary), one_file=True)
                said = json.loads((Path(temporary) / "result.json").read_text())
                if not said["exported"]:
                    raise SystemExit(f"{name}/{variant}: {said['error']}")
                bytes_ = without_traces(onnx.load(Path(temporary) / "net.onnx"))
            members[f"{name}.{variant}.onnx"] = bytes_
            cases.append({"network": name, "variant": variant, "loss": net.loss, "lr": net.lr,
                          "packed": net.packed, "sizes": sizes, **losses})
            print(f"{name}.{variant}: {len(bytes_)} bytes")
    members["training.json"] = (json.dumps(cases, indent=1) + "\n").encode("ascii")
    with zipfile.ZipFile(target, "w") as archive:
        for key in sorted(members):
            entry = zipfile.ZipInfo(key, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, members[key], compresslevel=9)
    print(f"{target}: {len(cases)} files, {target.stat().st_size} bytes")
