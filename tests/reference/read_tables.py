"""Reads a table of ours with pyarrow, DuckDB, pandas and `datasets` and compares every value with what was written.

    python3 tests/reference/read_tables.py TABLE.parquet [ROWS.jsonl]

`ROWS.jsonl` holds the rows as JSON, in order; without it, the readers are compared with pyarrow. Prints one line for each
reader, `missing` where it is not installed; ends with 1 where a value differs. `tests/tests/readers.rs` runs it.
"""

import json
import sys
import tempfile


def plain(value):
    """Lists and structs as Python has them, whatever the reader calls them."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return None if value != value else value


def by_pyarrow(path):
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path).to_pylist()


def by_duckdb(path):
    import duckdb

    found = duckdb.sql(f"select * from read_parquet('{path}')")
    return [dict(zip(found.columns, row)) for row in found.fetchall()]


def by_pandas(path):
    import pandas

    # Numbers with gaps would become floats.
    return pandas.read_parquet(path, dtype_backend="pyarrow").to_dict("records")


def by_datasets(path):
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        return list(datasets.load_dataset("parquet", data_files=path, split="train", cache_dir=cache))


def difference(found, expected):
    if len(found) != len(expected):
        return f"{len(found)} rows, expected {len(expected)}"
    for row, (one, other) in enumerate(zip(found, expected)):
        for column in other.keys() | one.keys():
            if one.get(column) != other.get(column):
                return f"row {row}, {column}: {one.get(column)!r:.200}, expected {other.get(column)!r:.200}"
    return None


def main(path, rows=None):
    if rows:
        with open(rows, encoding="utf-8", newline="\n") as lines:
            expected = [json.loads(line) for line in lines]
    else:
        expected = plain(by_pyarrow(path))
    is_wrong = False
    for read in (by_pyarrow, by_duckdb, by_pandas, by_datasets):
        name = read.__name__.removeprefix("by_")
        try:
            found = plain(read(path))
        except ModuleNotFoundError as error:
            print(name, "missing:", error.name)
            continue
        wrong = difference(found, expected)
        is_wrong |= wrong is not None
        print(name, wrong or f"{len(found)} rows equal")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
