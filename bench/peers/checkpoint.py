"""Loads and saves a model folder with transformers.

    checkpoint.py MODEL_FOLDER OUT TIMES
"""
import sys
import time

import peer


def main(folder, out, times):
    peer.load(folder)
    for _ in range(int(times)):
        start = time.perf_counter()
        model = peer.load(folder)
        # Weights may come as a map of the file: reading them is part of loading.
        sum(float(parameter.detach().sum()) for parameter in model.parameters())
        peer.unit("load", start)
        start = time.perf_counter()
        model.save_pretrained(out)
        peer.unit("save", start)


main(*sys.argv[1:])
