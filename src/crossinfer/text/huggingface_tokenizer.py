"""The tokenizer of a Hugging Face model folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossinfer.core.errors import TokenizerError
from crossinfer.text.tokenizer import Tokenizer

Config = Mapping[str, Any]


def tokenizer_from_huggingface(
    path: Path | None,
    *,
    config: Config,
    generation_config: Config | None = None,
    tokenizer_config: Config | None = None,
) -> Tokenizer:
    """The tokenizer in the tokenizer.json at `path`, with special ids from the folder's configs.

    `config` (config.json) tells the padded vocabulary size, it and generation_config.json the ids
    that end a turn, tokenizer_config.json BOS, EOS and add_bos_token. Raises TokenizerError when
    there is no file, or it cannot be read, or is not a byte-level BPE.
    """
    if path is None:
        raise TokenizerError("The model folder has no tokenizer.json; download it as well.")
    generation_config = generation_config or {}
    tokenizer_config = tokenizer_config or {}
    import tokenizers

    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"{path} is not a tokenizer that can be read: {error}.") from error
    if not isinstance(library.decoder, tokenizers.decoders.ByteLevel):
        raise TokenizerError(
            f"{path} has the decoder {type(library.decoder).__name__}; only byte-level "
            "vocabularies, decoder ByteLevel, are supported."
        )
    library.no_truncation()
    library.no_padding()
    vocabulary = library.get_vocab(with_added_tokens=True)
    added = library.get_added_tokens_decoder()
    size = max(*vocabulary.values(), _padded_size(config) - 1, -1) + 1
    tokens = [""] * size  # ids that no token has stay empty and decode to nothing
    for token, i in vocabulary.items():
        tokens[i] = token
    ends = [i for source in (generation_config, config) for i in _ids(source, "eos_token_id")]
    bos = _named(tokenizer_config, "bos_token", vocabulary)
    if bos is None:
        bos = next(iter(_ids(generation_config, "bos_token_id")), None)
    eos = _named(tokenizer_config, "eos_token", vocabulary)
    if eos is None:
        eos = next(iter(ends), None)
    add_bos = tokenizer_config.get("add_bos_token")
    if add_bos is None:  # then the file's post-processor decides; it shows on an empty text
        add_bos = library.encode("", add_special_tokens=True).ids[:1] == [bos]
    return Tokenizer(
        library,
        tokens,
        control=(i for i, token in added.items() if token.special),
        literal={i: token.content.encode("utf-8", "replace") for i, token in added.items()},
        bos_id=bos,
        eos_id=eos,
        end_ids=ends,
        add_bos=bool(add_bos),
    )


def _ids(config: Config, key: str) -> list[int]:
    """The ids under `key`, which may be one, a list, or absent."""
    value = config.get(key)
    values = value if isinstance(value, list) else [value]
    return [i for i in values if isinstance(i, int)]


def _named(config: Config, key: str, vocabulary: Mapping[str, int]) -> int | None:
    """The id of the token that `key` names, as a string or as an object with its content."""
    value = config.get(key)
    text = value.get("content") if isinstance(value, Mapping) else value
    return vocabulary.get(text) if isinstance(text, str) else None


def _padded_size(config: Config) -> int:
    value = config.get("vocab_size")
    return value if isinstance(value, int) else 0
