"""What the disk and the memory do with a file's bytes: the measure of a checkpoint's speed. Needs no package.

    disk.py FILE OUT TIMES

`load` reads a file, which the system has cached, into fresh memory; `save` writes those bytes; `synced` until they are
on the disk.
"""
import os
import sys
import time

import peer


def main(path, out, times):
    for _ in range(int(times)):
        start = time.perf_counter()
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        peer.unit("load", start)
        start = time.perf_counter()
        with open(out, "wb", buffering=0) as file:
            file.write(content)
            peer.unit("save", start)
            os.fsync(file.fileno())
        peer.unit("synced", start)
        os.remove(out)
        del content


main(*sys.argv[1:])
