# SPDX-License-Identifier: MIT
"""Checks that networks exported from PyTorch import, compute and train as in PyTorch.

    onnx_matrix.py --program build/bin/halfscope [--only GLOB] [--variants A,B] [--work FOLDER]
                   [--out table.md] [--json results.json] [--check]
    onnx_matrix.py --write-files tests/onnx/files/training.zip

Small fresh networks (onnx_networks.py) are exported by both exporters with a batch of four, with
an open batch and with one sample, and by the older one in training mode. Each file is imported,
its outputs are compared with PyTorch's, and it is trained for ten steps of SGD and ten of Adam on
the same batches of four. A file "trains the same" if no loss differs by more than 1e-4 of
PyTorch's in float32. Exports and PyTorch's results are kept in the work folder, by network and
variant: a second run with the same folder runs HalfScope only, and several may share it. Delete a
network's folder there after changing the network.
"""
import argparse
import fnmatch
import json
import multiprocessing
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import numpy as np

import onnx_matrix_table as table
import onnx_matrix_torch as side
import onnx_networks
from onnx_network import Network

EXPORT_SECONDS, PROGRAM_SECONDS = 900, 120


def call(program: str, *arguments: object) -> Tuple[int, str, str]:
    try:
        done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, check=False, timeout=PROGRAM_SECONDS,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return 124, "", f"error: longer than {PROGRAM_SECONDS} s"
    return done.returncode, done.stdout, done.stderr


def error_of(code: int, text: str, file: Path) -> str:
    """The error's line without the file's name, or how the program ended."""
    for line in text.splitlines():
        if line.startswith(("error:", "halfscope:")) or ("cannot" in line and "note:" not in line):
            return line.replace(str(file), "FILE").replace(str(file.parent), "FOLDER").strip()
    return f"exit code {code}: {text.strip().splitlines()[-1] if text.strip() else 'no message'}"


def notes_of(text: str) -> List[str]:
    """Returns the program's notes about the conversion: `note: FILE: TEXT`."""
    found = []
    for line in text.splitlines():
        if line.startswith("note: "):
            found.append(re.sub(r"^note: (\S+\.onnx: )?", "", line))
    return found


def losses_of(run: Path) -> List[float]:
    with sqlite3.connect(run) as database:
        rows = database.execute("SELECT loss FROM steps WHERE lane = 0 ORDER BY step").fetchall()
    return [float("nan") if loss is None else loss for (loss,) in rows]


def train(program: str, net: Network, file: Path, scratch: Path, how: str, lane: str = "float32",
          ) -> Tuple[str, List[float], List[str]]:
    """An error or "", the losses, and the notes; weights go to w.npz in `scratch`."""
    optimizer = f"sgd:lr={net.lr}" if how == "sgd" else f"adam:lr={side.ADAM_RATE}"
    run = scratch / "run.hscope"
    code, _, text = call(program, "train", "--model", file, "--loss", net.loss, "--data",
                         file.parent.parent / "data.npz", "--lanes", lane, "--optimizer",
                         optimizer, "--batch", side.BATCH, "--steps", side.STEPS, "--no-shuffle",
                         "--no-record", "--no-eval", "--save-weights", scratch / "w.npz",
                         "--force", "--quiet", "--out", run)
    if code != 0:
        return error_of(code, text, file), [], notes_of(text)
    return "", losses_of(run), notes_of(text)


def variables(program: str, file: Path, scratch: Path) -> Tuple[List[dict], List[dict], List[str]]:
    """Trained variables (name, elements, other names), what is doubtful, and notes."""
    code, out, _ = call(program, "inspect", file, "--json")
    if code == 0:
        said = json.loads(out)
        if said.get("schema", "").startswith("halfscope.network/"):
            found = [{"names": [each["name"], *each.get("tied", [])],
                      "elements": each["elements"]} for each in said["parameters"]]
            return found, said.get("doubtful", []), said.get("notes", [])
    found = []
    with np.load(scratch / "w.npz") as archive:
        for name in archive.files:
            if not name.endswith((".running_mean", ".running_var")):
                found.append({"names": [name.replace("/", ".").strip(".")],
                              "elements": int(archive[name].size)})
    return found, [], []


