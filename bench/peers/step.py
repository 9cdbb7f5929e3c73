"""Training steps of PyTorch on the weights and tokens of the example `step`.

    step.py MODEL_FOLDER float32|bf16 ROWSxTOKENS STEPS

`bf16` is autocast. The update is AdamW, fused, after a clip, as ours.
"""
import sys
import time

import peer

(torch,) = peer.need("torch")


def main(folder, kind, shape, steps):
    rows, tokens = map(int, shape.split("x"))
    model = peer.load(folder)
    size = model.config.vocab_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    ids = torch.tensor([((i * 2_654_435_761) >> 7) % size for i in range(rows * tokens)]).view(rows, tokens)
    for _ in range(int(steps)):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bf16"):
            logits = model(ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().view(-1, size), ids.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        peer.unit(f"loss {loss.item():.4f}", start)


main(*sys.argv[1:])
