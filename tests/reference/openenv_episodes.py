"""Twenty episodes inside the world model, through OpenEnv's own client (`openenv-core`), ten at a time.

    pip install openenv-core
    python tests/reference/openenv_episodes.py --model runs/quickstart/export-…
"""
import asyncio
import json
import tempfile
from pathlib import Path

from served import arguments, server

COMMANDS = ["pwd", "ls", "echo fig > notes.txt", "cat notes.txt", "ls", "mkdir box", "ls", "cat missing.txt", "cd box", "pwd"]
EPISODES, TURNS = 20, 6


async def play(client_class, address, number):
    """One episode of an agent that types a fixed list of commands; what came of each step."""
    async with client_class(base_url=address) as env:
        perturbations = [{"kind": "timeout", "turn": 3}] if number % 2 else []
        first = await env.reset(seed=number, domain="terminal", initial_state="cwd: ~ | files: none", max_turns=TURNS,
                                perturbations=perturbations)
        assert first.observation["text"] == "cwd: ~ | files: none" and not first.done
        steps, result = [], first
        while not result.done and len(steps) < 2 * TURNS:
            result = await env.step({"text": COMMANDS[(number + len(steps)) % len(COMMANDS)]})
            steps.append((result.observation["text"], result.observation["fault"], result.observation["flags"]))
        state = await env.state()
        assert state["episode_id"] == first.observation["episode_id"] and state["step_count"] == len(steps)
        return steps


async def all_episodes(client_class, address):
    gate = asyncio.Semaphore(10)

    async def one(number):
        async with gate:
            return await play(client_class, address, number)

    return await asyncio.gather(*(one(number) for number in range(EPISODES)))


def main():
    args = arguments(__doc__, ["openenv"])
    from openenv.core.generic_client import GenericEnvClient

    with tempfile.TemporaryDirectory() as folder:
        with server(args.worldloom, args.model, "--episodes", folder) as address:
            episodes = asyncio.run(all_episodes(GenericEnvClient, address))
            again = asyncio.run(play(GenericEnvClient, address, 3))
            assert again == episodes[3], "a seed repeats an episode"
        lines = (Path(folder) / "episodes.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    steps = [step for episode in episodes for step in episode]
    faults = sum(fault is not None for _, fault, _ in steps)
    perturbed = sum("perturbation:timeout" in flags for _, _, flags in steps)
    print(f"{len(episodes)} episodes, {len(steps)} steps, {faults} without a usable prediction, {perturbed} perturbed")
    played = [episode for episode in episodes if any(fault is None for _, fault, _ in episode)]
    assert len(written) == len(played) + 1, (len(written), len(played))
    assert sum(len(trajectory["turns"]) for trajectory in written) == len(steps) - faults + sum(f is None for _, f, _ in again)
    print(f"{len(written)} trajectories written; the first: {[(t['action'], t['observation']) for t in written[0]['turns']]}")
    print("all passed")


if __name__ == "__main__":
    main()
