"""Loads an adapter of ours with peft and compares the logits with those of the model that we merged.

    python3 tests/reference/adapter_logits.py [ADAPTED]
    python3 tests/reference/adapter_logits.py BASE_DIR RUN_DIR

The first form makes adapters beside the golden model of every family; ADAPTED is the built example `adapted` of the model
crate, without it cargo runs it. In the second BASE_DIR is the model that a run started from and RUN_DIR the artifact of
`train` with a `lora` table. `adapter/` is loaded by peft beside the base, `model/` by transformers alone. Experts have no
module of their own in transformers 5: of a mixture of experts all other projections are compared; of Qwen3-Next not those of
the shared expert either, which peft 0.21.2 takes for the experts' and leaves out. Needs torch, transformers and peft; says
so and exits 77 where they are missing. Exits 1 where a logit differs by more than 1e-4, for the hybrids 2e-3.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers peft")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = ["cargo", "run", "--release", "-q", "--example", "adapted", "--"]
ALL = r"self_attn|linear_attn|shared_expert\.|layers\.\d+\.mlp\.(gate|up|down)_proj"
CASES = {
    "qwen2-untied": 1e-4,
    "qwen3-tied": 1e-4,
    "qwen3-untied": 1e-4,
    "qwen3-moe-norm": 1e-4,
    "qwen3-next": 2e-3,
    "qwen3_5-dense": 2e-3,
    "qwen3_5-moe": 2e-3,
}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def compare(name, base, run, tolerance):
    """Whether peft's logits are ours, and that the adapters do something."""
    merged, plain = load(run / "model"), load(base)
    ids = torch.arange(5, 37).unsqueeze(0) % merged.config.vocab_size
    with torch.no_grad():
        before = plain(ids).logits
        adapted = PeftModel.from_pretrained(plain, run / "adapter").eval()(ids).logits
        ours = merged(ids).logits
    difference, effect = (adapted - ours).abs().max().item(), (adapted - before).abs().max().item()
    print(f"{name:18} largest difference {difference:.2e}, tolerance {tolerance:.0e}, the adapters move {effect:.2e}", flush=True)
    return difference <= tolerance < effect


if len(sys.argv) == 3:
    base, run = (pathlib.Path(argument) for argument in sys.argv[1:])
    sys.exit(not compare(run.name, base, run, 1e-4))
example = [str(pathlib.Path(sys.argv[1]).resolve())] if len(sys.argv) > 1 else CARGO
results = []
for case, tolerance in CASES.items():
    base = ROOT / "tests/golden" / case
    with tempfile.TemporaryDirectory() as folder:
        targets = ALL.replace(r"|shared_expert\.", "") if case == "qwen3-next" else ALL
        subprocess.run([*example, str(base), folder, targets], check=True, cwd=ROOT)
        results.append(compare(case, base, pathlib.Path(folder), tolerance))
sys.exit(not all(results))
