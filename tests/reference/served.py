"""Starts `worldloom serve` on a free port for the scripts beside this one."""
import contextlib
import subprocess
import sys


def arguments(about, needs):
    """The program and the model from the command line; exits 77 where a package is missing."""
    import argparse
    import importlib.util

    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--worldloom", default="target/release/worldloom", help="the program")
    parser.add_argument("--model", required=True, help="a checkpoint, such as the export of the quickstart")
    found = parser.parse_args()
    for package in needs:
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {package} is missing; pip install it")
            sys.exit(77)
    return found


@contextlib.contextmanager
def server(program, model, *more):
    """Gives the address; the server is asked to stop at the end and must do so with exit code 0."""
    command = [program, "serve", "--model", model, "--name", "worldloom", "--port", "0", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert " on http://" in line, line
        yield line.strip().rsplit(" ", 1)[1]
    finally:
        process.terminate()
        code = process.wait(timeout=60)
    assert code == 0, f"the server ended with {code}"
