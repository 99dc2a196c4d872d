"""The tokenizer of a Hugging Face model folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossinfer.core.errors import TokenizerError, shown
from crossinfer.text.encoders import LibraryEncoder
from crossinfer.text.huggingface_decoder import spelling_of
from crossinfer.text.tokenizer import Tokenizer

Config = Mapping[str, Any]

# More ids than any model has; without a bound, one large number would make a large table.
_MAX_IDS = 1 << 22


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
    there is no file, or it cannot be read, or decodes in a way that is not supported.
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
    spelling = spelling_of(library, path)
    library.no_truncation()
    library.no_padding()
    vocabulary = library.get_vocab(with_added_tokens=True)
    added = library.get_added_tokens_decoder()
    tokens = _by_id(vocabulary, _padded_size(config), path)
    literal = {
        i: (str.encode if token.special else spelling.spell_added)(token.content)
        for i, token in added.items()
    }
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
        LibraryEncoder(library),
        tokens,
        spell=spelling.spell,
        literal=literal,
        control=(i for i, token in added.items() if token.special),
        added=added,
        bos_id=bos,
        eos_id=eos,
        end_ids=ends,
        add_bos=bool(add_bos),
        space_prefix=spelling.space_prefix,
        strips={
            i: (token.lstrip, token.rstrip)
            for i, token in added.items()
            if token.lstrip or token.rstrip
        },
    )


def _by_id(vocabulary: Mapping[str, int], padded_size: int, path: Path) -> list[str]:
    """The tokens by their ids; ids that no token has stay empty and decode to nothing."""
    size = max(*vocabulary.values(), padded_size - 1, -1) + 1
    if size > _MAX_IDS:
        raise TokenizerError(
            f"{path} with config.json beside it has ids up to {size - 1}; at most {_MAX_IDS} are "
            "supported, so one of the files is damaged."
        )
    tokens = [""] * size
    for token, i in vocabulary.items():
        if tokens[i]:
            first, second = map(shown, sorted((tokens[i], token)))
            raise TokenizerError(
                f"{path} gives the id {i} to both {first} and {second}; download it again."
            )
        tokens[i] = token
    return tokens


def _ids(config: Config, key: str) -> list[int]:
    """The ids under `key`, which may be one, a list, or absent."""
    value = config.get(key)
    values = value if isinstance(value, list) else [value]
    return [i for i in values if isinstance(i, int) and not isinstance(i, bool)]


def _named(config: Config, key: str, vocabulary: Mapping[str, int]) -> int | None:
    """The id of the token that `key` names, as a string or as an object with its content."""
    value = config.get(key)
    text = value.get("content") if isinstance(value, Mapping) else value
    return vocabulary.get(text) if isinstance(text, str) else None


def _padded_size(config: Config) -> int:
    value = config.get("vocab_size")
    return value if isinstance(value, int) else 0
