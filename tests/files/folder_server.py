"""Storage behind a URL that has folders and can rename, as ``sftp://`` can, in memory."""

from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class FolderServer(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    protocol = "server"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> Any:
        return super()._strip_protocol(path.removeprefix("server://"))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb" and self._parent(path) not in self.pseudo_dirs:
            raise FileNotFoundError(path)
        return super()._open(path, mode, **options)

    def rmdir(self, path: str) -> None:  # as that of HDFS does
        for inside in self.find(path):
            self.rm_file(inside)
        super().rmdir(path)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self.store[path2] = self.store.pop(path1)


fsspec.register_implementation("server", FolderServer, clobber=True)
