# Everything here is optional: the README's two commands need only cargo.

# The list of recipes.
default:
    @just --list

# The main job.
quickstart:
    cargo run --release -- run pipelines/quickstart.toml

# What CI runs.
ci:
    bash .ci/run

# Tests, faster than `cargo test` where nextest is installed.
test:
    cargo nextest run --release

# Milliseconds and tokens per second of a training step on this machine.
bench:
    cargo run --release --example step

# One training step, ours against PyTorch's on the same weights; needs `pip install -r bench/peers/requirements.txt`.
bench-step:
    python3 bench/peers/cpt_step.py

# The bundled sample again, from its seed.
sample:
    cargo run --release -- record terminal --episodes 8400 --seed 1 --out data/terminal-sample.jsonl.zst

# Licences and advisories of the dependencies.
deny:
    cargo deny check
