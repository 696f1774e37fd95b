"""Files from the net, kept in the user's cache folder."""

import fcntl
import hashlib
import os
import urllib.request
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from nnas.data.bars import bar
from nnas.errors import NnasError, one_line
from nnas.files import hashed, remove_leftovers, replacing

TIMEOUT_SECONDS = 30  # without any byte arriving
CHUNK = 2**20


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nnas"


def fetched(url, md5, option):
    """The path of a file in the cache folder, downloaded unless it is there, and checked in any case.

    Of several processes one downloads, and the others wait for it. option: the setting that takes a path instead."""
    folder = cache_folder()
    path = folder / url.rpartition("/")[2]
    advice = f"put the file at {path}, or give its place by {option}=..."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".lock"):
            if not path.exists():
                remove_leftovers(folder)
                with replacing(path) as temporary:
                    _download(url, temporary, path.name)
                    check_md5(temporary, (md5,), f"{url}: what was downloaded is damaged", advice)
                return path
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise NnasError(f"{url}: it could not be downloaded ({one_line(reason)}); {advice}") from None
    check_md5(path, (md5,), f"{path}: the file is damaged", "remove it, and it is downloaded again")
    return path


def check_md5(path, possible, problem, advice):
    found = hashed(path, hashlib.md5(usedforsecurity=False)).hexdigest()
    if found not in possible:
        raise NnasError(f"{problem}: its md5 is {found}, not {' or '.join(possible)}; {advice}")


def _download(url, path, name):
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, open(path, "wb") as file:
        size = int(answer.headers.get("Content-Length") or 0)
        with bar(text=f"downloading {name}", total=size or None, unit="B") as progress:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                progress.update(len(chunk))


@contextmanager
def _locked(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
