"""Losses of routers and their gradients by transformers and torch, written to tests/golden/router-losses.

    python3 tests/reference/router_losses.py

The balance is `load_balancing_loss_func` of transformers over all layers together, with a padding mask; the z-loss is
`mean(logsumexp(logits)²)` (arXiv 2202.08906, equation 5) over the same rows. The gradients are those of
`nll + BALANCE · balance + Z · z`, in one pass. Parameters of more than 6,000 numbers are left out of the file, their
gradients' norms are in it. Needs torch, transformers and safetensors; says so and exits 77 where they are missing.
"""
import pathlib
import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers safetensors")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
BALANCE, Z = 0.5, 0.01
PADDING = 5


def write(case):
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / case, dtype=torch.float32, attn_implementation="eager").eval()
    with safe_open(GOLDEN / case / "golden.safetensors", "pt") as golden:
        ids = golden.get_tensor("input_ids").long()
    mask = torch.ones_like(ids)
    mask[-1, -PADDING:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    routers = []
    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(lambda module, inputs, output: routers.append(logits_of(module, inputs, output)))
    logits = model(ids, attention_mask=mask, use_cache=False).logits
    nll = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    experts, chosen = model.config.num_experts, model.config.num_experts_per_tok
    balance = load_balancing_loss_func(tuple(routers), experts, chosen, mask)
    rows = mask.flatten().bool()
    z = torch.cat([logits[rows] for logits in routers]).logsumexp(-1).square().mean()
    total = nll + BALANCE * balance + Z * z
    total.backward()
    tensors = {"input_ids": ids.int(), "mask": mask.int(), "factors": torch.tensor([BALANCE, Z])}
    tensors |= {name: value.detach().reshape(1) for name, value in [("nll", nll), ("balance", balance), ("z", z)]}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        tensors[f"norm.{name}"] = gradient.norm().reshape(1)
        if gradient.numel() <= 6_000:
            tensors[f"grad.{name}"] = gradient.contiguous()
    (GOLDEN / "router-losses").mkdir(exist_ok=True)
    save_file(tensors, GOLDEN / "router-losses" / f"{case}.safetensors")
    print(f"{case}: nll {nll.item():.6f}, balance {balance.item():.6f}, z {z.item():.6f}, {len(routers)} routers")


def logits_of(module, inputs, output):
    """The router's logits, whatever else it gives: made again from its input, with the graph."""
    hidden = inputs[0].reshape(-1, inputs[0].shape[-1])
    return torch.nn.functional.linear(hidden, module.weight)


for case in ["qwen3-moe-nonorm", "qwen3_5-moe"]:
    write(case)
