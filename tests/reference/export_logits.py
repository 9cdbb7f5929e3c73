"""Loads an export of ours with transformers and compares its logits with those our program computes.

    python3 tests/reference/export_logits.py EXPORT_DIR

Needs torch, transformers and safetensors; says so and exits 77 where they are missing. Prints the largest difference and
exits 1 above 1e-4.
"""
import pathlib
import subprocess
import sys
import tempfile

TOLERANCE = 1e-4

try:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers safetensors")
    sys.exit(77)

export = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parents[2]
model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32, attn_implementation="eager").eval()
tokenizer = AutoTokenizer.from_pretrained(export)
messages = [{"role": "user", "content": "### Turn 1\n\n**Action:**\n```bash\nls -l | wc -l\n```"}]
ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
with torch.no_grad():
    theirs = model(torch.tensor([ids])).logits[0]
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "logits.safetensors"
    command = ["cargo", "run", "--release", "-q", "--example", "logits", "--", export, out]
    subprocess.run([str(word) for word in command + ids], check=True, cwd=root)
    ours = load_file(out)["logits"]
difference = (ours - theirs).abs().max().item()
print(f"{len(ids)} tokens, vocabulary {theirs.shape[-1]}: largest difference of a logit {difference:.2e}")
sys.exit(difference > TOLERANCE)
