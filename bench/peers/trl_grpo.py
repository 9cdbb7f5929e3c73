"""TRL's GRPOTrainer on the weights of the example `grpo`: a step samples a group for one prompt and trains on it.

    trl_grpo.py MODEL_FOLDER PROMPT_TOKENS GROUP NEW_TOKENS STEPS

Prompts are words of a tokenizer with a word per id, so that TRL, which takes text, sees the ids that ours sees. Rewards
follow from the completions' ids, as ours; every completion has its full length.
"""
import sys
import tempfile
import time

import peer

datasets, transformers, trl = peer.need("datasets", "transformers", "trl")


class Clock(transformers.TrainerCallback):
    """A line a step."""

    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        peer.unit("step", self.start)


def reward(completion_ids, **_):
    return [sum(map(int, ids)) % 1000 / 40.0 for ids in completion_ids]


def main(folder, *numbers):
    length, group, new_tokens, steps = map(int, numbers)
    model = peer.load(folder)
    size = model.config.vocab_size
    ids = [[(((step * length + at) * 2_654_435_761) >> 7) % size for at in range(length)] for step in range(steps)]
    prompts = datasets.Dataset.from_list([{"prompt": " ".join(f"t{token}" for token in prompt)} for prompt in ids])
    with tempfile.TemporaryDirectory() as out:
        config = trl.GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, max_steps=steps,
            per_device_train_batch_size=group, num_generations=group, max_completion_length=new_tokens, temperature=1.0,
            generation_kwargs={"min_new_tokens": new_tokens}, beta=0.0, loss_type="grpo", learning_rate=1e-5,
            weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch_fused", lr_scheduler_type="constant", report_to="none",
            save_strategy="no", logging_strategy="no", disable_tqdm=True, shuffle_dataset=False, seed=1)
        trainer = trl.GRPOTrainer(model=model, reward_funcs=reward, args=config, train_dataset=prompts,
                                  processing_class=peer.word_tokenizer(size), callbacks=[Clock()])
        trainer.train()


main(*sys.argv[1:])
