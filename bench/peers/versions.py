"""Prints the versions of what the peers need, as JSON."""
import importlib.metadata
import json

NAMES = ("torch", "transformers", "tokenizers", "safetensors", "pyarrow", "datasets", "trl", "accelerate")


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


print(json.dumps({name: version(name) for name in NAMES}))
