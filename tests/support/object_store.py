"""A web server of files in memory that answers as HTTP servers and S3 do, as far as readers ask."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

DATE = "2026-11-20T00:00:00.000Z"


class _Handler(BaseHTTPRequestHandler):
    files: dict[str, bytes]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        path = unquote(asked.path).strip("/")
        if "list-type" in query:
            self._list(path, query.get("prefix", [""])[0], query.get("delimiter", [""])[0])
        elif path in self.files:
            if "/whole/" in path:  # as servers that know no ranges
                self._answer(200, self.files[path])
            else:
                self._file(self.files[path])
        else:
            self._answer(404, b"")

    def _list(self, bucket, prefix, delimiter):
        keys = [name.removeprefix(f"{bucket}/") for name in sorted(self.files)]
        files, folders = [], set()
        for key in (key for key in keys if key.startswith(prefix)):
            inside, found, _ = key[len(prefix) :].partition(delimiter or "\0")
            if found:
                folders.add(prefix + inside + found)
            else:
                files.append(key)
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{DATE}</LastModified>"
            f'<ETag>"{len(self.files[f"{bucket}/{key}"])}"</ETag>'
            f"<Size>{len(self.files[f'{bucket}/{key}'])}</Size></Contents>"
            for key in files
        )
        entries += "".join(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in sorted(folders)
        )
        body = (
            f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>"
            f"<KeyCount>{len(files) + len(folders)}</KeyCount>{entries}</ListBucketResult>"
        )
        self._answer(200, body.encode(), {"Content-Type": "application/xml"})

    def _file(self, data):
        size = len(data)
        headers = {
            "Accept-Ranges": "bytes",
            "ETag": f'"{size}"',
            "Last-Modified": "Fri, 20 Nov 2026 00:00:00 GMT",
        }
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, data, headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or size) + 1, size)
        if start >= size:
            self._answer(416, b"", {"Content-Range": f"bytes */{size}"})
            return
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        self._answer(206, data[start:stop], headers)

    def _answer(self, code, body, headers=None):
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def object_store(files):
    """Serve files, by bucket/key, on loopback, and give the address."""
    handler = type("Handler", (_Handler,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
