"""Writes smollm2.npz and qwen2.5-coder-0.5b.npz: what transformers computes with real weights.

Needs `pip install torch transformers gguf accelerate`, 4 GB of memory and some minutes. Run
from the repository's root as

    python -m tests.golden.make_real_logits SMOLLM2.gguf QWEN.gguf

with SmolLM2-135M-Instruct (Q4_1) and Qwen2.5-Coder-0.5B-Instruct (Q4_K_M). transformers loads the
dequantized weights and computes in float32 with eager attention; `check_weights` compares them
all with gguf-py's own dequantization first.

Keys of each file; T tokens of a prompt, R rows (positions) kept of it:

    text_ids, code_ids      int32[N]    the first tokens of text.txt and code.py.txt, without BOS
    text_nll, code_nll      float32[N-1]  -log p(ids[i + 1] | ids[:i + 1]), each file one sequence
    mean_nll                float64     over both files; perplexity is its exponential
    prompt{i}_text          str         what was tokenized, for i in 0..7; 0 to 3 are chats
    prompt{i}_ids           int32[T]    its tokens, control tokens parsed, without BOS
    prompt{i}_rows          int32[R]    positions in it, the last is T - 1; what follows holds the
                                        distribution of the token behind each
    prompt{i}_top_ids       int32[R, 2048]    the likeliest next tokens, in falling order
    prompt{i}_top_logprobs  float32[R, 2048]  their log-probabilities
    prompt{i}_log_tail      float32[R, 512]   log of the probability of the other tokens, those
                                        whose id is the same modulo 512 together
    greedy{i}_ids           int32[<=40] the greedy continuation of prompt i, for i in 0, 1; it ends
                                        early only behind an end-of-turn token
    greedy{i}_gaps          float32     the two highest logits' difference at each of its steps

The KL divergence over the 2048 tokens and the 512 buckets is a lower bound of the full one, since
merging outcomes never raises it; so fine a partition hides little. For chats the text is what the
model's own template renders.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("smollm2", "qwen2.5-coder-0.5b")
FOLDER = Path(__file__).parent
FILES = {"text": ("text.txt", 1300), "code": ("code.py.txt", 700)}
TOP = 2048
TAIL_BUCKETS = 512
GREEDY_STEPS = 40
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CHATS = [
    "Why is the sky blue?",
    "Write a Python function that checks whether a string is a palindrome.",
    "Translate to French: The cat sleeps on the warm roof.",
    "List three differences between TCP and UDP, one line each.",
]
RAW = [
    "The capital of France is",
    "Once upon a time, in a village at the foot of a high mountain, there lived",
    "import numpy as np\n\n\ndef softmax(x: np.ndarray) -> np.ndarray:\n    ",
    "1, 1, 2, 3, 5, 8, 13, 21,",
]


def check_weights(model: Any, path: Path) -> None:
    """Raises AssertionError unless all loaded weights are gguf-py's dequantized ones."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    loaded = model.state_dict()
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    for tensor in GGUFReader(path).tensors:
        stem, kind = tensor.name.rsplit(".", 1)
        *block, part = stem.split(".")
        layer = f"model.layers.{block[1]}." if block else ""
        expected = dequantize(tensor.data, tensor.tensor_type)
        if part in heads and model.config.model_type == "llama":
            # GGUF interleaves the two halves of each rotary head of a llama model.
            rows = expected.reshape(heads[part], -1, 2, expected.shape[-1])
            expected = rows.swapaxes(1, 2).reshape(expected.shape)
        actual = loaded.pop(f"{layer}{NAMES[part]}.{kind}").numpy()
        assert np.array_equal(actual, expected), f"{tensor.name} differs"
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    assert loaded.keys() == tied, f"{loaded.keys()} are not in the file"


def reference_tokenizer(model: str, path: Path) -> Any:
    """transformers' tokenizer for the GGUF file at `path`, with the rules its loader drops.

    It ignores `tokenizer.ggml.pre` and normalizers; the published tokenizer.json of SmolLM2 splits
    off single digits before GPT-2's rules, that of Qwen2.5 normalizes to NFC.
    """
    from tokenizers import normalizers, pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    library = tokenizer.backend_tokenizer
    if model == "smollm2":
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    else:
        library.normalizer = normalizers.NFC()
    return tokenizer


def main(paths: list[str]) -> None:
    """Writes the golden files for the GGUF files at `paths`, one for each of MODELS."""
    for name, path in zip(MODELS, paths, strict=True):
        arrays = golden_arrays(name, Path(path))
        print(f"{name}: mean nll {arrays['mean_nll']:.6f} of {count(arrays)} tokens")
        np.savez_compressed(FOLDER / f"{name}.npz", allow_pickle=False, **arrays)


def count(arrays: dict[str, Any]) -> int:
    """How many tokens the mean is over."""
    return sum(arrays[f"{key}_nll"].size for key in FILES)


def golden_arrays(name: str, path: Path) -> dict[str, Any]:
    """All keys of one golden file."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = reference_tokenizer(name, path)
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    model.eval()
    check_weights(model, path)

    def logits(ids: list[int]) -> Any:
        with torch.no_grad():
            return model(torch.tensor([ids]), use_cache=False).logits[0].double()

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    arrays: dict[str, Any] = {}
    for key, (file, length) in FILES.items():
        ids = encode((FOLDER / file).read_text(encoding="utf-8"))[:length]
        logprobs = torch.log_softmax(logits(ids)[:-1], dim=-1)
        nll = -logprobs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        arrays[f"{key}_ids"] = np.array(ids, np.int32)
        arrays[f"{key}_nll"] = nll.numpy().astype(np.float32)
    total = sum(arrays[f"{key}_nll"].sum(dtype=np.float64) for key in FILES)
    arrays["mean_nll"] = np.float64(total / count(arrays))

    chats = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        for content in CHATS
    ]
    for i, text in enumerate(chats + RAW):
        ids = encode(text)
        rows = sorted({len(ids) * part // 4 - 1 for part in (1, 2, 3, 4)} - {-1})
        logprobs = torch.log_softmax(logits(ids)[rows], dim=-1)
        ordered, order = logprobs.sort(dim=-1, descending=True)
        arrays[f"prompt{i}_text"] = np.array(text)
        arrays[f"prompt{i}_ids"] = np.array(ids, np.int32)
        arrays[f"prompt{i}_rows"] = np.array(rows, np.int32)
        arrays[f"prompt{i}_top_ids"] = order[:, :TOP].numpy().astype(np.int32)
        arrays[f"prompt{i}_top_logprobs"] = ordered[:, :TOP].numpy().astype(np.float32)
        tail = torch.zeros(len(rows), TAIL_BUCKETS, dtype=torch.float64)
        tail.scatter_add_(1, order[:, TOP:] % TAIL_BUCKETS, ordered[:, TOP:].exp())
        arrays[f"prompt{i}_log_tail"] = tail.log().numpy().astype(np.float32)

    for i, text in enumerate(chats[:2]):
        ids = encode(text)
        continuation: list[int] = []
        gaps: list[float] = []
        while len(continuation) < GREEDY_STEPS and tokenizer.eos_token_id not in continuation:
            best = logits(ids + continuation)[-1].topk(2)
            continuation.append(int(best.indices[0]))
            gaps.append(float(best.values[0] - best.values[1]))
        arrays[f"greedy{i}_ids"] = np.array(continuation, np.int32)
        arrays[f"greedy{i}_gaps"] = np.array(gaps, np.float32)
        print(f"{name}: {tokenizer.decode(continuation)!r}")
    return arrays


if __name__ == "__main__":
    main(sys.argv[1:])
