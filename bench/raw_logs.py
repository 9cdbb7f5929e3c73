"""Writes raw logs of about so many megabytes, for measurements of ingest and curate (docs/scale.md).

    python3 bench/raw_logs.py FOLDER MEGABYTES [MEGABYTES OF A FILE]

Chat messages with tool calls, a trajectory a line, 500 MB a file unless said. Words are random hexadecimal, so that
nothing repeats by chance; one trajectory in twenty is a copy of an earlier one, one in twenty differs from it by one line.
"""

import json
import random
import sys
from pathlib import Path


def turn(number):
    words = random.choice([20, 80, 300, 1500])
    call = {"id": f"call-{number}", "type": "function"}
    call["function"] = {"name": "bash", "arguments": json.dumps({"command": f"cat {random.randbytes(4).hex()}.txt"})}
    yield {"role": "assistant", "content": random.randbytes(20).hex(" ", 3), "tool_calls": [call]}
    lines = [random.randbytes(36).hex(" ", 3) for _ in range(words // 12)]
    yield {"role": "tool", "tool_call_id": call["id"], "content": "\n".join(lines)}


def trajectory(number):
    messages = [{"role": "user", "content": f"Task {number % 50_000}: find {random.randbytes(4).hex()}."}]
    for at in range(random.randint(4, 20)):
        messages.extend(turn(at))
    return messages


def main(folder, megabytes, file_megabytes=500):
    random.seed(1)
    file_bytes = file_megabytes * 1_000_000
    folder.mkdir(parents=True, exist_ok=True)
    left, number, earlier = megabytes * 1_000_000, 0, []
    for file in range(-(-left // file_bytes)):
        with open(folder / f"logs-{file:03}.jsonl", "w") as out:
            room = min(left, file_bytes)
            while room > 0:
                kind = number % 20
                if kind < 2 and len(earlier) == 64:
                    messages = earlier[number % 64]
                    if kind == 1:
                        last = {**messages[-1], "content": messages[-1]["content"] + f"\nline {number}"}
                        messages = [*messages[:-1], last]
                else:
                    messages = trajectory(number)
                    earlier = [*earlier[-63:], messages]
                room -= out.write(json.dumps({"messages": messages}) + "\n")
                number += 1
            left -= min(left, file_bytes)
    print(number, "trajectories")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