def layer(name: str) -> str:
    return name.rpartition(".")[0]


def named(expected: List[dict], found: List[dict]) -> float:
    """The share of PyTorch's parameters that are listed under the path of their module."""
    left, right = list(found), 0
    for parameter in expected:
        for each in left:
            # A parameter of the network itself has no module: its own name is asked for.
            fits = any(ours == theirs or (layer(theirs) and layer(ours) == layer(theirs))
                       for ours in each["names"] for theirs in parameter["names"])
            if fits and each["elements"] in (parameter["elements"], parameter.get("used")):
                left.remove(each)
                right += 1
                break
    return right / max(len(expected), 1)


def same_elements(expected: List[dict], found: List[dict]) -> bool:
    """Whether every parameter has a variable of its size. An exporter that knows which rows of a
    table are read, such as the first positions, writes only those: they are all that trains."""
    left = [each["elements"] for each in found]
    for parameter in sorted(expected, key=lambda each: each["elements"]):
        size = parameter["elements"] if parameter["elements"] in left else parameter.get("used")
        if size not in left:
            return False
        left.remove(size)
    return not left


def packed_names(expected: List[dict], found: List[dict]) -> float:
    """The same where a recurrent layer's tensors hold several parameters: by path alone."""
    paths = {layer(name) for each in found for name in each["names"]}
    right = sum(any(layer(name) in paths for name in each["names"]) for each in expected)
    return right / max(len(expected), 1)


def measure(program: str, net: Network, folder: Path, variant: str, scratch: Path) -> dict:
    """All that is asked of one file."""
    result = {"variant": variant, "family": net.family, **table.empty()}
    at = folder / variant
    export = json.loads((at / "result.json").read_text()) if (at / "result.json").exists() else {
        "exported": False, "error": "time limit"}
    if not (folder / "torch.json").exists():
        export = {"exported": False, "error": "PyTorch itself did not train it"}
    result["exported"] = export["exported"]
    if not export["exported"]:
        result["error"] = export["error"]
        return result
    torch_side = json.loads((folder / "torch.json").read_text())
    result["torch_gap"] = max(side.gap(torch_side[how], torch_side[how + "64"])
                              for how in ("sgd", "adam"))
    result["moves"] = side.gap(torch_side["sgd64"], torch_side["still"])
    result["folded"] = max(0, torch_side["batch_norms"] - export["batch_norms"])
    file = at / "net.onnx"
    code, _, text = call(program, "run", file, "--input", folder / "input.npz", "--batch",
                         side.BATCH, "--lanes", "float32", "--out", scratch / "y.npz",
                         "--force", "--quiet")
    result["notes"] = notes_of(text)
    if code != 0:
        result["error"] = error_of(code, text, file)
        return result
    result["imports"] = True
    with np.load(scratch / "y.npz") as archive:
        ours = archive[archive.files[0]].astype(np.float64)
    theirs = np.load(at / "expected.npy").astype(np.float64)
    if ours.shape == theirs.shape and np.isfinite(ours).all():
        result["outputs"] = float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))
    for how in ("sgd", "adam"):
        error, losses, notes = train(program, net, file, scratch, how)
        result["notes"] += [note for note in notes if note not in result["notes"]]
        if error:
            result["error"] = error
            return result
        result[how] = side.gap(losses, torch_side[how])
        if result[how] > table.SAME and not result["folded"]:
            # Beside float64, chaos is told from a mistake.
            error, losses, _ = train(program, net, file, scratch, how, "float64")
            result[how + "64"] = side.gap(losses, torch_side[how + "64"])
    found, result["doubtful"], notes = variables(program, file, scratch)
    result["notes"] += [note for note in notes if note not in result["notes"]]
    expected = torch_side["parameters"]
    result["variables"] = [len(found), len(expected)]
    result["elements"] = [sum(each["elements"] for each in group) for group in (found, expected)]
    result["same_elements"] = (result["elements"][0] == result["elements"][1] if net.packed
                               else same_elements(expected, found))
    result["names"] = (packed_names if net.packed else named)(expected, found)
    return result


