"""Opens model files with random changes for a time; anything but a plain error is a finding.

    python -m tests.fuzz_files --seconds 600

Each case is a pure function of its seed, which a finding names; `--case SEED` runs one again.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import random
import secrets
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.formats.bad_files import load
from tests.formats.small_model import small_folder, small_gguf, small_split
from tests.mutations import mutate_gguf, mutate_json, mutate_safetensors

from crossinfer.core.errors import CrossinferError
from crossinfer.formats.model_file import open_model_file
from crossinfer.testing.models import write_model
from crossinfer.text.model_text import chat_template_source, load_tokenizer

_SECONDS = 2.0
_HANG_SECONDS = 20
_CHARACTERS = 2000
_ADDRESS_BYTES = 2 << 30


class FindingError(AssertionError):
    """A case that did not end as it must."""


class Fuzzer:
    """Sound models in a folder, and the cases made of them."""

    def __init__(self, folder: Path) -> None:
        self._case = folder / "case"
        self._seeds = folder / "seeds"
        for name in ("gguf", "split", "folder", "index", "text"):
            (self._seeds / name).mkdir(parents=True)
        small_gguf(self._seeds / "gguf")
        small_split(self._seeds / "split")
        small_folder(self._seeds / "folder")
        write_model("tiny-llama", "q8_0", self._seeds / "text" / "model.gguf")
        write_model("tiny-qwen2", "f16", self._seeds / "index", container="safetensors", shards=2)
        self._kinds: tuple[Callable[[random.Random], Path], ...] = (
            self._gguf,
            self._gguf,
            self._text,
            self._split,
            self._config,
            self._weights,
            self._index,
        )

    def run(self, seed: int) -> bool:
        """One case; whether the file was accepted. Raises FindingError."""
        random_ = random.Random(seed)
        kind = random_.choice(self._kinds)
        shutil.rmtree(self._case, ignore_errors=True)
        path = kind(random_)
        start = time.perf_counter()
        try:
            accepted = _open(path)
        except Exception as error:
            raise FindingError(f"case {seed} ({kind.__name__}): {error!r}") from error
        if time.perf_counter() - start > _SECONDS:
            raise FindingError(f"case {seed} ({kind.__name__}) took more than {_SECONDS} s")
        return accepted

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._seeds / name, self._case))

    def _gguf(self, random_: random.Random) -> Path:
        path = self._copy("gguf") / "model.gguf"
        raw = mutate_gguf(path.read_bytes(), random_)
        if random_.random() < 0.2:
            raw = raw[:4] + b"\2" + raw[5:]
        path.write_bytes(raw)
        return path

    def _text(self, random_: random.Random) -> Path:
        path = self._copy("text") / "model.gguf"
        path.write_bytes(mutate_gguf(path.read_bytes(), random_))
        return path

    def _split(self, random_: random.Random) -> Path:
        paths = sorted(self._copy("split").iterdir())
        changed = random_.choice(paths)
        raw = changed.read_bytes()
        match random_.randrange(4):
            case 0:
                changed.write_bytes(random_.choice(paths).read_bytes())
            case 1:
                changed.unlink()
            case _:
                changed.write_bytes(mutate_gguf(raw, random_))
        return random_.choice((paths[0], paths[0], paths[1]))

    def _config(self, random_: random.Random) -> Path:
        return self._json(random_, "folder", "config.json")

    def _index(self, random_: random.Random) -> Path:
        names = ("model.safetensors.index.json", "config.json", "generation_config.json",
                 "tokenizer_config.json", "tokenizer.json")  # fmt: skip
        return self._json(random_, "index", random_.choice(names))

    def _json(self, random_: random.Random, folder: str, name: str) -> Path:
        path = self._copy(folder)
        text = mutate_json(json.loads((path / name).read_bytes()), random_)
        (path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        return path

    def _weights(self, random_: random.Random) -> Path:
        path = self._copy("folder")
        file = path / "model.safetensors"
        file.write_bytes(mutate_safetensors(file.read_bytes(), random_))
        return path


def _open(path: Path) -> bool:
    """Whether the model at `path` opens, with all its weights and its text."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        try:
            load(path)
            file = open_model_file(path)
            with contextlib.suppress(CrossinferError):
                load_tokenizer(file)
            chat_template_source(file)
        except CrossinferError as error:
            message = str(error)
            if not message or "\n" in message or len(message) > _CHARACTERS:
                raise ValueError(f"the message is no plain sentence: {message!r}") from error
            return False
    return True


def fuzz(folder: Path, seconds: float, seed: int) -> tuple[int, int]:
    """(cases, accepted ones) within the time, from case `seed` on. Raises FindingError."""
    fuzzer = Fuzzer(folder)
    end = time.monotonic() + seconds
    cases = accepted = 0
    while time.monotonic() < end:
        accepted += fuzzer.run(seed + cases)
        cases += 1
    return cases, accepted


def _limit_memory() -> None:
    """Allocations driven by a claimed size fail, instead of going unnoticed."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_files", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--case", type=int, help="run this one case again")
    options = parser.parse_args()
    _limit_memory()
    with tempfile.TemporaryDirectory(prefix="crossinfer-fuzz-") as folder:
        if options.case is not None:
            print("accepted" if Fuzzer(Path(folder)).run(options.case) else "refused")
            return
        faulthandler.dump_traceback_later(options.seconds + _HANG_SECONDS, exit=True)
        seed = secrets.randbits(48)
        cases, accepted = fuzz(Path(folder), options.seconds, seed)
    print(f"{cases} cases from {seed} on, {accepted} of them sound: nothing found")


if __name__ == "__main__":
    main()
