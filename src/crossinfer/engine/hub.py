"""Models by their id on the Hugging Face Hub: `organisation/name` or `organisation/name:quant`.

`huggingface_hub` (an optional extra) does the transfer, resumes one that was cut off, and keeps the
files in the cache that it shares with other programs. Its environment variables hold: HF_HOME,
HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE. It compares sizes; the hashes are compared here, once for
each file.
"""

from __future__ import annotations

import hashlib
import os.path
import re
from pathlib import Path
from typing import Any

from crossinfer.core.cache import atomic_write, cache_folder
from crossinfer.core.errors import FormatError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.engine.hub_choice import choose_files

_ID = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+?)(:(?P<quant>[\w.-]+))?")
_FILE_ENDINGS = (".gguf", ".safetensors", ".json", ".bin")
_CHUNK_BYTES = 1 << 20


def find_model(name: str | Path, progress: Progress = no_progress) -> Path:
    """The path of the model that `name` means: a path that exists, or what the Hub has.

    A file is downloaded once; `progress` counts its bytes. Raises FormatError.
    """
    path = Path(name)
    asked = _ID.fullmatch(path.as_posix())
    if asked is None or path.suffix.lower() in _FILE_ENDINGS or os.path.exists(path):
        return path  # what is not there is told when it is opened
    repository, quant = asked["repository"], asked["quant"]
    try:
        import huggingface_hub
    except ImportError:
        raise FormatError(
            f"There is no file or folder {path}; to get models from the Hugging Face Hub by such "
            "a name, install the extra: pip install 'crossinfer[hub]'."
        ) from None
    return _Hub(huggingface_hub, repository, progress).fetch(quant)


class _Hub:
    """One repository, through the `huggingface_hub` module."""

    def __init__(self, module: Any, repository: str, progress: Progress) -> None:
        self._module = module
        self._api = module.HfApi()
        self._repository = repository
        self._progress = progress

    def fetch(self, quant: str | None) -> Path:
        """The local path of the model. Raises FormatError."""
        if self._module.constants.HF_HUB_OFFLINE:
            return self._fetch_cached(quant)
        try:
            info = self._api.model_info(self._repository, files_metadata=True)
            files = {entry.rfilename: entry for entry in info.siblings or ()}
            chosen = choose_files(self._repository, files, quant)
            paths = [self._download(files[name]) for name in chosen]
        except FormatError:
            raise
        except Exception as error:  # the module's own, its HTTP library's, the file system's
            raise FormatError(self._explain(error)) from error
        return self._model_path(paths)

    def _fetch_cached(self, quant: str | None) -> Path:
        """The model as far as it was downloaded before."""
        try:
            folder = Path(self._api.snapshot_download(self._repository, local_files_only=True))
        except Exception as error:
            raise FormatError(
                f"{self._repository} was not downloaded before, and HF_HUB_OFFLINE forbids to do "
                "it now; unset it, or name a file."
            ) from error
        files = (file for file in folder.rglob("*") if file.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        chosen = choose_files(self._repository, names, quant)
        return self._model_path([folder / name for name in chosen])

    def _model_path(self, paths: list[Path]) -> Path:
        return paths[0] if paths[0].suffix.lower() == ".gguf" else paths[0].parent

    def _download(self, entry: Any) -> Path:
        """One file, its hash compared with the repository's.

        The revision is left to the library, which otherwise would not find it offline.
        """
        path = Path(
            self._api.hf_hub_download(
                self._repository,
                entry.rfilename,
                tqdm_class=_bar_class(self._progress, f"Downloading {entry.rfilename}"),
            )
        )
        expected = entry.lfs.sha256 if entry.lfs is not None else entry.blob_id
        # Which file was found right, so that another download of it is checked anew.
        checked = cache_folder("hub") / f"{expected}.checked"
        state = path.stat()
        identity = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()
        if checked.exists() and checked.read_bytes() == identity:
            return path
        found = self._hash(path, git=entry.lfs is None)
        if found != expected:
            path.resolve().unlink()  # the file itself; the path is a link to it
            raise FormatError(
                f"{entry.rfilename} of {self._repository} has the hash {found}, not {expected}, so "
                "it was not kept; try again."
            )
        with atomic_write(checked) as file:
            file.write(identity)
        return path

    def _hash(self, path: Path, git: bool) -> str:
        """SHA-256 of large files, git's SHA-1 of the others, as the Hub lists them."""
        total, done = path.stat().st_size, 0
        digest = hashlib.sha1(b"blob %d\0" % total) if git else hashlib.sha256()
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                self._progress(f"Checking {path.name}", done, total)
        return digest.hexdigest()

    def _explain(self, error: Exception) -> str:
        errors = self._module.errors
        endpoint = self._module.constants.ENDPOINT
        if isinstance(error, errors.GatedRepoError):
            return (
                f"{self._repository} is gated: accept its terms on {endpoint}/{self._repository} "
                "and set HF_TOKEN."
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return (
                f"There is no file or folder {self._repository}, and no model of that name on "
                f"{endpoint} (or it is private: set HF_TOKEN)."
            )
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return (
            f"{self._repository} could not be downloaded from {endpoint}: {reason}. Try again: "
            "what has arrived is kept. Or set HF_HUB_OFFLINE=1 to use what was downloaded before."
        )


def _bar_class(progress: Progress, task: str) -> type:
    """What `huggingface_hub` takes for tqdm, passing on to `progress`."""

    class Bar:
        def __init__(self, *_: Any, total: int | None = None, initial: int = 0, **__: Any) -> None:
            self.total, self.n = total or 0, initial

        def update(self, count: float | None = 1) -> None:
            self.n = min(self.n + int(count or 0), self.total)
            progress(task, self.n, self.total)

        def update_transfer(self, count: float) -> None:
            """Bytes on the wire; that this exists keeps them from having a bar of their own."""

        def close(self) -> None:
            progress(task, self.total, self.total)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def __getattr__(self, name: str) -> Any:
            """Everything else that tqdm has only changes how a bar looks."""
            return lambda *_, **__: None

    return Bar
