"""Trains the tiny golden model (tests/golden/qwen3-tied) with plain PyTorch and with TRL's SFT trainer, and writes the
curves that our trainer is compared with: tests/golden/train-parity/curve.json and trl.json, and docs/parity.svg once
ours are there too.

    python tests/reference/train_parity.py            # writes the curves, and the plot if ours are at hand
    cargo test --release --test suite parity          # compares; leaves ours in $WORLDLOOM_PARITY_CURVES if that is set

Needs torch and transformers, TRL's curve trl; says so where they are missing. Rows are made by a formula that the Rust
test repeats: packed documents with a weight for every token. With plain PyTorch every document is computed alone, so
that packing, micro-batches and padding of ours are compared with none at all. TRL knows no weights but 0 and 1, so there
every target weighs 1; it pads, in micro-batches of five documents.
"""

import json
import math
import os
import pathlib
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests/golden/qwen3-tied"
CURVES = ROOT / "tests/golden/train-parity"
PLOT = ROOT / "docs/parity.svg"
STEPS, WARMUP, PEAK, FLOOR = 100, 10, 2e-3, 0.1
DECAY, CLIP, BETAS, EPSILON = 0.1, 1.0, (0.9, 0.95), 1e-8


def documents(targets=(1.0, 0.5, 2.0)):
    """Twenty documents: tokens count up by a stride, the first few have no weight."""
    for at in range(20):
        length = 6 + at * 7 % 18
        tokens = [(3 + at * 11 + (1 + at % 5) * place) % 96 for place in range(length)]
        context = 1 + at % 4
        weights = [0.0 if place < context else targets[at % 3] for place in range(length)]
        yield tokens, weights


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    floor = PEAK * FLOOR
    return floor + 0.5 * (PEAK - floor) * (1 + math.cos(math.pi * progress))


def started():
    """The model, and an optimizer that decays neither norms nor embeddings."""
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
    return model, torch.optim.AdamW(groups, lr=PEAK, betas=BETAS, eps=EPSILON)


def train():
    import torch
    import transformers

    model, optimizer = started()
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


def train_with_trl():
    """The same steps by TRL's SFT trainer; a step is one pass over the documents, in four micro-batches of five."""
    import datasets
    import tokenizers
    import torch
    import transformers
    import trl

    model, optimizer = started()
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(at): at for at in range(96)}, unk_token="0"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1")
    rows = [{"input_ids": tokens, "labels": [token if weight else -100 for token, weight in zip(tokens, weights)]}
            for tokens, weights in documents((1.0, 1.0, 1.0))]
    curve = []

    class Watched(trl.SFTTrainer):
        def training_step(self, *arguments, **named):
            loss = super().training_step(*arguments, **named)
            if len(curve) == self.state.global_step:
                curve.append({"loss": 0.0, "learning_rate": self.optimizer.param_groups[0]["lr"]})
            curve[-1]["loss"] += float(loss)
            return loss

        def log(self, logs, *rest):
            if "grad_norm" in logs:
                curve[-1]["grad_norm"] = float(logs["grad_norm"])

    with tempfile.TemporaryDirectory() as folder:
        config = trl.SFTConfig(
            output_dir=folder, max_steps=STEPS, per_device_train_batch_size=5, gradient_accumulation_steps=4,
            max_length=None, packing=False, max_grad_norm=CLIP, logging_steps=1, save_strategy="no", report_to=[],
            use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step) / PEAK)
        Watched(model=model, args=config, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer,
                optimizers=(optimizer, schedule)).train()
    return {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__, "curve": curve}


def plot(pairs):
    """Each pair of curves and, a hundred thousand times larger, what is between them."""
    width, height, left, top = 640, 300, 56, 16
    high = max(max(theirs + ours) for _, theirs, ours in pairs) * 1.05
    place = lambda at, value: f"{left + at * (width - left - 16) / (STEPS - 1):.1f},{top + (high - value) / high * (height - 72):.1f}"
    line = lambda values, style: f'<polyline fill="none" {style} points="{" ".join(place(at, v) for at, v in enumerate(values))}"/>'
    ticks = "".join(f'<text x="8" y="{top + 4 + (high - v) / high * (height - 72):.0f}">{v:.1f}</text>' for v in (0.0, high / 2, high))
    lines, words = "", []
    for (name, theirs, ours), (wide, thin, gap) in zip(pairs, (("#0072b2", "#d55e00", "#009e73"), ("#56b4e9", "#e69f00", "#cc79a7"))):
        gaps = [abs(a - b) * 1e5 for a, b in zip(theirs, ours)]
        lines += (line(theirs, f'stroke="{wide}" stroke-width="4" stroke-opacity="0.5"')
                  + line(ours, f'stroke="{thin}" stroke-width="1.5"') + line(gaps, f'stroke="{gap}" stroke-width="1"'))
        words.append((name, wide, thin, gap))
    legend = "".join(
        f'<text x="{left}" y="{height - 26 + 16 * at}"><tspan fill="{wide}">{name}</tspan> (wide), '
        f'<tspan fill="{thin}">worldloom</tspan>, <tspan fill="{gap}">their distance × 100,000</tspan>; loss over {STEPS} steps</text>'
        for at, (name, wide, thin, gap) in enumerate(words))
    PLOT.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>{ticks}\n{lines}\n{legend}\n</svg>\n')


def main():
    pairs, ours_in = [], os.environ.get("WORLDLOOM_PARITY_CURVES")
    for name, file, make in (("PyTorch", "curve.json", train), ("TRL", "trl.json", train_with_trl)):
        try:
            result = make()
        except ImportError as missing:
            print(f"{name} skipped: {missing}; pip install torch transformers trl")
            continue
        CURVES.mkdir(exist_ok=True)
        (CURVES / file).write_text(json.dumps(result, indent=1) + "\n")
        theirs = [step["loss"] for step in result["curve"]]
        print(f"{name}: {STEPS} steps, loss {theirs[0]:.5f} to {theirs[-1]:.5f}, written to {CURVES / file}")
        ours = pathlib.Path(ours_in or "", file.replace(".json", ".jsonl"))
        if ours_in and ours.exists():
            losses = [json.loads(line)["loss"] for line in ours.read_text().splitlines()]
            print(f"  {losses[0]:.5f} to {losses[-1]:.5f} here, largest distance {max(abs(a - b) for a, b in zip(theirs, losses)):.1e}")
            pairs.append((name, theirs, losses))
    if pairs:
        plot(pairs)


if __name__ == "__main__":
    main()
