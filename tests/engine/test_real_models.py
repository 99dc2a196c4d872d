"""Real weights against transformers in float32 on the same dequantized weights."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.golden.reader import GREEDY, PROMPTS, RealGolden

from crossinfer import LLM


@dataclasses.dataclass(frozen=True)
class Limits:
    """How far a device may be from float32."""

    perplexity: float
    divergence: float
    near_tie: float
    """Two logits nearer than this may change places."""
    text: int
    code: int
    """Tokens of either text whose perplexity the quick test takes. Rounding to int8 changes each
    token's loss at random: over 400 the standard error of the mean is 0.7%, over 2,000 0.3%."""


# The reference rounds the KV cache to float16 and nothing else; the CPU rounds activations to int8.
LIMITS = {
    "reference": Limits(perplexity=5e-3, divergence=1e-3, near_tie=0.02, text=250, code=150),
    "cpu": Limits(perplexity=1e-2, divergence=1e-2, near_tie=0.5, text=1300, code=700),
}


@pytest.fixture(scope="module", params=LIMITS)
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def limits(device: str) -> Limits:
    return LIMITS[device]


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path, device: str) -> Iterator[LLM]:
    with LLM(smollm2_path, device, context=2048) as llm:
        yield llm


@pytest.fixture(scope="module")
def qwen_coder(qwen_coder_path: Path, device: str) -> Iterator[LLM]:
    with LLM(qwen_coder_path, device, context=2048) as llm:
        yield llm


@pytest.fixture(scope="module")
def smollm2_golden() -> RealGolden:
    return RealGolden("smollm2")


@pytest.fixture(scope="module")
def qwen_golden() -> RealGolden:
    return RealGolden("qwen2.5-coder-0.5b")


def check_perplexity(llm: LLM, golden: RealGolden, limits: Limits, text: int, code: int) -> None:
    """Perplexity over the first tokens of both texts is near the golden one."""
    ours, expected = [], []
    for key, count in (("text", text), ("code", code)):
        tokens = golden[f"{key}_ids"][:count].tolist()
        ours.append(llm.token_losses(tokens))
        expected.append(golden[f"{key}_nll"][: len(tokens) - 1])
    difference = np.concatenate(ours).mean() - np.concatenate(expected).mean(dtype=np.float64)
    assert abs(math.expm1(difference)) < limits.perplexity


def check_divergence(llm: LLM, golden: RealGolden, limits: Limits) -> None:
    """The KL divergence is small over the kept positions of every prompt."""
    found = []
    for prompt in range(PROMPTS):
        logits = llm.logits(golden[f"prompt{prompt}_ids"].tolist())
        found.append(golden.divergence(prompt, logits))
    assert np.concatenate(found).mean() < limits.divergence


def check_greedy(llm: LLM, golden: RealGolden, limits: Limits, steps: int) -> None:
    """Greedy answers are the golden ones up to a near-tie."""
    for prompt in range(GREEDY):
        expected = golden[f"greedy{prompt}_ids"].tolist()
        near = np.flatnonzero(golden[f"greedy{prompt}_gaps"] < limits.near_tie)
        sure = int(near[0]) if len(near) else len(expected)
        tokens = llm.generate(
            golden[f"prompt{prompt}_ids"].tolist(), max_tokens=min(steps, sure)
        ).tokens
        assert list(tokens) == expected[: len(tokens)]


def test_smollm2_perplexity(smollm2: LLM, smollm2_golden: RealGolden, limits: Limits) -> None:
    check_perplexity(smollm2, smollm2_golden, limits, limits.text, limits.code)


def test_smollm2_divergence(smollm2: LLM, smollm2_golden: RealGolden, limits: Limits) -> None:
    check_divergence(smollm2, smollm2_golden, limits)


def test_smollm2_greedy_answers(smollm2: LLM, smollm2_golden: RealGolden, limits: Limits) -> None:
    check_greedy(smollm2, smollm2_golden, limits, steps=15)


def test_smollm2_knows_its_capitals(smollm2: LLM) -> None:
    assert smollm2.generate("The capital of France is", max_tokens=1).text == " Paris"


def test_the_divergence_notices_a_wrong_model(smollm2: LLM, smollm2_golden: RealGolden) -> None:
    """The measure itself: shifted logits or a slightly cooler softmax are caught."""
    logits = smollm2.logits(smollm2_golden["prompt4_ids"].tolist())
    assert smollm2_golden.divergence(4, logits * 1.2).mean() > 1e-2
    assert smollm2_golden.divergence(4, np.roll(logits, 1, axis=1)).mean() > 1


@pytest.mark.slow
def test_smollm2_perplexity_over_2000_tokens(
    smollm2: LLM, smollm2_golden: RealGolden, limits: Limits
) -> None:
    check_perplexity(smollm2, smollm2_golden, limits, text=1300, code=700)


@pytest.mark.slow
def test_qwen_coder_perplexity_over_2000_tokens(
    qwen_coder: LLM, qwen_golden: RealGolden, limits: Limits
) -> None:
    check_perplexity(qwen_coder, qwen_golden, limits, text=1300, code=700)


@pytest.mark.slow
def test_qwen_coder_divergence(qwen_coder: LLM, qwen_golden: RealGolden, limits: Limits) -> None:
    check_divergence(qwen_coder, qwen_golden, limits)


@pytest.mark.slow
def test_qwen_coder_greedy_answers(
    qwen_coder: LLM, qwen_golden: RealGolden, limits: Limits
) -> None:
    check_greedy(qwen_coder, qwen_golden, limits, steps=40)


@pytest.mark.slow
def test_qwen_coder_writes_a_function_that_works(qwen_coder: LLM) -> None:
    task = "Write a Python function that checks whether a string is a palindrome."
    text = qwen_coder.chat([{"role": "user", "content": task}], max_tokens=400).text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:1]
    name = re.findall(r"^def (\w+)", code, re.MULTILINE)[0]
    cases = {
        "": True,
        "a": True,
        "abba": True,
        "racecar": True,
        "ab": False,
        "abcda": False,
        "palindrome": False,
        "12321": True,
    }
    program = f"{code}\nassert [{name}(s) for s in {list(cases)}] == {list(cases.values())}\n"
    # In a process of its own: the program is a model's.
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=20)
