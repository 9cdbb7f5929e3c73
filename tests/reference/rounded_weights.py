"""Logits of the golden models with their matrices rounded to bfloat16, computed in float32: tests/golden/bf16.

    python3 tests/reference/rounded_weights.py

What `Precision::BF16` computes: matrices rounded to the nearest, all else (norms, biases, convolutions, routers, decays) as
it is, every product and sum in float32. Printed beside it: how far that is from the exact weights, and how far transformers'
own bfloat16 is, in which activations are rounded too. Needs torch, transformers and safetensors; says so and exits 77 where
they are missing.
"""
import pathlib
import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers safetensors")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
SINGLE = ("conv1d", "mlp.gate.", "shared_expert_gate")


def load(case, dtype):
    return AutoModelForCausalLM.from_pretrained(GOLDEN / case, dtype=dtype, attn_implementation="eager").eval()


(GOLDEN / "bf16").mkdir(exist_ok=True)
for case in ["qwen3-tied", "qwen2-untied", "qwen3-moe-norm", "qwen3-next", "qwen3_5-dense"]:
    with safe_open(GOLDEN / case / "golden.safetensors", "pt") as golden:
        ids, exact = golden.get_tensor("input_ids"), golden.get_tensor("logits")
    model = load(case, torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and not any(part in name for part in SINGLE):
            parameter.data = parameter.data.bfloat16().float()
    with torch.no_grad():
        rounded = model(ids.long(), use_cache=False).logits
        narrow = load(case, torch.bfloat16)(ids.long(), use_cache=False).logits.float()
    save_file({"input_ids": ids, "logits": rounded.contiguous()}, GOLDEN / "bf16" / f"{case}.safetensors")
    away = lambda logits: ((logits - exact).norm() / exact.norm()).item()
    print(f"{case:15} relative norm from the exact logits: {away(rounded):.4f}, transformers in bfloat16: {away(narrow):.4f}")
