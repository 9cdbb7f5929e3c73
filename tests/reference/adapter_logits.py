"""Loads an adapter of ours with peft and compares the logits with those of the model that we merged.

    python3 tests/reference/adapter_logits.py BASE_DIR RUN_DIR

BASE_DIR is the model that the run started from, RUN_DIR the artifact of `train` with a `lora` table: `adapter/` is loaded
by peft beside BASE_DIR, `model/` by transformers alone. Experts have no module of their own in transformers 5, so this
is for dense models and delta-nets. Needs torch, transformers and peft; says so and exits 77 where they are missing.
"""
import pathlib
import sys

try:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers peft")
    sys.exit(77)

base, run = (pathlib.Path(argument) for argument in sys.argv[1:3])
load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
adapted, merged = PeftModel.from_pretrained(load(base), run / "adapter").eval(), load(run / "model")
ids = torch.arange(5, 37).unsqueeze(0) % merged.config.vocab_size
with torch.no_grad():
    difference = (adapted(ids).logits - merged(ids).logits).abs().max().item()
print(f"largest difference of a logit {difference:.2e}")
sys.exit(difference > 1e-4)
