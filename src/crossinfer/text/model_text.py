"""A model file's text side: its tokenizer and its chat template."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from crossinfer.core.errors import TemplateError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.model_file import ModelFile
from crossinfer.text.chat_prompt import chat_template_for, encode_chat, turn_end_ids
from crossinfer.text.chat_template import ChatTemplate, Message
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.tokenizer import Tokenizer


class ModelText:
    """Both sides at once: texts and conversations to tokens. Several threads may share one."""

    def __init__(self, file: ModelFile) -> None:
        """Reads the vocabulary; the template is looked at when the first chat asks for it.

        Raises TokenizerError, TemplateError.
        """
        self.tokenizer = load_tokenizer(file)
        self._template_source = chat_template_source(file)

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The prompt of a conversation. Raises TemplateError, TokenizerError."""
        return encode_chat(self.tokenizer, self._template, messages)

    @functools.cached_property
    def chat_end_ids(self) -> frozenset[int]:
        """The tokens that end an answer in a conversation. Raises TemplateError."""
        return self.tokenizer.end_ids | turn_end_ids(self.tokenizer, self._template)

    @functools.cached_property
    def _template(self) -> ChatTemplate:
        return chat_template_for(self._template_source, self.tokenizer)


def load_tokenizer(file: ModelFile) -> Tokenizer:
    """The tokenizer of a model file. Raises TokenizerError."""
    if isinstance(file, GGUFFile):
        return tokenizer_from_gguf(file.metadata)
    # Each kind of file leaves the other kind's modules out of a start.
    from crossinfer.text.huggingface_tokenizer import tokenizer_from_huggingface

    return tokenizer_from_huggingface(
        file.tokenizer,
        config=file.config,
        generation_config=file.generation_config,
        tokenizer_config=file.tokenizer_config,
    )


def chat_template_source(file: ModelFile) -> str | None:
    """The Jinja source of a model's chat template, if it has one. Raises TemplateError."""
    if not isinstance(file, GGUFFile):
        return file.chat_template
    source = file.metadata.get("tokenizer.chat_template")
    if source is not None and not isinstance(source, str):
        raise TemplateError(f"{file.path}: tokenizer.chat_template is not a text.")
    return source
