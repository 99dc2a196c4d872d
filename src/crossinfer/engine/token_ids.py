"""Token ids from callers."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from crossinfer.core.errors import RequestError


def check_tokens(tokens: Iterable[int], what: str, context: int, vocabulary: int) -> list[int]:
    """Token ids as Python's integers. `what` they are is for the error.

    Raises RequestError for what the model cannot take.
    """
    try:
        ids = [operator.index(token) for token in tokens]
    except TypeError as error:
        raise RequestError(f"The {what} is not a row of token ids: {error}.") from error
    if not ids:
        raise RequestError(f"The {what} is empty; give at least one token.")
    if len(ids) > context:
        raise RequestError(
            f"The {what} has {len(ids)} tokens and the context is {context}; shorten it, or open "
            "the model with a larger context."
        )
    for token in ids:
        if token not in range(vocabulary):
            raise RequestError(f"The {what} holds token {token}; tokens are 0 to {vocabulary - 1}.")
    return ids
