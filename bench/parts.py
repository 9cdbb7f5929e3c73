"""What is measured: for each part its cases, for each case its sides, ours first."""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import models
from measure import Failed, Run

PRELOADS = {"tcmalloc": "libtcmalloc_minimal.so.4", "jemalloc": "libjemalloc.so.2"}
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
LOSSES_APART = 2e-3


@dataclasses.dataclass
class Side:
    """A program, how its units are read, and how much work one of them is."""

    run: Callable[[], Run]
    units: Callable[[Run], list]
    work: float | Callable[[Run], float] | None = None
    rounds: int = 99
    facts: Callable[[Run], dict] = lambda run: {}


@dataclasses.dataclass
class Case:
    """The same work on several sides; without a unit it is no row of the table. `agreement` says whether they computed
    the same; `DIFFER` begins a complaint."""

    name: str
    unit: str
    sides: dict[str, Side]
    agreement: Callable[[dict], str] = lambda sides: ""


class Where:
    """Where programs and data are, and how both sides are started."""

    def __init__(self, root, release, python, short):
        self.root, self.release, self.python, self.short = root, release, python, short
        self.work = root / "runs/bench-work"
        self.work.mkdir(parents=True, exist_ok=True)
        libraries = {name: next((f"{folder}/{file}" for folder in LIBRARIES if os.path.exists(f"{folder}/{file}")), None)
                     for name, file in PRELOADS.items()}
        self.preloads = {name: path for name, path in libraries.items() if path}

    def ours(self, *words, follow=None, limit=300):
        # The program keeps freed memory where it trains, and only there; examples are told to.
        environment = {"MIMALLOC_PURGE_DELAY": "-1"} if words[0].startswith("examples/") else {}
        return lambda: Run([self.release / words[0], *words[1:]], environment, limit, follow)

    def peer(self, name, *words, allocator=None, limit=300):
        preload = {"LD_PRELOAD": self.preloads[allocator]} if allocator else {}
        return lambda: Run([self.python, self.root / "bench/peers" / f"{name}.py", *words], preload, limit)

    def best(self, name, *words, limit=300):
        """A peer with the allocator that PyTorch is fastest with, where there is one."""
        return self.peer(name, *words, allocator=next(iter(self.preloads), None), limit=limit)

    def versions(self):
        run = subprocess.run([self.python, self.root / "bench/peers/versions.py"], capture_output=True, text=True)
        return json.loads(run.stdout) if run.returncode == 0 else {}

    def data(self, step):
        """The folder of a step of bench/data.toml, which is run if need be."""
        name = f"{self.root}/runs/bench"
        if not list(pathlib.Path(name).glob(f"{step}-????????/manifest.json")):
            subprocess.run([self.release / "worldloom", "run", self.root / "bench/data.toml"], check=True, cwd=self.root)
        folders = pathlib.Path(name).glob(f"{step}-????????/manifest.json")
        return max(folders, key=lambda path: path.stat().st_mtime).parent

    def medium(self):
        return models.write(self.work / "medium")

    def smollm2(self):
        folder = self.root / "models/smollm2-135m"
        return folder if folder.exists() else None

    def fresh(self, name):
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder


