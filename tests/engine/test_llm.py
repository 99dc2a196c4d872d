"""The Python API on a small model."""

from __future__ import annotations

import gc
import itertools
import math
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.tiny_models import TinyModels

import crossinfer
from crossinfer import LLM, FinishReason, FormatError, Generation, RequestError
from crossinfer.backends.reference import ReferenceDevice

PROMPT = list(range(40, 60))


@pytest.fixture(scope="module")
def llm(tiny_models: TinyModels) -> Iterator[LLM]:
    with LLM(tiny_models("tiny-qwen2"), "reference", context=96) as llm:
        yield llm


def test_generation_has_text_tokens_reason_and_stats(llm: LLM) -> None:
    result = llm.generate(PROMPT, max_tokens=10)
    assert isinstance(result, Generation)
    assert len(result.tokens) == 10
    assert result.text == llm.detokenize(result.tokens)
    assert result.finish_reason == "length"
    stats = result.stats
    assert stats.prompt_tokens == 20
    assert stats.generated_tokens == 10
    for figure in (stats.first_token_s, stats.prefill_tokens_per_s, stats.decode_tokens_per_s):
        assert 0 < figure < math.inf
    assert stats.weight_bytes > 1_000_000
    # 2 layers, K and V, 1 head of 32, 16 slots of float32, 6 blocks and the padding block.
    assert stats.kv_bytes == 2 * 2 * 32 * 16 * 4 * 7
    assert stats.activation_bytes > 0


@pytest.mark.parametrize("count", [0, 1, 2])
def test_max_tokens_means_what_it_says(llm: LLM, count: int) -> None:
    result = llm.generate(PROMPT, max_tokens=count)
    assert len(result.tokens) == result.stats.generated_tokens == count
    assert result.finish_reason is FinishReason.LENGTH


def test_greedy_tokens_are_the_argmax_of_logits(llm: LLM) -> None:
    tokens = llm.generate(PROMPT, max_tokens=8).tokens
    logits = llm.logits([*PROMPT, *tokens])
    assert tuple(np.argmax(logits[len(PROMPT) - 1 : -1], axis=1)) == tokens


def test_stream_joins_to_the_text(llm: LLM) -> None:
    stream = llm.stream(PROMPT, max_tokens=12)
    pieces = list(stream)
    assert all(pieces)
    assert "".join(pieces) == stream.result().text == llm.generate(PROMPT, max_tokens=12).text


def test_the_context_ends_a_generation(llm: LLM) -> None:
    for limit in (None, 1000):
        result = llm.generate(PROMPT, max_tokens=limit, logit_bias=_no_end(llm))
        assert len(result.tokens) == 96 - len(PROMPT)
        assert result.finish_reason == "length"
    assert llm.generate([1] * 96).tokens == ()


def test_a_prompt_longer_than_the_context(llm: LLM) -> None:
    with pytest.raises(RequestError, match="97 tokens and the context is 96"):
        llm.generate([1] * 97)


def test_end_of_turn_tokens_end_and_are_not_part_of_the_answer(llm: LLM) -> None:
    end = next(iter(llm.tokenizer.end_ids))
    result = llm.generate(PROMPT, logit_bias={end: 100.0})
    assert result.tokens == ()
    assert result.text == ""
    assert result.finish_reason is FinishReason.STOP


def test_stop_strings_cut_the_text(llm: LLM) -> None:
    text = llm.generate(PROMPT, max_tokens=20, temperature=1.0, seed=3).text
    stop = text[5:8]
    stream = llm.stream(PROMPT, max_tokens=20, temperature=1.0, seed=3, stop=[stop])
    pieces = list(stream)
    assert "".join(pieces) == text[: text.index(stop)] == stream.result().text
    assert stream.result().finish_reason is FinishReason.STOP


def test_the_same_seed_gives_the_same_tokens(llm: LLM) -> None:
    first, again, other = (
        llm.generate(PROMPT, max_tokens=15, temperature=1.5, seed=seed).tokens
        for seed in (11, 11, 12)
    )
    assert first == again != other
    unseeded = {llm.generate(PROMPT, max_tokens=15, temperature=1.5).tokens for _ in range(3)}
    assert len(unseeded) == 3


def test_closing_a_stream_cancels_it(llm: LLM) -> None:
    with llm.stream(PROMPT, max_tokens=None, logit_bias=_no_end(llm)) as stream:
        first = next(stream)
    result = stream.result()
    assert result.finish_reason is FinishReason.CANCELLED
    assert result.text.startswith(first)
    assert 1 <= len(result.tokens) < 76


