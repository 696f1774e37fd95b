"""CIFAR-10 (Krizhevsky, 2009): 60,000 photographs of 32x32 pixels in 10 classes."""

import tarfile
import zlib
from pathlib import Path

import numpy as np

from nnas.data.dataset import DataSet, checked_size
from nnas.data.download import check_md5, fetched
from nnas.data.pickled_arrays import read_pickled_arrays
from nnas.data.samples import ArraySamples, checked_labels
from nnas.errors import NnasError, one_line

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = {"binary": "c32a1d4ab5d03f1284b67883e8d87530", "python": "c58f30108f718f92721af3b95e74349a"}
BATCHES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
MEMBERS = {f"cifar-10-batches-bin/{name}.bin": ("binary", name) for name in BATCHES}
MEMBERS |= {f"cifar-10-batches-py/{name}": ("python", name) for name in BATCHES}
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
MEMBER_BYTES = 2**26  # twice what a member has


class Cifar10(DataSet):
    """From cifar-10-binary.tar.gz or cifar-10-python.tar.gz.

    path: of one of them; None: the binary one, downloaded once to the user's cache folder. checksum: 'official', the
    md5 of an archive of one's own, or None to take any. validation: a number or share of the training images.
    """

    def __init__(self, path=None, validation=5000, split_seed=0, checksum="official", augmentation=()):
        if path is None:
            archive = fetched(URL, MD5["binary"], "data.path")
        else:
            archive = Path(path)
            if not archive.is_file():
                raise NnasError(
                    f"data.path={path}: there is no such archive; give cifar-10-python.tar.gz or "
                    f"cifar-10-binary.tar.gz (from {URL}), or leave data.path out to download it"
                )
            if checksum is not None:
                possible = tuple(MD5.values()) if checksum == "official" else (str(checksum),)
                check_md5(
                    archive, possible, f"data.path={path}", "get it anew, or take it as it is by data.checksum=null"
                )
        held_out = {"validation": checked_size("validation", validation)}
        images, labels, counts = _read(archive)
        labels, classes = checked_labels(labels, 10, archive)
        super().__init__(
            "cifar10", path, ArraySamples(images, labels), classes, counts, held_out, split_seed, augmentation
        )


def _read(archive):
    """(images (n, 3, 32, 32) uint8, labels, {split: samples}), training first."""
    try:
        found = dict(_batches(archive))
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise NnasError(f"{archive}: it cannot be read as a tar.gz ({one_line(error)}); get it anew") from None
    kinds = {kind for kind, _ in found}
    missing = [name for name in BATCHES if (next(iter(kinds), None), name) not in found]
    if len(kinds) != 1 or missing:
        raise NnasError(
            f"{archive}: it is not an archive of CIFAR-10 in its python or binary version: "
            f"{', '.join(missing) or 'it has both'} {'is missing' if missing else ''}".rstrip()
        )
    parts = [found[kinds.copy().pop(), name] for name in BATCHES]
    images, labels = (np.concatenate(one) for one in zip(*parts, strict=True))
    test = len(parts[-1][1])
    return images.reshape(-1, *SHAPE), labels, {"training": len(labels) - test, "test": test}


def _batches(archive):
    """Yield ((kind, name), (pixels (n, 3072), labels)). Members are read by their exact names; nothing is extracted."""
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.name in MEMBERS and member.isreg():
                source = f"{archive}: {member.name}"
                if member.size > MEMBER_BYTES:
                    raise NnasError(f"{source}: it has {member.size} bytes, too many for CIFAR-10; get it anew")
                content = tar.extractfile(member).read()
                kind = MEMBERS[member.name][0]
                yield MEMBERS[member.name], (_binary if kind == "binary" else _pickled)(content, source)


def _binary(content, source):
    if not content or len(content) % (PIXELS + 1):
        raise NnasError(f"{source}: it is no sequence of records of {PIXELS + 1} bytes; get the archive anew")
    records = np.frombuffer(content, np.uint8).reshape(-1, PIXELS + 1)
    return records[:, 1:], records[:, 0]


def _pickled(content, source):
    batch = read_pickled_arrays(content, source)
    pixels, labels = batch.get("data"), batch.get("labels")
    rows = len(labels) if isinstance(labels, list) and all(type(label) is int for label in labels) else 0
    if not rows or not isinstance(pixels, np.ndarray) or pixels.shape != (rows, PIXELS):
        raise NnasError(f"{source}: it has no 'data' of {PIXELS} bytes for each of its 'labels'; get the archive anew")
    return pixels, np.array(labels)
