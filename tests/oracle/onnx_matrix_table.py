# SPDX-License-Identifier: MIT
"""Verdicts and tables of onnx_matrix.py."""
import re
from collections import Counter, defaultdict
from typing import Callable, Dict, List, Optional

AGREES, SAME, CHAOTIC = 1e-5, 1e-4, 1e-5
# Requirements of --check, in percent.
WANTED = {"agrees": 95, "sgd": 90, "adam": 90, "names": 95}
Verdict = Optional[bool]


def empty() -> dict:
    return {"exported": True, "imports": False, "error": "", "outputs": None, "sgd": None,
            "adam": None, "variables": None, "elements": None, "same_elements": False,
            "names": None, "notes": [], "doubtful": [], "folded": 0, "torch_gap": None,
            "moves": None}


def agrees(result: dict) -> Verdict:
    if not result["exported"]:
        return None
    return result["imports"] and result["outputs"] is not None and result["outputs"] <= AGREES


def trains(how: str) -> Callable[[dict], Verdict]:
    """None where the question has no answer: not exported, or batch norms are folded."""
    def judge(result: dict) -> Verdict:
        if not result["exported"] or result["folded"]:
            return None
        return result[how] is not None and result[how] <= SAME
    return judge


def counts(result: dict) -> Verdict:
    if not result["exported"] or result["folded"]:
        return None
    if result["elements"] is None:
        return False
    return result["same_elements"]


def names(result: dict) -> Optional[float]:
    if not result["exported"] or result["folded"]:
        return None
    return result["names"] or 0.0


def folded_reported(result: dict) -> bool:
    return any("batch norm" in str(note).lower() for note in result["notes"] + result["doubtful"])


def silent(result: dict) -> bool:
    """Trains otherwise than in PyTorch without a word. Folded batch norms need a word of them."""
    if not result["exported"] or result["sgd"] is None:
        return False
    if result["folded"]:
        return not folded_reported(result)
    worst = max(result["sgd"], result["adam"] or 0.0)
    chaos = (result["torch_gap"] or 0.0) > CHAOTIC
    return worst > SAME and not chaos and not result["notes"] and not result["doubtful"]


def number(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.0e}"


def line(result: dict) -> str:
    """One file's progress line."""
    name = f"{result['network']}/{result['variant']}"
    if not result["exported"]:
        return f"{name}: not exported: {result['error'][:100]}"
    if not result["imports"]:
        return f"{name}: FAILED: {result['error']}"
    words = [f"outputs {number(result['outputs'])}"]
    if result["folded"]:
        words.append(f"{result['folded']} batch norms folded by the exporter"
                     + ("" if folded_reported(result) else ", NOT REPORTED"))
    words += [f"sgd {number(result['sgd'])}", f"adam {number(result['adam'])}"]
    if result["variables"]:
        words.append("variables {}/{}".format(*result["variables"]))
        if result["elements"][0] != result["elements"][1]:
            words.append("elements {}/{}".format(*result["elements"]))
        words.append(f"names {100 * result['names']:.0f}%")
    bad = not agrees(result) or False in (trains("sgd")(result), trains("adam")(result),
                                          counts(result))
    if result["error"]:
        words.append(result["error"])
    return f"{name}: {'DIFFERS: ' if bad else ''}{', '.join(words)}" + (
        " SILENT" if silent(result) else "")


def percent(values: List[Optional[float]]) -> str:
    known = [float(value) for value in values if value is not None]
    if not known:
        return "-"
    return f"{100 * sum(known) / len(known):.0f}% ({sum(known):.0f}/{len(known)})"


COLUMNS = (("imports and agrees to 1e-5", agrees), ("10 SGD steps", trains("sgd")),
           ("10 Adam steps", trains("adam")), ("variable counts", counts))


def names_percent(results: List[dict]) -> str:
    known = [value for value in map(names, results) if value is not None]
    return f"{100 * sum(known) / len(known):.0f}%" if known else "-"


def summary(results: List[dict], key: str, order: List[str]) -> List[str]:
    lines = [f"| {key} | files | " + " | ".join(title for title, _ in COLUMNS)
             + " | names | batch norms folded (reported) | silent differences |",
             "| --- | ---: |" + " ---: |" * (len(COLUMNS) + 3)]
    for group in [*order, "all"]:
        rows = [r for r in results if group in ("all", r[key])]
        exported = [r for r in rows if r["exported"]]
        folded = [r for r in exported if r["folded"]]
        cells = [percent([judge(r) for r in rows]) for _, judge in COLUMNS]
        lines.append(f"| {group} | {len(exported)} of {len(rows)} | " + " | ".join(cells)
                     + f" | {names_percent(rows)} | {len(folded)} "
                     f"({sum(map(folded_reported, folded))}) | {sum(map(silent, rows))} |")
    return lines


