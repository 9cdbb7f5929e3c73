"""How cost grows: training against context, parameters and threads, ingest against rows; with the fitted exponents.

    python3 bench/growth.py [context] [parameters] [threads] [rows] [--short] [--target FOLDER]

A fit is a line through the logarithms by least squares: cost ~ size ^ exponent. Times are processor seconds, which other
work on the machine moves less, and wall seconds beside them. Writes bench/results/growth.json and prints the tables.
"""
import argparse
import json
import math
import random
import sys

import models
import run as driver
from measure import Run
from parts import Where
from table import figure, median

# Layers, width and inner width; heads of 64 and a vocabulary of 4,096.
SHAPES = [(2, 128, 256), (4, 192, 512), (6, 384, 1024), (8, 512, 1536), (12, 768, 2048), (16, 1024, 2816), (26, 1280, 3584)]


def shape(layers, width, inner):
    """About three query heads on a key head, as in the shape that the other measurements have."""
    heads = width // 64
    keys = max([number for number in range(1, heads // 3 + 1) if heads % number == 0], default=1)
    return {**models.MEDIUM, "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner,
            "num_attention_heads": heads, "num_key_value_heads": keys}


def config(where, name, shape, positions):
    path = where.work / f"{name}.json"
    path.write_text(json.dumps(models.config(shape, positions)))
    return path


def step(where, path, size, steps, threads=None):
    """Wall and processor seconds of a step, its memory, and the model's parameters."""
    environment = {"MIMALLOC_PURGE_DELAY": "-1", **({"RAYON_NUM_THREADS": str(threads)} if threads else {})}
    run = Run([where.release / "examples/step", path, str(steps), "", size], environment, 400)
    units = run.units(1)
    parameters = int(run.lines[0][0].split()[0])
    return {"seconds": median([seconds for seconds, _ in units]), "processor": median([spent for _, spent in units]),
            "peak_mib": run.peak_mib, "parameters": parameters}


def context(where):
    path = config(where, "growth-context", models.MEDIUM, 16_384)
    sizes = [512, 1024, 2048] if where.short else [512, 1024, 2048, 4096, 8192, 16_384]
    return [{"size": size, **step(where, path, f"1x{size}", 4 if size <= 2048 else 3)} for size in sizes]


def parameters(where):
    points = []
    for sizes in SHAPES[:3] if where.short else SHAPES:
        path = config(where, "growth-parameters", shape(*sizes), 512)
        point = step(where, path, "1x512", 4)
        points.append({"size": point["parameters"], **point})
    return points


def threads(where):
    path = config(where, "growth-threads", models.MEDIUM, 512)
    return [{"size": number, **step(where, path, "4x512", 4, number)} for number in (1, 2)]


def rows(where):
    """Ingest of so many trajectories, and curation with every rule of what came out."""
    points = []
    for size in (1_000, 10_000) if where.short else (10_000, 100_000, 1_000_000, 10_000_000):
        logs, ingested, curated = (where.fresh(f"growth-{name}") for name in ("logs", "ingested", "curated"))
        logs.mkdir()
        random.seed(1)
        with open(logs / "logs.jsonl", "w") as out:
            out.writelines(map(short_trajectory, range(size)))
        megabytes = (logs / "logs.jsonl").stat().st_size / 1e6
        ingest = where.ours("worldloom", "ingest", logs, "--out", ingested, limit=3600)()
        where.fresh("growth-logs")
        curate = where.ours("worldloom", "curate", "--trajectories", ingested, "--out", curated,
                            "--config", where.root / "configs/curate/full.toml", limit=7200)()
        for work, run in (("ingest", ingest), ("curate", curate)):
            point = {"size": size, "seconds": run.seconds, "processor": run.processor, "peak_mib": run.peak_mib}
            print(f"{work} of {size:,} trajectories, {megabytes:,.0f} MB: {point}", flush=True)
            points.append({"work": work, "input_mb": megabytes, **point})
    for name in ("logs", "ingested", "curated"):
        where.fresh(f"growth-{name}")
    return points


def short_trajectory(number):
    """A line of chat messages: a task and three calls. Words are random, so that no trajectory is another's duplicate."""
    turns = "".join(
        f',{{"role":"assistant","content":"{random.randbytes(12).hex(" ", 3)}","tool_calls":[{{"id":"call-{turn}",'
        f'"type":"function","function":{{"name":"bash","arguments":"{{\\"command\\": \\"cat {random.randbytes(6).hex()}.txt\\"}}"}}}}]}},'
        f'{{"role":"tool","tool_call_id":"call-{turn}","content":"{random.randbytes(36).hex(" ", 3)}"}}'
        for turn in range(3))
    return f'{{"messages":[{{"role":"user","content":"Task {number}: find {random.randbytes(4).hex()}."}}{turns}]}}\n'


def exponent(points, key):
    """The slope of the line through the logarithms."""
    xs, ys = ([math.log(point[name]) for point in points] for name in ("size", key))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def main():
    curves = {"context": context, "parameters": parameters, "threads": threads, "rows": rows}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("curves", nargs="*", choices=[[], *curves], metavar="CURVE")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--target")
    arguments = parser.parse_args()
    where = Where(driver.ROOT, driver.programs(arguments.target), sys.executable, arguments.short)
    driver.RESULTS.mkdir(exist_ok=True)
    path = driver.RESULTS / "growth.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for curve in arguments.curves or curves:
        of_work = {}
        for point in curves[curve](where):
            of_work.setdefault(point.pop("work", curve), []).append(point)
        for name, points in of_work.items():
            results[name] = told(name, points)
            path.write_text(json.dumps(results, indent=1) + "\n")


def told(name, points):
    """The table of a curve, printed, and what is kept of it."""
    fits = {key: exponent(points, key) for key in ("processor", "seconds", "peak_mib")}
    print(f"| {name} | seconds | processor, s | peak, MiB |\n|---|---|---|---|")
    for point in points:
        print(f"| {point['size']:,} | {figure(point['seconds'])} | {figure(point['processor'])} | {figure(point['peak_mib'])} |")
    print(f"| exponent | {fits['seconds']:.2f} | {fits['processor']:.2f} | {fits['peak_mib']:.2f} |\n", flush=True)
    return {"machine": driver.machine(), "points": points, "exponents": fits}


if __name__ == "__main__":
    main()
