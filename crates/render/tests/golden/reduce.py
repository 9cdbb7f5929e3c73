#!/usr/bin/env python3
"""Makes `chats.json` and `tokenizer.json` here from the published Qwen3 tokenizer and rendered chats of its templates.

    python reduce.py TOKENIZER_JSON CHATS_JSON

The tokenizer keeps its ids, its 256 bytes, its added tokens and every merge whose result occurs in the kept texts, so on
these texts it gives the published tokens, which is checked when the `tokenizers` package is there.
"""
import json, sys

# Conversations of plain system, user and assistant turns, where the published template adds nothing of its own.
KEPT = [("qwen3", "one question"), ("qwen3", "two turns, next to come"), ("qwen3_instruct_2507", "one question"),
        ("qwen3_instruct_2507", "system and answer"), ("qwen3_instruct_2507", "two turns, next to come"),
        ("qwen2_5", "system and answer")]
# Text for the other tests of this crate, in which the reduced tokenizer should not fall back to bytes.
EXTRA = ["**Environment Observation:**\n", "### Turn 1\n\n**Action:**\n```bash\nls\n```\n\n", "You are a bash terminal.\n",
         "<predicted_observation>\n", "\n</predicted_observation>", "Think first, then write the output between and."]


def bytes_to_unicode():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {byte: chr(byte) for byte in kept}, 0
    for byte in range(256):
        if byte not in table:
            table[byte], extra = chr(256 + extra), extra + 1
    return table


def main(tokenizer_path, chats_path):
    chats = [chat for chat in json.load(open(chats_path))["chats"] if (chat["template"], chat["name"]) in KEPT]
    assert len(chats) == len(KEPT), len(chats)
    tokenizer = json.load(open(tokenizer_path))
    table = bytes_to_unicode()
    text = "\0".join("".join(table[byte] for byte in text.encode()) for text in [c["text"] for c in chats] + EXTRA)
    model = tokenizer["model"]
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    model["merges"] = [merge for merge in merges if "".join(merge) in text]
    kept = set(table.values()) | {"".join(merge) for merge in model["merges"]}
    model["vocab"] = {token: number for token, number in model["vocab"].items() if token in kept}
    # The library numbers added tokens from the end of the vocabulary, unless the vocabulary knows them.
    model["vocab"].update((token["content"], token["id"]) for token in tokenizer["added_tokens"])
    json.dump(tokenizer, open("tokenizer.json", "w"), ensure_ascii=False, indent=0)
    keys = ["template", "name", "messages", "options", "text", "ids"]
    json.dump([{key: chat[key] for key in keys} for chat in chats], open("chats.json", "w"), ensure_ascii=False, indent=0)
    try:
        import tokenizers
    except ImportError:
        return print("the tokenizers package is not here: not checked")
    reduced = tokenizers.Tokenizer.from_file("tokenizer.json")
    for chat in chats:
        assert reduced.encode(chat["text"], add_special_tokens=False).ids == chat["ids"], chat["name"]
    print(len(chats), "chats, tokens as published")


main(*sys.argv[1:])