def test_a_dropped_stream_is_cancelled(llm: LLM) -> None:
    next(llm.stream(PROMPT, max_tokens=None, logit_bias=_no_end(llm)))
    gc.collect()
    deadline = time.monotonic() + 20
    while not llm._engine._scheduler.idle:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_chat_uses_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hello"}]
    prompt = llm.chat_tokens(messages)
    assert "<|im_start|>user\nhello<|im_end|>" in llm.detokenize(prompt, skip_special=False)
    expected = llm.generate(prompt, max_tokens=5)
    assert llm.chat(messages, max_tokens=5).text == expected.text
    assert "".join(llm.stream_chat(messages, max_tokens=5)) == expected.text


def test_logits_come_whole_from_chunks(llm: LLM) -> None:
    tokens = np.random.default_rng(0).integers(0, 300, 90).tolist()
    logits = llm.logits(tokens)
    assert logits.shape == (90, 347)
    assert logits.dtype == np.float32
    assert np.allclose(logits[:30], llm.logits(tokens[:30]), rtol=0, atol=1e-5)


def test_tokens_may_be_an_array(llm: LLM) -> None:
    tokens = np.arange(40, 60)
    assert llm.generate(tokens, max_tokens=3).tokens == llm.generate(PROMPT, max_tokens=3).tokens  # type: ignore[arg-type]
    assert np.array_equal(llm.logits(tokens), llm.logits(PROMPT))  # type: ignore[arg-type]
    for bad in ([1.0, 2.0], "text"):
        with pytest.raises(RequestError, match="not a row of token ids"):
            llm.logits(bad)  # type: ignore[arg-type]


def test_a_context_of_one_token(tiny_models: TinyModels) -> None:
    with LLM(tiny_models("tiny-llama"), "reference", context=1) as llm:
        assert llm.generate([5]).tokens == ()
        assert llm.logits([5]).shape == (1, 347)
        with pytest.raises(RequestError, match="context of at least two tokens"):
            llm.perplexity("two tokens")


