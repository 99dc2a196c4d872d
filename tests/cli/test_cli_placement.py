"""`--gpu-layers` and `--stream-layers`: what is said, and that answers stay the same."""

from __future__ import annotations

import json

import pytest
from tests.cli.invoke import Result, invoke
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.plan.explain import step_rows


def run(path: str, *options: str) -> Result:
    common = ("run", "abc", "--raw", "--json", "--max-tokens", "4", "--context", "64", "-m", path)
    return invoke([*common, *options])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ""),
        (("--gpu-layers", "2"), ""),
        (("--gpu-layers", "1"), "Of 2 layers 1 on reference and 1 on cpu; embedding on reference"),
        (
            ("--gpu-layers", "0", "--stream-layers"),
            "0 of 2 layers are kept on reference, 2 are streamed to it through 2 slots of ",
        ),
    ],
)
def test_where_layers_are_is_said_on_stderr(
    tiny_models: TinyModels, options: tuple[str, ...], said: str
) -> None:
    path = str(tiny_models("tiny-llama"))
    result = run(path, "--device", "reference,cpu", *options)
    assert result.exit_code == 0, result.output
    assert said in result.stderr
    assert bool(said) == ("layers" in result.stderr)
    with LLM(path, "reference", context=64) as llm:
        expected = llm.generate("abc", max_tokens=4)
    assert json.loads(result.stdout)["tokens"] == list(expected.tokens)


def test_the_plan_is_that_of_the_precision_set(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tiny_models("tiny-llama", "bf16"))
    for precision in ("exact", "fast"):
        monkeypatch.setenv("CROSSINFER_PRECISION", precision)
        options = ("--plan", "--json", "--device", "cpu", "--context", "64")
        result = invoke(["inspect", path, *options])
        assert result.exit_code == 0, result.output
        with LLM(path, "cpu", context=64) as llm:
            expected = [list(row.kernels) for row in step_rows(llm.plan)]
        assert [row["kernels"] for row in json.loads(result.stdout)["plan"]["steps"]] == expected


def test_layers_that_nobody_takes_are_an_error(tiny_models: TinyModels) -> None:
    result = run(str(tiny_models("tiny-llama")), "--device", "reference", "--gpu-layers", "1")
    assert result.exit_code == 1
    assert "name one, as in reference,cpu, or have them streamed" in result.stderr


def test_layers_of_the_api(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-llama")
    with LLM(path, ["reference", "cpu"], context=64, gpu_layers=1) as llm:
        assert llm.placement is not None
        assert llm.placement.startswith("Of 2 layers 1 on reference and 1 on cpu")
        assert llm.plan.split.layers == (0, 1)
        expected = llm.generate("abc", max_tokens=4).tokens
    with LLM(path, "reference", context=64, gpu_layers=0, stream_layers=True) as llm:
        assert llm.plan.split.streamed == {0, 1}
        assert llm.generate("abc", max_tokens=4).tokens == expected
    with LLM(path, "reference", context=64) as llm:
        assert llm.placement is None
