"""One CPT training step, ours against PyTorch eager, on the same weights and tokens, interleaved in one sitting.

    python3 bench/peers/cpt_step.py [rounds]

Needs the packages of bench/peers/requirements.txt and says so (exit 77) where they are missing. Each round starts both
programs from the same weights, one after the other; losses must agree. Writes bench/results/cpt_step.json.
"""
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, SEQ, STEPS, WARM = 4, 512, 8, 2
TOLERANCE = 2e-3

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; pip install -r bench/peers/requirements.txt")
    sys.exit(77)


def make_model(folder):
    """12.6 million parameters, as in docs/custom-ops: the shape of the published measurements."""
    config = transformers.Qwen3Config(
        vocab_size=4096, hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6,
        num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-6, max_position_embeddings=SEQ,
        rope_theta=1e6, tie_word_embeddings=False, initializer_range=0.02)
    torch.manual_seed(1)
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)


def tokens():
    return [((i * 2_654_435_761) >> 7) % 4096 for i in range(BATCH * SEQ)]


def peer(folder, kind):
    """Runs in a process of its own, so that peak memory is this side's alone."""
    torch.set_num_threads(os.cpu_count())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    ids = torch.tensor(tokens()).view(BATCH, SEQ)
    for _ in range(STEPS):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bf16"):
            logits = model(ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().view(-1, 4096), ids.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"loss {loss.item():.4f}, all {(time.perf_counter() - start) * 1e3:.0f} ms", flush=True)
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def run(command, environment):
    """Milliseconds and losses of the steps after the first ones, and peak kilobytes."""
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment})
    steps = re.findall(r"loss ([\d.]+),.*all (\d+) ms", out.stdout)
    peak = int(re.search(r"peak (\d+)", out.stdout).group(1))
    return [float(ms) for _, ms in steps[WARM:]], [float(loss) for loss, _ in steps], peak


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    subprocess.run(["cargo", "build", "--release", "-q", "--example", "step"], check=True, cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder)
        ours = ["cargo", "run", "--release", "-q", "--example", "step", "--", folder, str(STEPS)]
        theirs = [sys.executable, __file__, "--peer", folder]
        sides = {
            "worldloom float32": (ours, {"MIMALLOC_PURGE_DELAY": "-1"}),
            "PyTorch eager float32": (theirs + ["float32"], {}),
            "PyTorch bf16 autocast": (theirs + ["bf16"], {}),
        }
        times, losses, peaks = ({name: [] for name in sides} for _ in range(3))
        for _ in range(rounds):
            for name, (command, environment) in sides.items():
                ms, loss, peak = run(command, environment)
                times[name] += ms
                losses[name] = loss
                peaks[name].append(peak)
    first, second = losses["worldloom float32"], losses["PyTorch eager float32"]
    apart = max(abs(a - b) for a, b in zip(first, second))
    if apart > TOLERANCE:
        sys.exit(f"losses differ by {apart}: {first} and {second}")
    base = statistics.median(times["worldloom float32"])
    table = {}
    for name in sides:
        median = statistics.median(times[name])
        table[name] = {
            "median_ms": median,
            "min_ms": min(times[name]),
            "max_ms": max(times[name]),
            "tokens_per_s": BATCH * SEQ / median * 1e3,
            "ours_is_faster_by": median / base,
            "peak_mib": max(peaks[name]) / 1024,
        }
        print(f"{name:24} {median:7.0f} ms ({min(times[name]):.0f}-{max(times[name]):.0f})  "
              f"{median / base:5.2f} x ours  {max(peaks[name]) / 1024:6.0f} MiB")
    result = {"batch": BATCH, "seq": SEQ, "rounds": rounds, "losses_apart": apart, "torch": torch.__version__,
              "transformers": transformers.__version__, "sides": table}
    (ROOT / "bench/results/cpt_step.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], sys.argv[3])
    else:
        main()
