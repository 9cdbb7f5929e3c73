"""transformers.generate on the weights and prompts of the example `generation_speed`.

    generate.py MODEL_FOLDER PROMPTS GROUP PROMPT_TOKENS NEW_TOKENS RUNS [greedy]
"""
import sys
import time

import peer

(torch,) = peer.need("torch")


def main(folder, *numbers):
    prompts, group, prompt_tokens, new_tokens, runs = map(int, numbers[:5])
    is_greedy = numbers[5:] == ("greedy",)
    model = peer.load(folder).eval()
    size = model.config.vocab_size
    ids = torch.tensor([[(i * i * 31 + i * 7 + salt * 97) % size for i in range(prompt_tokens)] for salt in range(prompts)])
    choice = {"do_sample": False} if is_greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    torch.manual_seed(1)
    for run in range(1, runs + 1):
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), num_return_sequences=group, use_cache=True,
                                 min_new_tokens=new_tokens, max_new_tokens=new_tokens, pad_token_id=0, eos_token_id=None,
                                 **choice)
        completions = out[:, prompt_tokens:]
        peer.unit(f"run {run}: {completions.numel()} tokens", start)
    print("tokens", completions[0].tolist())


main(*sys.argv[1:])
