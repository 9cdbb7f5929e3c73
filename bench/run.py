"""worldloom beside the Python stack: one sitting, interleaved, on the same data, weights and number of threads.

    python3 bench/run.py [PART…] [--short] [--rounds N] [--minutes N] [--python PROGRAM] [--target FOLDER]

Parts: roofline step grpo generate sft start ingest render checkpoint; all unless some are named. Each round runs every side
of a case once, one after the other. `--short` is for a look: one round of little work. After `--minutes` no further case
begins. The Python side needs bench/peers/requirements.txt (`--python` says where) and is left out, with a line, where it is
not installed. `--target` names a folder with built programs (release/worldloom, release/examples); without it, cargo builds
them.

Writes bench/results/PART.json and, of all parts measured so far, bench/results/table.md.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time

import measure
import parts
import table

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"


def programs(target):
    """The folder of the release programs, built if need be."""
    if target:
        return pathlib.Path(target) / "release"
    subprocess.run(["cargo", "build", "--release", "--bin", "worldloom", "--examples"], check=True, cwd=ROOT)
    metadata = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], check=True, cwd=ROOT,
                              capture_output=True, text=True)
    return pathlib.Path(json.loads(metadata.stdout)["target_directory"]) / "release"


def sitting(case, rounds):
    """Every side once a round. A side that fails is left out from then on, and says why."""
    sides = {name: {"seconds": [], "processor": []} for name in case.sides}
    for number in range(rounds):
        for name, side in case.sides.items():
            result = sides[name]
            if "failed" in result or number >= side.rounds:
                continue
            try:
                run = side.run()
                for seconds, processor in side.units(run):
                    result["seconds"].append(seconds)
                    result["processor"].append(processor)
                result["work"] = side.work(run) if callable(side.work) else side.work
                result["peak_mib"] = max(run.peak_mib or 0, result.get("peak_mib", 0))
                result.update(side.facts(run))
            except measure.Failed as failure:
                result["failed"] = str(failure)
            print(f"{case.name}, {name}, round {number + 1}: {told(result)}", flush=True)
    return {"name": case.name, "unit": case.unit, "sides": sides, "agreement": case.agreement(sides)}


def told(result):
    if "failed" in result:
        return result["failed"]
    return f"{table.spread(result['seconds'])} s, processor {table.figure(table.median(result['processor']))} s"


def machine():
    with open("/proc/cpuinfo") as cpuinfo:
        model = next((line.split(": ")[1].strip() for line in cpuinfo if line.startswith("model name")), platform.processor())
    revision = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {"processor": model, "threads": os.cpu_count(), "revision": revision.stdout.strip(), "system": platform.release()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *parts.PARTS], metavar="PART")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--target")
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    where = parts.Where(ROOT, programs(arguments.target), arguments.python, arguments.short)
    end = time.time() + 60 * arguments.minutes
    rounds = arguments.rounds or (1 if arguments.short else 3)
    for name in arguments.parts or parts.PARTS:
        load, began = os.getloadavg()[0], time.time()
        cases = [sitting(case, rounds) for case in parts.PARTS[name](where) if time.time() < end]
        if time.time() >= end:
            print(f"{name}: the time is over")
        if not cases:
            continue
        result = {"part": name, "short": arguments.short, "load_at_start": load, "took_s": round(time.time() - began),
                  "machine": machine(), "versions": where.versions(), "cases": cases}
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    found = [RESULTS / f"{name}.json" for name in parts.PARTS]
    cases = [case for path in found if path.exists() for case in json.loads(path.read_text())["cases"]]
    text = table.of_cases(cases)
    (RESULTS / "table.md").write_text(text)
    print(text, end="")
    disagreeing = [f"{case['name']}: {case['agreement']}" for case in cases if str(case["agreement"]).startswith("DIFFER")]
    sys.exit("\n".join(disagreeing) or 0)


if __name__ == "__main__":
    main()
