"""TRL's SFTTrainer on the documents of a shard, as token ids with the targets that ours has.

    sft.py MODEL_FOLDER ROWS_FOLDER ROW_TOKENS ROWS_PER_STEP STEPS packed|padded

`packed` is TRL's best-fit packing into rows without padding; `padded` takes a document a row, four times as many rows a step.
"""
import pathlib
import sys
import tempfile
import time

import peer

pa, datasets, transformers, trl = peer.need("pyarrow", "datasets", "transformers", "trl")
DOCUMENTS = 2000


def documents(folder):
    """Each segment of each row: its tokens, and as labels those with a weight."""
    for path in sorted(pathlib.Path(folder).glob("*.shard")):
        with pa.ipc.open_file(pa.memory_map(str(path))) as shard:
            for number in range(shard.num_record_batches):
                for row in shard.get_batch(number).to_pylist():
                    tokens, weights, segments = row["tokens"], row["weights"], row["segments"]
                    starts = [at for at in range(len(tokens)) if at == 0 or segments[at] != segments[at - 1]]
                    for start, end in zip(starts, starts[1:] + [len(tokens)]):
                        pairs = zip(tokens[start:end], weights[start:end])
                        labels = [token if weight > 0 else -100 for token, weight in pairs]
                        yield {"input_ids": tokens[start:end], "labels": labels}


class Clock(transformers.TrainerCallback):
    """A line a step, with the loss and the tokens that were trained."""

    def __init__(self):
        self.trained, self.loss = 0, 0.0

    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        peer.unit(f"loss {self.loss:.4f}, trained {self.trained} tokens", self.start)


class Trainer(trl.SFTTrainer):
    """Counts what it trains; nothing else is changed."""

    def compute_loss(self, model, inputs, *arguments, **words):
        labels = inputs["labels"]
        self.clock.trained = int((labels != -100).sum())
        result = super().compute_loss(model, inputs, *arguments, **words)
        self.clock.loss = float((result[0] if isinstance(result, tuple) else result).detach())
        return result


def main(model, rows, row_tokens, rows_per_step, steps, kind):
    some = [document for document, _ in zip(documents(rows), range(DOCUMENTS))]
    is_packed, rows_per_step = kind == "packed", int(rows_per_step)
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        config = trl.SFTConfig(
            output_dir=out, use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, max_steps=int(steps),
            per_device_train_batch_size=rows_per_step if is_packed else 4 * rows_per_step, max_length=int(row_tokens),
            packing=is_packed, learning_rate=1e-4, weight_decay=0.1, max_grad_norm=1.0, optim="adamw_torch_fused",
            lr_scheduler_type="constant", report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
            dataloader_num_workers=0, seed=1)
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        trainer = Trainer(model=peer.load(model), args=config, train_dataset=datasets.Dataset.from_list(some),
                          processing_class=tokenizer, callbacks=[clock])
        trainer.clock = clock
        trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
