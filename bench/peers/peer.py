"""What the Python side shares: packages or exit 77, all threads, and lines that bench/measure.py reads."""
import importlib
import os
import sys
import time

# Nothing is fetched, and no progress bar is drawn.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1", TRL_EXPERIMENTAL_SILENCE="1",
                  TOKENIZERS_PARALLELISM="true", HF_HOME=os.environ.get("HF_HOME", "/tmp/worldloom-bench-hf"))


def need(*names):
    """The modules, or the end of the program with what is missing."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as missing:
        print(f"{missing}; pip install -r bench/peers/requirements.txt")
        sys.exit(77)


def unit(what, start):
    print(f"{what}, all {(time.perf_counter() - start) * 1e3:.1f} ms", flush=True)


def ready():
    """Imports are done; the work begins."""
    print("ready", flush=True)


def load(folder, dtype=None):
    torch, transformers = need("torch", "transformers")
    torch.set_num_threads(int(os.environ.get("RAYON_NUM_THREADS", os.cpu_count())))
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype or torch.float32, attn_implementation="sdpa")


def word_tokenizer(size):
    """A word for each id: `t17` is 17. The last id stands for padding and the end."""
    tokenizers, transformers = need("tokenizers", "transformers")
    vocabulary = {f"t{number}": number for number in range(size)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="t0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    last = f"t{size - 1}"
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token=last, eos_token=last, padding_side="left")
