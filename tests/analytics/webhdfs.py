"""A small server of WebHDFS over a directory, for tests: enough for fsspec and for Hadoop's own client.

It does not say the type of its answers: the client in Spark's package lacks a class to read that.
"""

from __future__ import annotations

import collections
import contextlib
import http.server
import json
import pathlib
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    """Serves a directory.

    Attributes:
        root: the directory.
        calls: the operations, counted.
    """

    daemon_threads = True

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.calls: collections.Counter[str] = collections.Counter()

    @property
    def uri(self) -> str:
        return f"webhdfs://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of its base
        pass

    def _do(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        given = {name.lower(): value for name, value in urllib.parse.parse_qsl(parts.query)}
        inner = urllib.parse.unquote(parts.path.removeprefix("/webhdfs/v1"))
        place = self.server.root / inner.lstrip("/")
        operation = given.get("op", "").upper()
        self.server.calls[operation] += 1
        try:
            getattr(self, f"_{operation.lower()}", self._unknown)(place, inner, given)
        except FileNotFoundError:
            self._fault(404, "FileNotFoundException", f"File does not exist: {inner}")
        except FileExistsError:
            self._fault(403, "FileAlreadyExistsException", f"{inner} already exists")

    do_GET = do_PUT = do_POST = do_DELETE = _do  # noqa: N815 - names of its base

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        left = int(self.headers.get("Content-Length") or 0)
        if left and not getattr(self, "_is_read", False):
            self.rfile.read(left)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self._is_read = False

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode())

    def _fault(self, status: int, name: str, message: str) -> None:
        java = f"java.io.{name}" if "FileNotFound" in name else f"org.apache.hadoop.fs.{name}"
        fault = {"exception": name, "javaClassName": java, "message": message}
        body = json.dumps({"RemoteException": fault}).encode()
        self._answer(status, body)

    def _unknown(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del place, inner
        self._fault(400, "UnsupportedOperationException", f"no operation {given.get('op')}")

    def _status(self, place: pathlib.Path, suffix: str = "") -> dict[str, Any]:
        found = place.stat()
        return {
            "accessTime": 0,
            "blockSize": 128 << 20,
            "group": "users",
            "length": 0 if place.is_dir() else found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "owner": "user",
            "pathSuffix": suffix,
            "permission": "755" if place.is_dir() else "644",
            "replication": 1,
            "type": "DIRECTORY" if place.is_dir() else "FILE",
        }

    def _getfilestatus(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner, given
        self._json({"FileStatus": self._status(place)})

    _getfilelinkstatus = _getfilestatus

    def _liststatus(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner, given
        if place.is_dir():
            found = [self._status(one, one.name) for one in sorted(place.iterdir())]
        else:
            found = [self._status(place)]
        self._json({"FileStatuses": {"FileStatus": found}})

    def _getfileblocklocations(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner, given
        where = {"hosts": ["127.0.0.1"], "names": ["127.0.0.1:1"], "topologyPaths": ["/rack/127.0.0.1:1"]}
        size = place.stat().st_size
        block = {
            **where,
            "cachedHosts": [],
            "corrupt": False,
            "length": size,
            "offset": 0,
            "storageTypes": [],
        }
        self._json({"BlockLocations": {"BlockLocation": [block]}})

    def _getserverdefaults(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del place, inner, given
        sizes = {"blockSize": 128 << 20, "bytesPerChecksum": 512, "fileBufferSize": 4096}
        others = {"checksumType": 2, "encryptDataTransfer": False, "keyProviderUri": "", "trashInterval": 0}
        more = {"replication": 1, "writePacketSize": 65536, "defaultStoragePolicyId": 7}
        self._json({"FsServerDefaults": {**sizes, **others, **more}})

    def _gethomedirectory(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del place, inner, given
        self._json({"Path": "/user/user"})

    def _open(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner
        if "datanode" not in given:
            place.stat()
            self._redirect()
            return
        with place.open("rb") as file:
            file.seek(int(given.get("offset", 0)))
            data = file.read(int(given["length"])) if "length" in given else file.read()
        self._answer(200, data)

    def _create(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner
        if place.exists() and given.get("overwrite", "false") != "true":
            raise FileExistsError(place)
        if "datanode" not in given:
            self._redirect()
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(self._body())
        self._answer(201, b"", Location=self.server.uri)

    def _append(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner
        if "datanode" not in given:
            self._redirect()
            return
        with place.open("ab") as file:
            file.write(self._body())
        self._answer(200, b"")

    def _redirect(self) -> None:
        host = "127.0.0.1:" + str(self.server.server_address[1])
        self._answer(307, b"", Location=f"http://{host}{self.path}&datanode=true")

    def _body(self) -> bytes:
        self._is_read = True
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _mkdirs(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner, given
        place.mkdir(parents=True, exist_ok=True)
        self._json({"boolean": True})

    def _delete(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner, given
        is_there = place.exists()
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        self._json({"boolean": is_there})

    def _rename(self, place: pathlib.Path, inner: str, given: dict[str, str]) -> None:
        del inner
        target = self.server.root / given["destination"].lstrip("/")
        if target.exists() and "OVERWRITE" not in given.get("renameoptions", ""):
            if "renameoptions" in given:
                raise FileExistsError(target)
            self._json({"boolean": False})
            return
        place.replace(target)
        if "renameoptions" in given:
            self._answer(200, b"")
        else:
            self._json({"boolean": True})


@contextlib.contextmanager
def serving(root: pathlib.Path) -> Iterator[Server]:
    """Serve a directory over WebHDFS on loopback."""
    root.mkdir(parents=True, exist_ok=True)
    with Server(root) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
