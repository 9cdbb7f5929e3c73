"""Trajectories to packed rows of token ids as TRL's SFTTrainer prepares them: chat template, tokenizer, labels, packing.

    prepare.py POOL.parquet TOKENIZER_FOLDER ROW_TOKENS

The trajectories are chat messages in memory before the clock starts. `datasets` works with a process per core.
"""
import os
import sys
import types

import peer

pq, datasets, transformers, trl = peer.need("pyarrow.parquet", "datasets", "transformers", "trl")


def messages(trajectory):
    system = trajectory["system"]
    yield {"role": "system", "content": "\n\n".join(filter(None, (system["task_description"], system["initial_state"])))}
    for turn in trajectory["turns"]:
        yield {"role": "user", "content": turn["action"]}
        yield {"role": "assistant", "content": turn["observation"]}


def main(pool, tokenizer, row_tokens):
    table = pq.read_table(pool, columns=["system", "turns"]).to_pylist()
    chats = datasets.Dataset.from_list([{"messages": list(messages(trajectory))} for trajectory in table])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer)
    arguments = types.SimpleNamespace(
        dataset_num_proc=os.cpu_count(), assistant_only_loss=False, max_length=int(row_tokens), packing_strategy="bfd",
        dataset_text_field="text", truncation_mode="keep_start", shuffle_dataset=False, seed=1)
    # What the trainer's own method reads of the trainer; a model is not needed for it.
    trainer = types.SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=False)
    datasets.disable_caching()
    peer.ready()
    rows = trl.SFTTrainer._prepare_dataset(trainer, chats, tokenizer, arguments, True, None, "train")
    print("trajectories", len(table))
    print("rows", len(rows))
    print("tokens", sum(map(len, rows["input_ids"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
