"""Trains the tiny golden model (tests/golden/qwen3-tied) with plain PyTorch and writes the curve that our trainer is
compared with: tests/golden/train-parity/curve.json, and docs/parity.svg once ours is there too.

    python tests/reference/train_parity.py            # writes the curve, and the plot if ours is at hand
    cargo test --release --test suite parity          # compares; leaves ours in $WORLDLOOM_PARITY_CURVE if that is set

Needs torch and transformers; says so where they are missing. Rows are made by a formula that the Rust test repeats:
packed documents with a weight for every token. Here every document is computed alone, so that packing, micro-batches
and padding of ours are compared with none at all.
"""

import json
import math
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests/golden/qwen3-tied"
CURVE = ROOT / "tests/golden/train-parity/curve.json"
PLOT = ROOT / "docs/parity.svg"
STEPS, WARMUP, PEAK, FLOOR = 100, 10, 2e-3, 0.1
DECAY, CLIP, BETAS, EPSILON = 0.1, 1.0, (0.9, 0.95), 1e-8


def documents():
    """Twenty documents: tokens count up by a stride, the first few have no weight."""
    for at in range(20):
        length = 6 + at * 7 % 18
        tokens = [(3 + at * 11 + (1 + at % 5) * place) % 96 for place in range(length)]
        context = 1 + at % 4
        weights = [0.0 if place < context else [1.0, 0.5, 2.0][at % 3] for place in range(length)]
        yield tokens, weights


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    floor = PEAK * FLOOR
    return floor + 0.5 * (PEAK - floor) * (1 + math.cos(math.pi * progress))


def train():
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    model.train()
    is_decayed = lambda name: not any(part in name for part in ("norm", "embed_tokens"))
    groups = [
        {"params": [p for n, p in model.named_parameters() if is_decayed(n)], "weight_decay": DECAY},
        {"params": [p for n, p in model.named_parameters() if not is_decayed(n)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=BETAS, eps=EPSILON)
    rows = [(torch.tensor([tokens]), torch.tensor(weights)) for tokens, weights in documents()]
    denominator = sum(float(weights.sum()) for _, weights in rows)
    curve = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        total = 0.0
        for tokens, weights in rows:
            logits = model(tokens).logits[0, :-1]
            nll = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
            loss = (nll * weights[1:]).sum() / denominator
            loss.backward()
            total += float(loss)
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP))
        optimizer.step()
        curve.append({"loss": total, "grad_norm": norm, "learning_rate": rate(step)})
    return {"torch": torch.__version__, "transformers": transformers.__version__, "curve": curve}


def plot(theirs, ours):
    """Both curves and, a thousand times larger, what is between them."""
    width, height, left, top = 640, 300, 56, 16
    low, high = 0.0, max(theirs + ours) * 1.05
    gaps = [abs(a - b) * 1000 for a, b in zip(theirs, ours)]
    place = lambda at, value: f"{left + at * (width - left - 16) / (STEPS - 1):.1f},{top + (high - value) / (high - low) * (height - 56):.1f}"
    line = lambda values, style: f'<polyline fill="none" {style} points="{" ".join(place(at, v) for at, v in enumerate(values))}"/>'
    ticks = "".join(f'<text x="8" y="{top + 4 + (high - v) / (high - low) * (height - 56):.0f}">{v:.1f}</text>' for v in (0.0, high / 2, high))
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>{ticks}\n'
        + line(theirs, 'stroke="#0072b2" stroke-width="4" stroke-opacity="0.5"')
        + line(ours, 'stroke="#d55e00" stroke-width="1.5"')
        + line(gaps, 'stroke="#009e73" stroke-width="1"')
        + f'\n<text x="{left}" y="{height - 10}">loss over {STEPS} steps: PyTorch (blue, wide), worldloom (orange), '
        f"their distance × 1,000 (green)</text>\n</svg>\n"
    )
    PLOT.write_text(text)


def main():
    try:
        result = train()
    except ImportError as missing:
        sys.exit(f"skipped: {missing}; pip install torch transformers")
    CURVE.parent.mkdir(exist_ok=True)
    CURVE.write_text(json.dumps(result, indent=1) + "\n")
    theirs = [step["loss"] for step in result["curve"]]
    print(f"{STEPS} steps, loss {theirs[0]:.4f} to {theirs[-1]:.4f}, written to {CURVE}")
    ours = os.environ.get("WORLDLOOM_PARITY_CURVE")
    if ours and pathlib.Path(ours).exists():
        losses = [json.loads(line)["loss"] for line in pathlib.Path(ours).read_text().splitlines()]
        print(f"largest distance {max(abs(a - b) for a, b in zip(theirs, losses)):.2e}, plot in {PLOT}")
        plot(theirs, losses)


if __name__ == "__main__":
    main()
