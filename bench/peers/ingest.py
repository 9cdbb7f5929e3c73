"""Chat logs to a table of trajectories with json and pyarrow: a process per file, up to one per core.

    ingest.py FOLDER OUT

Every line is parsed, its messages paired to turns of an action and an observation, an id hashed from the content, and the
table written as Parquet with zstd. Nothing is checked beyond that: less than `worldloom ingest` does.
"""
import hashlib
import json
import multiprocessing
import os
import pathlib
import sys

import peer

pa, pq = peer.need("pyarrow", "pyarrow.parquet")
ROWS = 2000


def trajectory(line):
    messages = json.loads(line)["messages"]
    turns, action = [], None
    for message in messages:
        if message["role"] == "assistant":
            calls = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", [])]
            action = {"reasoning": message["content"], "action": "\n".join(call["command"] for call in calls)}
        elif message["role"] == "tool":
            turns.append({"index": len(turns), **action, "observation": message["content"]})
    key = hashlib.blake2b(json.dumps(messages, sort_keys=True).encode(), digest_size=16).hexdigest()
    return {"trajectory_id": key, "task": messages[0]["content"], "turns": turns}


def convert(paths):
    path, out = paths
    writer, rows, count, turns = None, [], 0, 0

    def write():
        nonlocal writer
        table = pa.Table.from_pylist(rows)
        writer = writer or pq.ParquetWriter(out, table.schema, compression="zstd")
        writer.write_table(table)

    with open(path) as lines:
        for line in lines:
            rows.append(trajectory(line))
            count, turns = count + 1, turns + len(rows[-1]["turns"])
            if len(rows) == ROWS:
                write()
                rows = []
    if rows:
        write()
    writer.close()
    return count, turns


def main(folder, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    paths = sorted(pathlib.Path(folder).glob("*.jsonl"))
    with multiprocessing.Pool(min(len(paths), os.cpu_count())) as pool:
        peer.ready()
        counts = pool.map(convert, [(path, out / f"{path.stem}.parquet") for path in paths], chunksize=1)
    print("trajectories", sum(count for count, _ in counts))
    print("turns", sum(turns for _, turns in counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