def ingest(where):
    megabytes = 20 if where.short else 200
    logs = where.work / f"logs-{megabytes}"
    if not logs.exists():
        raw_logs = [sys.executable, where.root / "bench/raw_logs.py", logs, str(megabytes), str(megabytes // 2)]
        subprocess.run(raw_logs, check=True)
    counts = lambda run: {"counts": [run.number("trajectories"), run.number("turns")]}
    ours = lambda: where.ours("worldloom", "ingest", logs, "--out", where.fresh("ingested"))()
    theirs = lambda: where.peer("ingest", logs, where.fresh("ingested-peer"))()
    yield Case("ingest of chat logs", "MB/s", {
        "worldloom": Side(ours, Run.whole, megabytes, facts=counts),
        "json + pyarrow, a process per core": Side(theirs, lambda run: run.after("ready"), megabytes, facts=counts),
    }, same("counts"))


def render(where):
    pools, tokenizer = where.data("curate"), where.data("tokenizer")
    settings = {"stage": '"cpt"', "family": '"compact"', "versions": "[1]", "row_tokens": "1024", "long": '"cut_turns"',
                "pack": "true", "seed": "1", "max_empty_share": "0.05"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    ours = lambda: where.ours("worldloom", "render", "--pools", pools, "--tokenizer", tokenizer, *words, "--out",
                              where.fresh("rows"))()
    counts = lambda run: {"counts": [run.number("trajectories")]}
    yield Case("render, tokenize, pack", "tokens/s", {
        "worldloom": Side(ours, Run.whole, lambda run: run.number("tokens"), facts=counts),
        "TRL and datasets, a process per core": Side(
            where.peer("prepare", pools / "cpt.parquet", tokenizer, 1024), lambda run: run.after("ready"),
            lambda run: run.number("tokens"), 2, counts),
    }, same("counts"))


def step(where):
    losses = lambda run: {"losses": run.losses()}

    def case(name, folder, shape, steps, warm, allocators, with_bf16):
        rows, tokens = map(int, shape.split("x"))
        side = lambda run, rounds=99: Side(run, lambda run: run.units(warm), rows * tokens, rounds, losses)
        sides = {"worldloom float32": side(where.ours("examples/step", folder, steps, "", shape))}
        if multiplies_bf16():
            sides["worldloom bf16"] = side(where.ours("examples/step", folder, steps, "bf16", shape))
        for allocator in allocators:
            name_of = "PyTorch eager float32" + (f", {allocator}" if allocator else "")
            sides[name_of] = side(where.peer("step", folder, "float32", shape, steps, allocator=allocator))
        if with_bf16:
            sides["PyTorch bf16 autocast"] = side(where.best("step", folder, "bf16", shape, warm + 2), 1)
        return Case(name, "tokens/s", sides, losses_agree)

    steps = 4 if where.short else 7
    yield case("CPT step, 12.6 M, 4 x 512", where.medium(), "4x512", steps, 2, [None, *where.preloads], True)
    if where.smollm2():
        best = list(where.preloads)[:1] or [None]
        yield case("CPT step, SmolLM2-135M, 1 x 512", where.smollm2(), "1x512", 3, 1, best, False)


def sft(where):
    model, rows, apart = where.data("medium"), where.data("rows-sft"), where.data("rows-sft-apart")
    steps = 4 if where.short else 10
    config = where.work / "sft.toml"
    config.write_text(
        f"steps = {steps}\nrows_per_step = 4\nrows_per_micro_batch = 1\nmicro_batches_at_once = 2\nseed = 1\n"
        "optimizer = { learning_rate = 1e-4, weight_decay = 0.1, clip_norm = 1.0 }\n"
        'schedule = { shape = "constant", warmup_steps = 0 }\ncheckpoints = { every = 1000, keep = 1 }\n')

    def ours(rows):
        out = where.work / "sft"
        train = where.ours("worldloom", "train", "sft", "--config", config, "--model", model, "--rows", rows, "--out", out,
                           follow=out / "metrics.jsonl")
        return lambda: (where.fresh("sft"), train())[1]

    def trained(run):
        lines = [json.loads(line) for line, _, _ in run.lines if line.startswith('{"step"')][2:]
        return sum(line["trained_tokens"] for line in lines) / len(lines)

    def peer_trained(run):
        counts = [int(line.split("trained ")[1].split()[0]) for line, _, _ in run.lines if "trained " in line][2:]
        return sum(counts) / len(counts)

    first = lambda run: {"first_loss": run.losses()[0]}
    first_of_ours = lambda run: {"first_loss": next(json.loads(line)["loss"] for line, _, _ in run.lines if '"step":1,' in line)}
    # Where steps train other numbers of tokens, the rate is of all steps together.
    peer = lambda kind: Side(where.best("sft", model, apart, 1024, 4, 3 if where.short else 5, kind),
                             lambda run: run.units(2), peer_trained, 1, first)
    yield Case("SFT on recorded trajectories", "trained tokens/s", {
        "worldloom, histories shared": Side(ours(rows), lambda run: run.steps(2), trained, facts=first_of_ours),
        "worldloom, a history per target": Side(ours(apart), lambda run: run.steps(2), trained, 1, first_of_ours),
        "TRL SFTTrainer, packed": peer("packed"),
        "TRL SFTTrainer, padded": peer("padded"),
    }, first_losses_agree)


def generate(where):
    def case(name, folder, prompts, group, prompt_tokens, new_tokens, runs, rounds):
        numbers = [prompts, group, prompt_tokens, new_tokens, runs]
        side = lambda run, rounds=99: Side(run, lambda run: run.units(min(1, runs - 1)), prompts * group * new_tokens, rounds)
        return Case(name, "tokens/s", {
            "worldloom": side(where.ours("examples/generation_speed", folder, *numbers)),
            "transformers.generate": side(where.best("generate", folder, *numbers), rounds),
        })

    for name, folder in (("12.6 M", where.medium()), ("SmolLM2-135M", where.smollm2())):
        if not folder:
            continue
        is_large = folder == where.smollm2()
        new, runs, rounds = (16, 1, 1) if where.short else (32, 2, 1) if is_large else (128, 3, 2)
        yield case(f"generation, {name}, batch 1", folder, 1, 1, 128, new, runs, rounds)
        yield case(f"generation, {name}, batch 8", folder, 8, 1, 128, new, runs, rounds)
        yield case(f"generation, {name}, group of 8 on 2,048 tokens", folder, 1, 8, 2048, new, 1 if is_large else runs, 1)
        greedy = [1, 1, 64, 16, 1, "greedy"]
        tokens = lambda run: {"tokens": run.text().split("tokens [")[1]}
        yield Case(f"greedy tokens, {name}", "", {
            "worldloom": Side(where.ours("examples/generation_speed", folder, *greedy), Run.units, 16, 1, tokens),
            "transformers.generate": Side(where.best("generate", folder, *greedy), Run.units, 16, 1, tokens),
        }, same("tokens"))


def grpo(where):
    for prompt, steps, their_steps in ((1024, 3, 3), (4096, 2, 1)):
        if where.short and prompt > 1024:
            continue
        yield Case(f"GRPO step, group 8, completion 128, prompt {prompt:,}", "completions/s", {
            "worldloom": Side(where.ours("examples/grpo", where.medium(), prompt, "shared", steps),
                              lambda run: run.units(1), 8),
            # One step of a long prompt takes minutes: its first one counts.
            "TRL GRPOTrainer": Side(where.best("trl_grpo", where.medium(), prompt, 8, 128, their_steps, limit=400),
                                    lambda run: run.units(min(1, len(run.units()) - 1)), 8, 1),
        })


def checkpoint(where):
    folder = where.smollm2() or where.medium()
    megabytes = (folder / "model.safetensors").stat().st_size / 1e6
    times = 2 if where.short else 4
    sides = {
        "worldloom": where.ours("examples/checkpoint_memory", "both", folder, times, where.work / "saved"),
        "transformers": where.peer("checkpoint", folder, where.work / "saved-peer", times),
        "read, write": where.peer("disk", folder / "model.safetensors", where.work / "written", times),
    }
    # One run loads and saves: what the first case ran is read again by the second.
    kept = {name: [] for name in sides}

    def first(name):
        kept[name].append(sides[name]())
        return kept[name][-1]

    def again(name):
        if not kept[name]:
            raise Failed("see the load")
        return kept[name].pop(0)

    of = lambda run, name, word: Side(lambda: run(name), lambda run: run.units(1 if word == "load" else 0, word), megabytes, 1)
    yield Case(f"checkpoint of {megabytes:.0f} MB, load", "MB/s", {name: of(first, name, "load") for name in sides})
    kept["read, write"] *= 2
    yield Case(f"checkpoint of {megabytes:.0f} MB, save", "MB/s", {
        **{name: of(again, name, "save") for name in sides}, "write and sync": of(again, "read, write", "synced")})


def start(where):
    model, rows = where.data("base"), where.data("rows-cpt")
    config = where.work / "start.toml"
    config.write_text(
        "steps = 2\nrows_per_step = 2\nrows_per_micro_batch = 1\nmicro_batches_at_once = 2\nseed = 1\n"
        "optimizer = { learning_rate = 2e-3, weight_decay = 0.1, clip_norm = 1.0, muon = {} }\n"
        'schedule = { shape = "constant", warmup_steps = 0 }\ncheckpoints = { every = 1000, keep = 1 }\n')
    out = where.work / "start"
    train = where.ours("worldloom", "train", "cpt", "--config", config, "--model", model, "--rows", rows, "--out", out,
                       follow=out / "metrics.jsonl")
    until = lambda word: lambda run: [next((at, spent) for line, at, spent in run.lines if line.startswith(word))]
    yield Case("process start to the end of the first step", "steps/s", {
        "worldloom": Side(lambda: (where.fresh("start"), train())[1], until('{"step":1,')),
        "PyTorch, transformers": Side(where.peer("start", model, rows, 2), until("loss")),
    })


def roofline(where):
    lines = lambda run: {"lines": run.text().splitlines()}
    yield Case("what the machine can do", "", {
        "products, memory": Side(where.ours("examples/roofline"), Run.whole, rounds=1, facts=lines)})


def same(fact):
    def agreement(sides):
        found = {name: side[fact] for name, side in sides.items() if fact in side}
        if len(found) < 2:
            return "one side only"
        return "the same" if len({str(value) for value in found.values()}) == 1 else f"DIFFER in {fact}: {found}"
    return agreement


def multiplies_bf16():
    """Whether the processor has what our products of bfloat16 are for."""
    with open("/proc/cpuinfo") as cpuinfo:
        return "avx512_bf16" in cpuinfo.read()


def losses_agree(sides):
    """Those of float32, step by step; bf16 may be further away and is only told."""
    found = {name: side["losses"] for name, side in sides.items() if "losses" in side}
    apart = {}
    for name, losses in found.items():
        ours = next(iter(found.values()))
        apart[name] = max(abs(a - b) for a, b in zip(ours, losses))
    bad = {name: difference for name, difference in apart.items() if difference > LOSSES_APART and "bf16" not in name}
    told = ", ".join(f"{name}: {difference:.4f}" for name, difference in list(apart.items())[1:])
    return f"DIFFER in losses: {told}" if bad else f"losses apart by at most {told}" if told else "one side only"


def first_losses_agree(sides):
    """Rows are in another order and untrained models alike on all: the first losses are near each other."""
    losses = {name: side["first_loss"] for name, side in sides.items() if "first_loss" in side}
    near = max(losses.values()) < 1.03 * min(losses.values()) if losses else True
    return f"{'first losses' if near else 'DIFFER in first losses'}: {losses}"


PARTS = {"roofline": roofline, "step": step, "grpo": grpo, "generate": generate, "sft": sft, "start": start,
         "ingest": ingest, "render": render, "checkpoint": checkpoint}
