"""A stand-in for the Hugging Face Hub: the endpoints that `huggingface_hub` uses to download."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LFS_ENDINGS = (".gguf", ".safetensors")


class StandIn:
    """One repository. `requests` lists what was asked for, with its range."""

    def __init__(self, repository: str, files: Mapping[str, bytes]) -> None:
        self.repository = repository
        self.files = dict(files)
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut: dict[str, int] = {}
        """Files whose first transfer ends after so many bytes."""
        self.corrupt: set[str] = set()
        """Files that arrive with another first byte."""
        self.status: int | None = None
        """What every request is answered with, if anything."""
        self.endpoint = ""

    def listing(self) -> dict[str, Any]:
        return {
            "id": self.repository,
            "modelId": self.repository,
            "sha": COMMIT,
            "siblings": [self._entry(name, data) for name, data in self.files.items()],
        }

    def _entry(self, name: str, data: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "rfilename": name,
            "size": len(data),
            "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
        }
        if name.endswith(_LFS_ENDINGS):
            entry["lfs"] = {"sha256": self.etag(name), "size": len(data), "pointerSize": 130}
        return entry

    def etag(self, name: str) -> str:
        data = self.files[name]
        if name.endswith(_LFS_ENDINGS):
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextlib.contextmanager
def serve(stand_in: StandIn) -> Iterator[StandIn]:
    """The stand-in, answering at its `endpoint` until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            stand_in.requests.append((self.command, path, self.headers.get("Range")))
            prefix = f"/{stand_in.repository}/resolve/main/"
            if stand_in.status is not None:
                self._send(stand_in.status, b"", {}, body)
            elif path.startswith(f"/api/models/{stand_in.repository}"):
                self._send(200, json.dumps(stand_in.listing()).encode(), {}, body)
            elif path.startswith(prefix) and path.removeprefix(prefix) in stand_in.files:
                self._send_file(path.removeprefix(prefix), body)
            else:
                self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, body)

        def _send_file(self, name: str, body: bool) -> None:
            data = stand_in.files[name]
            if name in stand_in.corrupt:
                data = bytes([data[0] ^ 1]) + data[1:]
            begin = 0
            if (wanted := self.headers.get("Range")) is not None:
                begin = int(wanted.removeprefix("bytes=").partition("-")[0])
            headers = {
                "ETag": f'"{stand_in.etag(name)}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            if begin:
                headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            keep = stand_in.cut.pop(name, None) if body else None
            self._send(206 if begin else 200, data[begin:], headers, body, keep)

        def _send(
            self,
            status: int,
            data: bytes,
            headers: Mapping[str, str],
            body: bool,
            keep: int | None = None,
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(data[:keep])
            if keep is not None:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stand_in.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