def measure_network(program: str, net: Network, folder: Path, variants: List[str],
                    scratch: Path) -> None:
    results = []
    scratch.mkdir()
    for variant in variants:
        try:
            results.append(measure(program, net, folder, variant, scratch))
        except Exception as error:  # a mistake of this script should not stop the others
            results.append({"variant": variant, "family": net.family, **table.empty(),
                            "error": ascii(f"onnx_matrix.py: {type(error).__name__}: {error}")})
    side.write_json(scratch / "measured.json", results)


def run_all(networks: Dict[str, Network], variants: List[str], options) -> List[dict]:
    """Networks side by side, each in a process of its own: first PyTorch, then HalfScope."""
    context = multiprocessing.get_context("fork")
    waiting = [(name, "export") for name in networks]
    running: List[tuple] = []
    results: List[dict] = []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name, stage = waiting.pop(0)
            folder, net = options.work / name, networks[name]
            meant = [v for v in variants if fnmatch.fnmatch(v, net.variants)]
            if stage == "export":
                process = context.Process(target=side.work, args=(net, folder, meant))
            else:
                process = context.Process(target=measure_network, args=(
                    options.program, net, folder, meant, options.scratch / name))
            process.start()
            running.append((process, name, stage, time.monotonic()))
        time.sleep(0.02)
        for each in list(running):
            process, name, stage, begun = each
            late = stage == "export" and time.monotonic() - begun > options.seconds
            if late:
                process.kill()
            if process.is_alive() and not late:
                continue
            process.join()
            running.remove(each)
            if stage == "export":
                waiting.insert(0, (name, "measure"))
                continue
            for result in json.loads((options.scratch / name / "measured.json").read_text()):
                result["network"] = name
                results.append(result)
                print(table.line(result), flush=True)
    return results


def chosen(options) -> Tuple[Dict[str, Network], List[str]]:
    networks = onnx_networks.all_networks()
    if options.only:
        globs = options.only.split(",")
        networks = {name: net for name, net in networks.items()
                    if any(fnmatch.fnmatch(name, g) or net.family == g for g in globs)}
    variants = [v for v in side.VARIANTS
                if not options.variants or any(fnmatch.fnmatch(v, g)
                                               for g in options.variants.split(","))]
    if not networks or not variants:
        sys.exit("no such network or variant")
    return networks, variants


def main(arguments: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="halfscope")
    parser.add_argument("--only", help="networks or families, globs separated by commas")
    parser.add_argument("--variants", help="globs separated by commas [all]: "
                        + ", ".join(side.VARIANTS))
    parser.add_argument("--work", type=Path, help="folder for exports and PyTorch's results")
    parser.add_argument("--out", type=Path, help="write the tables here too")
    parser.add_argument("--json", type=Path, help="write every file's results")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=int, default=EXPORT_SECONDS,
                        help="limit for the exports of one network [%(default)s]")
    parser.add_argument("--check", action="store_true", help="exit with 1 below the thresholds")
    parser.add_argument("--list", action="store_true", help="list the networks")
    parser.add_argument("--write-files", type=Path, metavar="ZIP",
                        help="write the files of tests/onnx/training_test.cpp")
    options = parser.parse_args(arguments)
    if options.list:
        for name, net in onnx_networks.all_networks().items():
            print(f"{net.family:6} {name}")
        return
    if options.write_files:
        import onnx_matrix_files
        onnx_matrix_files.write(options.write_files)
        return
    if not options.program:
        parser.error("--program is needed")
    networks, variants = chosen(options)
    with tempfile.TemporaryDirectory() as temporary:
        options.scratch = Path(temporary)
        options.work = options.work or options.scratch / "work"
        options.work.mkdir(parents=True, exist_ok=True)
        results = run_all(networks, variants, options)
    text = table.report(results)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="ascii")
    if options.json:
        side.write_json(options.json, results)
    if options.check:
        missed = table.missed(results)
        for each in missed:
            print(f"missed: {each}")
        if missed:
            sys.exit(1)


if __name__ == "__main__":
    main()
