"""What a chat template writes behind an answer ends a turn, though no file names it as an end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.tiny_models import TinyModels

from crossinfer import LLM, FinishReason

TEMPLATE = "{% for m in messages %}{{ m.content }}<|im_start|>\n{% endfor %}"


def test_the_template_names_an_end(tiny_models: TinyModels, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_models("tiny-qwen2", container="safetensors"), folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "chat_template": TEMPLATE}), encoding="utf-8")
    with LLM(folder, "reference", context=96) as llm:
        (end,) = llm.tokenize("<|im_start|>", parse_special=True)
        forced = {end: 1000.0}
        answer = llm.chat([{"role": "user", "content": "hi"}], max_tokens=3, logit_bias=forced)
        assert (answer.text, answer.tokens) == ("", ())
        assert answer.finish_reason is FinishReason.STOP
        # Without the template it is a control token like others: no end, and not shown.
        plain = llm.generate("hi", max_tokens=3, logit_bias=forced)
        assert (plain.text, plain.tokens) == ("", (end,) * 3)
        assert plain.finish_reason is FinishReason.LENGTH
