"""From the start of the interpreter to the first step on the quickstart's model: PyTorch on rows of a shard.

    start.py MODEL_FOLDER ROWS_FOLDER ROWS
"""
import pathlib
import sys

import peer

torch, pa = peer.need("torch", "pyarrow")


def main(folder, rows, count):
    model = peer.load(folder)
    path = min(pathlib.Path(rows).glob("*.shard"))
    with pa.ipc.open_file(pa.memory_map(str(path))) as shard:
        batch = [row["tokens"] for row in shard.get_batch(0).slice(0, int(count)).to_pylist()]
    shortest = min(map(len, batch))
    ids = torch.tensor([tokens[:shortest] for tokens in batch])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    logits = model(ids[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}", flush=True)


main(*sys.argv[1:])
