"""A model file's text side: its tokenizer and its chat template."""

from __future__ import annotations

from crossinfer.core.errors import TemplateError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.model_file import ModelFile
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.tokenizer import Tokenizer


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