def shape_of(error: str) -> str:
    """An error without the names and numbers that differ from file to file."""
    error = re.sub(r"'[^']*'", "'...'", error)
    error = re.sub(r"\[[-\d, x]*\]", "[...]", error)
    return re.sub(r"\d+", "N", error)


def failures(results: List[dict]) -> List[str]:
    groups: Dict[str, List[dict]] = defaultdict(list)
    for result in results:
        if result["exported"] and result["error"]:
            groups[shape_of(result["error"])].append(result)
    lines = []
    for text, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        nets = Counter(member["network"] for member in members)
        lines.append(f"- **{len(members)} files, {len(nets)} networks**: `{text}`  ")
        lines.append(f"  for example `{members[0]['network']}/{members[0]['variant']}`: "
                     f"{members[0]['error']}  ")
        lines.append("  networks: " + ", ".join(f"{name} x{count}" if count > 1 else name
                                                for name, count in sorted(nets.items())))
    return lines


def by_network(results: List[dict], bad: Callable[[dict], bool],
               say: Callable[[dict], str]) -> List[str]:
    groups: Dict[str, List[str]] = defaultdict(list)
    for result in results:
        if bad(result):
            groups[result["network"]].append(f"{result['variant']} {say(result)}")
    return [f"- {name}: " + "; ".join(said) for name, said in groups.items()] or ["- none"]


def differs(result: dict) -> bool:
    return False in (trains("sgd")(result), trains("adam")(result)) and result["adam"] is not None


def losses(result: dict) -> str:
    words = f"sgd {number(result['sgd'])}, adam {number(result['adam'])}"
    in_double = [number(result[k]) for k in ("sgd64", "adam64") if k in result]
    if in_double:
        words += f" (float64 lane {', '.join(in_double)})"
    return words + (" silent" if silent(result) else "")


def report(results: List[dict]) -> str:
    variants = list(dict.fromkeys(r["variant"] for r in results))
    families = list(dict.fromkeys(r["family"] for r in results))
    networks = {r["network"]: r for r in results}
    chaotic = sorted({f"{r['network']} ({r['torch_gap']:.0e})" for r in results
                      if (r["torch_gap"] or 0) > CHAOTIC})
    still = sorted({f"{r['network']} ({r['moves']:.0e})" for r in results
                    if r["moves"] is not None and r["moves"] < 5e-3})
    lines = [f"# {len(networks)} networks, {len(results)} exports", "", "## By variant",
             *summary(results, "variant", variants), "", "## By family",
             *summary(results, "family", families), "",
             "A file trains the same if all ten losses are within 1e-4 of PyTorch's in float32. "
             "Files whose batch norms the exporter folded count in the first column only.", "",
             "Networks whose losses differ by more than 1e-5 between float32 and float64 in "
             f"PyTorch itself: {', '.join(chaotic) or 'none'}.",
             "Networks whose ten SGD steps move the losses by less than 5e-3: "
             f"{', '.join(still) or 'none'}.",
             "", "## Errors", *(failures(results) or ["- none"]),
             "", "## Outputs that differ",
             *by_network(results, lambda r: r["imports"] and not agrees(r),
                         lambda r: number(r["outputs"])),
             "", "## Trains differently", *by_network(results, differs, losses),
             "", "## Other numbers of variables or elements",
             *by_network(results, lambda r: counts(r) is False and r["elements"] is not None,
                         lambda r: "variables {}/{}".format(*r["variables"])
                         + ", elements {}/{}".format(*r["elements"])),
             "", "## Names missed",
             *by_network(results, lambda r: r["names"] is not None and (names(r) or 1.0) < 1.0
                         or (names(r) == 0.0 and r["elements"] is not None),
                         lambda r: f"{100 * r['names']:.0f}%"),
             "", "## Folded batch norms that are not reported",
             *by_network(results, lambda r: bool(r["folded"]) and r["sgd"] is not None
                         and not folded_reported(r), lambda r: str(r["folded"])),
             "", "## Not exported",
             *by_network(results, lambda r: not r["exported"], lambda r: r["error"][:80]), ""]
    return "\n".join(lines)


def missed(results: List[dict]) -> List[str]:
    """The thresholds of --check that are not met."""
    found = []
    judges = {"agrees": agrees, "sgd": trains("sgd"), "adam": trains("adam"), "names": names}
    for what, judge in judges.items():
        known = [float(value) for value in map(judge, results) if value is not None]
        share = 100 * sum(known) / max(len(known), 1)
        if share < WANTED[what]:
            found.append(f"{what} {share:.1f}% of {WANTED[what]}%")
    quiet = [f"{r['network']}/{r['variant']}" for r in results if silent(r)]
    if quiet:
        found.append(f"{len(quiet)} silent differences: {', '.join(quiet[:20])}")
    return found
