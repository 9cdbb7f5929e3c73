"""Runs a program and says how long its units of work took, the processor's time, and the most memory it had.

A *unit* is one line that the program prints with `all N ms` in it, a step for instance. The processor's time of a unit is
read from /proc when its line arrives, children of the program included; memory is what the system counts for a process
when it ends.
"""
import json
import os
import re
import subprocess
import tempfile
import threading
import time

UNIT = re.compile(r"all ([\d.]+) ms")
LOSS = re.compile(r"loss ([\d.]+)")
TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """The program ended with an error, or took too long."""


def processor_seconds(pid):
    """Of a process and the children it has waited for; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(int(field) for field in fields[11:15]) / TICKS


def lines_of(path, ended, note):
    """Notes the lines of a file as they come, until the writer has ended."""
    rest, file = "", None
    while True:
        last = ended.is_set()
        if file is None and os.path.exists(path):
            file = open(path)
        while file and (text := file.readline()):
            rest += text
            if rest.endswith("\n"):
                note(rest)
                rest = ""
        if last:
            return
        time.sleep(0.002)


class Run:
    """What a program did: its lines with the time and the processor's time at which they came, in seconds."""

    def __init__(self, command, environment=None, limit=300, follow=None):
        """Lines of the file `follow`, which the program writes, count as printed."""
        self.lines, start = [], time.perf_counter()
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=errors, text=True,
                                     env={**os.environ, **(environment or {})})

            def note(line):
                processor = processor_seconds(child.pid) or (self.lines[-1][2] if self.lines else 0.0)
                self.lines.append((line.rstrip("\n"), time.perf_counter() - start, processor))

            timer = threading.Timer(limit, child.kill)
            timer.start()
            ended = threading.Event()
            follower = threading.Thread(target=lines_of, args=(follow, ended, note)) if follow else None
            if follower:
                follower.start()
            for line in child.stdout:
                note(line)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.seconds = time.perf_counter() - start
            timer.cancel()
            ended.set()
            if follower:
                follower.join()
            self.processor, self.peak_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
            errors.seek(0)
            said = errors.read()
        if child.returncode == 77:
            raise Failed(f"skipped: {self.text().strip()}")
        if child.returncode:
            raise Failed(f"{' '.join(map(str, command))}: exit {child.returncode} after {self.seconds:.0f} s: "
                         f"{(said or self.text())[-600:]}")

    def text(self):
        return "\n".join(line for line, _, _ in self.lines)

    def losses(self):
        return [float(loss) for loss in LOSS.findall(self.text())]

    def units(self, warm=0, word=""):
        """(seconds, processor seconds) of each unit after the first `warm`; of lines with `word` in them."""
        units, before = [], None
        for line, _, processor in self.lines:
            if (found := UNIT.search(line)) and word in line:
                units.append((float(found.group(1)) / 1e3, processor - before if before is not None else None))
            before = processor
        return units[warm:]

    def steps(self, warm=0):
        """As `units`, of the lines of a `metrics.jsonl`."""
        lines = [(json.loads(line), processor) for line, _, processor in self.lines if line.startswith('{"step"')]
        pairs = zip(lines, lines[1:])
        return [(step["clock"]["seconds"], after - before) for (_, before), (step, after) in pairs][max(warm - 1, 0):]

    def whole(self):
        """The whole program as one unit."""
        return [(self.seconds, self.processor)]

    def after(self, word):
        """What came after the line that is `word`, as one unit: without the start of an interpreter."""
        at, processor = next((at, processor) for line, at, processor in self.lines if line == word)
        return [(self.seconds - at, self.processor - processor)]

    def number(self, word):
        """The number behind `word` in what was printed."""
        found = re.search(rf"\b{word}\s+([\d.]+)", self.text())
        if not found:
            raise Failed(f"`{word}` is not in: {self.text()[-400:]}")
        return float(found.group(1))
