"""Exports every family's golden model with our program, loads the export with transformers and compares logits.

    python3 tests/reference/families.py [WORLDLOOM [LOGITS]]

WORLDLOOM and LOGITS are the built program and the built example `logits` of the model crate; without them both are run by
cargo. Needs torch, transformers and safetensors; says so and exits 77 where they are missing. Prints the largest
difference for each family, in float32, and exits 1 where one is above its tolerance: 1e-4, and 2e-3 for the hybrids, whose
gated norm divides by a small root mean square.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers safetensors")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = ["cargo", "run", "--release", "-q"]
program = [str(pathlib.Path(sys.argv[1]).resolve())] if len(sys.argv) > 1 else [*CARGO, "--bin", "worldloom", "--"]
example = [str(pathlib.Path(sys.argv[2]).resolve())] if len(sys.argv) > 2 else [*CARGO, "--example", "logits", "--"]
CASES = {
    "stories260k": 1e-4,
    "qwen2-untied": 1e-4,
    "qwen3-tied": 1e-4,
    "qwen3-untied": 1e-4,
    "qwen3-moe-norm": 1e-4,
    "qwen3-moe-nonorm": 1e-4,
    "qwen3-next": 2e-3,
    "qwen3_5-dense": 2e-3,
    "qwen3_5-moe": 2e-3,
    "qwen3_5-moe-vl": 2e-3,
}


def run(*words):
    subprocess.run([str(word) for word in words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def compare(case, folder):
    """The largest difference of a logit between our program and transformers on our export."""
    source = ROOT / "tests/golden" / case
    export, out = folder / "export", folder / "logits.safetensors"
    run(*program, "export", "--model", source, "--out", export, "--set", f"name={case}", "--set", "dtype=f32")
    model, info = AutoModelForCausalLM.from_pretrained(
        export, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {kind: sorted(names) for kind, names in info.items() if names}
    assert not wrong, f"{case}: transformers finds {wrong}"
    with safe_open(ROOT / "tests/golden" / case.removesuffix("-vl") / "golden.safetensors", "pt") as golden:
        ids = golden.get_tensor("input_ids")[0].tolist()
    with torch.no_grad():
        theirs = model.eval()(torch.tensor([ids])).logits[0]
    run(*example, export, out, *ids)
    return (load_file(out)["logits"] - theirs).abs().max().item()


failed = False
for case, tolerance in CASES.items():
    with tempfile.TemporaryDirectory() as folder:
        difference = compare(case, pathlib.Path(folder))
    failed |= difference > tolerance
    print(f"{case:18} largest difference {difference:.2e}, tolerance {tolerance:.0e}", flush=True)
sys.exit(failed)