def test_the_decode_rate_leaves_the_end_token_out(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(max_tokens: int) -> Generation:
        return llm.generate(PROMPT, max_tokens=max_tokens, temperature=1.0, seed=5)

    tokens = ask(4).tokens
    assert tokens[3] not in tokens[:3]
    clock = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    expected = ask(3).stats.decode_tokens_per_s
    monkeypatch.setattr(llm.tokenizer, "end_ids", frozenset({tokens[3]}))
    ended = ask(4)
    assert ended.finish_reason is FinishReason.STOP
    assert ended.stats.decode_tokens_per_s == expected


def test_perplexity_is_the_exponential_of_the_mean_loss(llm: LLM) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 2
    tokens = llm.tokenize(text)
    assert 2 < len(tokens) <= 96
    scores = llm.logits(tokens).astype(np.float64)[:-1]
    total = np.log(np.exp(scores).sum(axis=1))
    losses = total - scores[np.arange(len(scores)), tokens[1:]]
    assert llm.perplexity(text) == pytest.approx(math.exp(losses.mean()), rel=1e-6)
    long = text * 3
    windows = [llm.tokenize(long)[start : start + 96] for start in range(0, 400, 96)]
    parts = np.concatenate([llm.token_losses(window) for window in windows if len(window) > 1])
    assert llm.perplexity(long) == pytest.approx(math.exp(parts.mean()), rel=1e-6)


def test_tokenize_and_detokenize_round_trip(llm: LLM) -> None:
    text = "Grüße, 世界! <|im_end|>"
    assert llm.detokenize(llm.tokenize(text)) == text


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "The prompt is empty"),
        ([5, 999], {}, "token 999; tokens are 0 to 346"),
        (PROMPT, {"max_tokens": -1}, "max_tokens is -1"),
        (PROMPT, {"temperature": -1.0}, "temperature is -1.0"),
        (PROMPT, {"stop": [""]}, "stop string"),
        (PROMPT, {"logit_bias": {999: 1.0}}, "token 999"),
    ],
)
def test_bad_requests(llm: LLM, prompt: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llm.generate(prompt, **options)


def test_ruling_out_every_token_fails_one_request_alone(llm: LLM) -> None:
    with pytest.raises(RequestError, match="rules out every token"):
        llm.generate(PROMPT, logit_bias=dict.fromkeys(range(347), -math.inf))
    assert llm.generate(PROMPT, max_tokens=1).tokens


def test_several_threads_share_one_model(llm: LLM) -> None:
    expected = {n: llm.generate([n] * 5, max_tokens=6).tokens for n in range(8)}
    found: dict[int, tuple[int, ...]] = {}

    def ask(n: int) -> None:
        found[n] = llm.generate([n] * 5, max_tokens=6).tokens

    threads = [threading.Thread(target=ask, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_timeline_names_the_kernels(llm: LLM) -> None:
    with llm.timeline() as kernels:
        llm.generate(PROMPT, max_tokens=2)
    llm.generate(PROMPT, max_tokens=1)
    names = {kernel.name for kernel in kernels}
    assert {"embed[f32]", "linear[f32]", "attention[f32]", "rms_norm", "argmax"} <= names
    assert sum(kernel.name == "argmax" for kernel in kernels) == 2
    assert all(kernel.duration_s >= 0 for kernel in kernels)
    starts = [kernel.start_s for kernel in kernels]
    assert starts == sorted(starts)


def test_explain_shows_the_plan(llm: LLM) -> None:
    text = llm.explain()
    assert "model.layers.1.self_attn.q_proj" in text
    assert "attention[f32]" in text


def test_the_context_is_bounded_by_the_model(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-qwen2")
    for context in (0, -5, 10**9):
        with pytest.raises(RequestError, match=f"A context of {context} tokens was asked for"):
            LLM(path, "reference", context=context)


@pytest.mark.parametrize("threads", [0, -1])
def test_there_is_at_least_one_thread(tiny_models: TinyModels, threads: int) -> None:
    with pytest.raises(RequestError, match=f"threads is {threads}; it must be at least 1"):
        LLM(tiny_models("tiny-llama"), "reference", threads=threads)


def test_kv_cache_types(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-llama", "q8_0")
    with LLM(path, "reference", context=64) as half:
        assert "attention[f16]" in half.explain()
    with LLM(path, "reference", context=64, kv_dtype="f32") as full:
        assert "attention[f32]" in full.explain()
    with pytest.raises(RequestError, match="'q8' is unknown; f16 and f32 are possible"):
        LLM(path, "reference", kv_dtype="q8")


def test_a_device_that_is_given_stays_open(tiny_models: TinyModels) -> None:
    with ReferenceDevice() as device:
        for _ in range(2):
            with LLM(tiny_models("tiny-llama"), device, context=64) as llm:
                assert llm.generate([5, 6], max_tokens=1).tokens
        assert device.memory_in_use == 0
        device.alloc((4,), crossinfer.core.dtypes.DType.F32)


def test_a_closed_model_says_so(tiny_models: TinyModels) -> None:
    llm = LLM(tiny_models("tiny-llama"), "reference", context=64)
    stream = llm.stream(PROMPT, max_tokens=None)
    llm.close()
    llm.close()
    assert stream.result().finish_reason in (FinishReason.CANCELLED, FinishReason.STOP)
    with pytest.raises(RequestError, match="The model is closed"):
        llm.generate(PROMPT)


def test_a_dropped_model_leaves_no_thread(tiny_models: TinyModels) -> None:
    before = threading.active_count()
    for _ in range(5):
        llm = LLM(tiny_models("tiny-llama"), "reference", context=64)
        llm.generate([5], max_tokens=1)
        del llm
        gc.collect()
    assert threading.active_count() == before


def test_a_stream_keeps_its_model(tiny_models: TinyModels) -> None:
    stream = LLM(tiny_models("tiny-llama"), "reference", context=64).stream(
        PROMPT, max_tokens=5, temperature=2.0, seed=0
    )
    gc.collect()
    assert stream.result().finish_reason is not FinishReason.CANCELLED


@pytest.mark.usefixtures("empty_cache")
def test_without_the_demo_model_one_sentence_says_how_to_get_it() -> None:
    with pytest.raises(FormatError, match="run `crossinfer demo-model` to get it"):
        LLM()


def test_the_public_names_exist() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in crossinfer.__all__:
            assert getattr(crossinfer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        crossinfer.nothing  # noqa: B018


def _no_end(llm: LLM) -> dict[int, float]:
    return dict.fromkeys(llm.tokenizer.end_ids, -math.inf)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_the_debug_ladder(
    level: int,
    tiny_models: TinyModels,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CROSSINFER_DEBUG", str(level))
    with LLM(tiny_models("tiny-llama"), "reference", context=64) as llm:
        llm.generate([5, 6, 7], max_tokens=1)
    shown = capsys.readouterr().err
    assert ("weights" in shown) == (level >= 1)
    assert ("step: 3 rows" in shown) == (level >= 2)
    assert ("barrier: read after write" in shown) == (level >= 3)
