#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks what `halfscope report --junit --sarif` writes with an XML parser and the official schema of SARIF 2.1.0.

The schema (OASIS, sarif-schema-2.1.0.json) is named by HALFSCOPE_SARIF_SCHEMA; without it, only the parts of SARIF that
GitHub requires are checked, and the test says so. Also holds docs/gate.schema.json against what the program accepts.

Usage: gate_formats.py --program HALFSCOPE
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
GATE = {"schema": "halfscope.gate/1", "rules": [
    {"name": "forward <&\"'> \u00e9", "role": "activation", "overflow": 0.001},
    {"name": "distance", "role": "activation", "error": 0, "ulps": 1e6},
    {"name": "steps", "skipped_steps": 0.1},
    {"name": "updates", "lost_updates": 1},
    {"name": "problems", "fail_on": "info", "lane": "*"}]}
# Members of rules, and whether they make a valid gate.
RULES = [({"overflow": 0}, True), ({"overflow": 1.5}, False), ({"overflow": -1}, False), ({"path": "*"}, False),
         ({"ulps": 12.5, "path": "*", "name": "x"}, True), ({"fail_on": "high"}, False), ({"findings": []}, False),
         ({"findings": ["forward_overflow"], "fail_on": "error"}, True), ({"role": "activations", "ulps": 0}, False),
         ({"skipped_steps": 1, "unknown": 1}, False), ({"error": "0"}, False), ({"name": "", "ulps": 1}, False)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    program = pathlib.Path(parser.parse_args().program).resolve()
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            return subprocess.run([program, *words], cwd=folder, text=True, capture_output=True)

        def gate(value):
            pathlib.Path(folder, "gate.json").write_text(json.dumps(value, indent=1), encoding="utf-8")

        for model, name in (("lenet-hot", "hot.hscope"), ("lenet", "cool.hscope")):
            done = run("train", "--model", model, "--batch", "16", "--steps", "6", "--no-eval", "--quiet", "--lanes",
                       "float32,mixed_float16", "--out", name)
            assert done.returncode == 0, done.stderr
        gate(GATE)
        validator = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/gate.schema.json").read_text()))
        validator.validate(GATE)
        schema = os.environ.get("HALFSCOPE_SARIF_SCHEMA", "")
        for more in ([], ["--baseline", "cool.hscope"], ["--baseline", "hot.hscope"]):
            done = run("report", "hot.hscope", "--gate", "gate.json", *more, "--junit", "gate.xml", "--sarif",
                       "gate.sarif", "--json", "report.json", "--force")
            expected = 0 if "hot.hscope" in more else 1
            assert done.returncode == expected, (more, done)
            result = json.loads(pathlib.Path(folder, "report.json").read_text())["gate"]
            assert result["results"], "an overflowing run has violations"
            check_junit(pathlib.Path(folder, "gate.xml"), result)
            sarif = json.loads(pathlib.Path(folder, "gate.sarif").read_text())
            check_sarif(sarif, result)
            if schema:
                rules = json.loads(pathlib.Path(schema).read_text())
                jsonschema.validators.validator_for(rules)(rules).validate(sarif)
            report = json.loads((ROOT / "docs/report.schema.json").read_text())
            jsonschema.Draft202012Validator(report).validate(json.loads(pathlib.Path(folder, "report.json").read_text()))
        for rule, valid in RULES:
            value = {"schema": "halfscope.gate/1", "rules": [rule]}
            gate(value)
            code = run("report", "cool.hscope", "--gate", "gate.json").returncode
            assert (code != 2) == valid == validator.is_valid(value), (rule, code)
    print("SARIF is valid by the official schema" if schema else
          "skipped: the official SARIF schema, because HALFSCOPE_SARIF_SCHEMA does not name it")


def check_junit(file, result):
    root = xml.etree.ElementTree.parse(file).getroot()
    assert root.tag == "testsuites"
    cases = list(root.iter("testcase"))
    assert int(root.get("tests")) == len(cases) == sum(int(each.get("tests")) for each in root)
    assert all(case.get("classname") and case.get("name") for case in cases)
    keys = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(keys)) == len(keys)
    failures = list(root.iter("failure"))
    assert int(root.get("failures")) == len(failures) == sum(int(each.get("failures")) for each in root)
    lines = [line for each in failures for line in each.text.splitlines()]
    failed = [each for each in result["results"] if each["state"] == "failed"]
    assert len(failed) == result["violations"]
    for each in failed:
        where = f"{each['site']}: " if each["site"] else ""
        assert where + each["text"] in lines, each
    if failed:
        assert GATE["rules"][0]["name"] + ": conv2" in {case.get("name") for case in cases}


def check_sarif(sarif, result):
    """The properties that GitHub's code scanning requires."""
    assert sarif["version"] == "2.1.0"
    run, = sarif["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) == result["violations"] + result["known"]
    prints = set()
    for each in run["results"]:
        assert rules[each["ruleIndex"]] == each["ruleId"]
        assert each["message"]["text"]
        place = each["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "gate.json"
        assert place["region"]["startLine"] > 1
        prints.add(each["partialFingerprints"]["halfscopeSite/v1"])
    assert prints or not run["results"]


if __name__ == "__main__":
    sys.exit(main())
