"""CIFAR-10's archives: read without unpickling anything, checked, downloaded once."""

import functools
import hashlib
import io
import os
import pickle
import tarfile
import threading

import numpy as np
import pytest

from nnas.data import cifar10, download
from nnas.data.cifar10 import Cifar10
from nnas.data.pickled_arrays import Refused, read_pickled_arrays
from nnas.errors import NnasError

ROWS = 20


class Python2Pickler(pickle._Pickler):
    """Writes strings as Python 2 did: all of them are bytes."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        content = text if isinstance(text, bytes) else text.encode("latin-1")
        if len(content) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(content)]) + content)
        else:
            self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_string


def pickled(value):
    file = io.BytesIO()
    Python2Pickler(file, 2).dump(value)
    return file.getvalue()


def batches(seed=0, rows=ROWS):
    """{name: (pixels, labels)} of the six batches."""
    random = np.random.default_rng(seed)
    return {
        name: (random.integers(256, size=(rows, 3072), dtype=np.uint8), [int(x) for x in random.permutation(rows) % 10])
        for name in cifar10.BATCHES
    }


def python_members(content):
    return {
        f"cifar-10-batches-py/{name}": pickled(
            {b"batch_label": name.encode(), b"labels": labels, b"data": pixels, b"filenames": [b"a.png"] * len(labels)}
        )
        for name, (pixels, labels) in content.items()
    }


def binary_members(content):
    return {
        f"cifar-10-batches-bin/{name}.bin": np.hstack([np.array(labels, np.uint8)[:, None], pixels]).tobytes()
        for name, (pixels, labels) in content.items()
    }


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def pixels_of(data, split):
    """The bytes that a split's images were, back from what is drawn."""
    split = getattr(data, split)
    images, labels = split.draw(np.arange(len(split)), None)
    values = data.description()["normalization"]
    mean, deviation = (np.reshape(values[key], (3, 1, 1)) for key in ("mean", "deviation"))
    pixels = (images * deviation + mean) * 255
    assert np.abs(pixels - pixels.round()).max() < 0.01
    return pixels.round().astype(np.uint8), labels[:, 0]


@pytest.mark.parametrize("members", [python_members, binary_members])
def test_both_versions_are_read(tmp_path, members):
    content = batches()
    path = archive(tmp_path / "cifar.tar.gz", members(content))
    data = Cifar10(path, validation=10, checksum=None)
    assert (data.shape, data.classes) == ((3, 32, 32), 10)
    assert [len(split) for split in (data.training, data.retraining, data.validation, data.test)] == [90, 100, 10, 20]
    images, labels = pixels_of(data, "test")
    expected, known = content["test_batch"]
    np.testing.assert_array_equal(images.reshape(ROWS, -1), expected)
    np.testing.assert_array_equal(labels, known)
    images, labels = pixels_of(data, "retraining")
    found = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    everything = {
        row.tobytes(): label
        for name in cifar10.BATCHES[:5]
        for row, label in zip(content[name][0], content[name][1], strict=True)
    }
    assert found == everything
    # Ten images of each class were given to training.
    assert np.bincount(pixels_of(data, "validation")[1]).tolist() == [1] * 10


def test_both_versions_are_the_same_data(tmp_path):
    made = [
        Cifar10(archive(tmp_path / name, members(batches())), validation=10, checksum=None).description()
        for name, members in (("a.tar.gz", python_members), ("b.tar.gz", binary_members))
    ]
    for one in made:
        one.pop("path")
    assert made[0] == made[1]


def test_checksums(tmp_path):
    path = archive(tmp_path / "cifar.tar.gz", binary_members(batches()))
    digest = hashlib.md5(path.read_bytes()).hexdigest()
    for checksum in ("official", "0" * 32):
        with pytest.raises(NnasError, match=f"data.path=.*{digest}.*checksum=null"):
            Cifar10(path, validation=10, checksum=checksum)
    assert len(Cifar10(path, validation=10, checksum=digest).test) == ROWS


def test_the_original_stream_of_python_2_is_read():
    """Written by hand as cPickle writes, with its numbers for truth values and its memo."""
    data = bytes(range(6))
    stream = (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05(K\x06K\x09e"
        b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T\x06\x00\x00\x00" + data + b"tbU\tfilenamesq\x0c]q\r(U\x05a.pngq\x0eh\x0eeu."
    )
    found = read_pickled_arrays(stream, "here")
    assert found["batch_label"] == "training batch 1 of 5" and found["labels"] == [6, 9]
    assert found["filenames"] == ["a.png", "a.png"]
    np.testing.assert_array_equal(found["data"], np.arange(6, dtype=np.uint8).reshape(2, 3))
    reference = pickle.loads(stream, encoding="latin-1")
    np.testing.assert_array_equal(found["data"], reference.pop("data"))
    assert reference == {key: value for key, value in found.items() if key != "data"}


class Attack:
    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, exec, os.mkdir])
@pytest.mark.parametrize("place", ["alone", "value", "in a list"])
def test_nothing_in_a_pickle_is_called(tmp_path, monkeypatch, protocol, function, place):
    monkeypatch.chdir(tmp_path)
    command = {os.system: "touch here", os.mkdir: "here"}.get(function, "__import__('os').mkdir('here')")
    attack = Attack(function, command)
    value = {"alone": attack, "value": {"data": attack}, "in a list": {"labels": [1, attack]}}[place]
    content = pickle.dumps(value, protocol)
    with pytest.raises(Refused, match="here.pkl: .*nothing in it was executed"):
        read_pickled_arrays(content, "here.pkl")
    assert list(tmp_path.iterdir()) == []
    pickle.loads(content)
    assert list(tmp_path.iterdir()) != [], "the attack must be a real one"


@pytest.mark.parametrize(
    "value",
    [
        [1],
        {"data": 1.5},
        {"data": np.zeros(3, np.float32)},
        {"data": np.zeros(3, np.int8)},
        {"data": np.zeros(3, bool)},
        {"data": np.array([{}])},
        {1: "a"},
        {"a": {2: "b"}},
        {"data": np.float64(1)},
        {"data": functools.partial(print, "x")},
        {"data": {1, 2}},
    ],
)
def test_other_values_are_refused(value):
    with pytest.raises(Refused):
        read_pickled_arrays(pickled(value), "here")


NAMES = b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"

CONTENT = b"(K\x01K\x03\x85" + NAMES[2] + b"U\x02u1K\x00K\x01\x87R\x89U\x03abctb"  # makes an array (3,) of an empty one


def test_what_makes_an_array_of_bytes():
    made = NAMES[0] + NAMES[1] + b"K\x00\x85U\x01b\x87R" + CONTENT
    assert read_pickled_arrays(b"\x80\x02}U\x04data" + made + b"s.", "here")["data"].tobytes() == b"abc"


@pytest.mark.parametrize(
    "made",
    [
        b"cos\nsystem\n",
        NAMES[1] + b"K\x03\x85R" + CONTENT,  # ndarray(3)
        NAMES[2] + b"U\x01OK\x00K\x01\x87R" + CONTENT,  # the type of objects
        NAMES[0] + NAMES[2] + b"K\x00\x85U\x01b\x87R" + CONTENT,  # an array of another class
        NAMES[0] + b"U\x0dnumpy ndarrayK\x00\x85U\x01b\x87R" + CONTENT,  # a string where the class belongs
        b"U\x0bnumpy dtypeU\x02u1K\x00K\x01\x87R" + CONTENT,  # a string is called
        NAMES[0] + NAMES[1] + b"K\x00\x85U\x01b\x87R",  # an array without content
        NAMES[0] + NAMES[1] + b"K\x00\x85U\x01b\x87R}b",  # the state of an array is no tuple
        b"}K\x01b",  # the state of a dictionary
    ],
)
def test_names_of_arrays_make_nothing_but_arrays_of_bytes(made):
    with pytest.raises(Refused):
        read_pickled_arrays(b"\x80\x02}U\x04data" + made + b"s.", "here")


def test_damaged_pickles_are_errors_of_one_line():
    content = pickled({b"labels": [1, 2], b"data": np.arange(6, dtype=np.uint8).reshape(2, 3)})
    random = np.random.default_rng(0)
    damaged = [content[:length] for length in range(len(content))]
    for _ in range(3000):
        one = bytearray(content)
        for place in random.integers(len(one), size=random.integers(1, 4)):
            one[place] = random.integers(256)
        damaged.append(bytes(one))
    refused = 0
    for one in damaged:
        try:
            read_pickled_arrays(one, "here")
        except Refused as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > len(content) + 1000


def test_members_are_known_by_their_exact_names(tmp_path, monkeypatch):
    """What lies beside them is never read, and nothing is written anywhere."""
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    members = binary_members(batches())
    extra = {"../outside": b"x", "/tmp/nnas_absolute": b"x", "cifar-10-batches-bin/../data_batch_1.bin": b"x"}
    path = archive(inside / "cifar.tar.gz", {**extra, **members})
    assert len(Cifar10(path, validation=10, checksum=None).test) == ROWS
    assert [one.name for one in inside.iterdir()] == ["cifar.tar.gz"]
    assert [one.name for one in tmp_path.iterdir()] == ["inside"]
    only = archive(inside / "other.tar.gz", {f"../{name}": content for name, content in members.items()})
    with pytest.raises(NnasError, match="data_batch_1.*missing"):
        Cifar10(only, validation=10, checksum=None)


def test_a_link_is_no_member(tmp_path):
    members = binary_members(batches())
    secret = tmp_path / "secret"
    secret.write_bytes(members.pop("cifar-10-batches-bin/test_batch.bin"))
    path = tmp_path / "cifar.tar.gz"
    archive(path, members)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        info.type, info.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(info)
    with pytest.raises(NnasError, match="test_batch is missing"):
        Cifar10(path, validation=10, checksum=None)


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda members: members.pop("cifar-10-batches-py/data_batch_3"), "data_batch_3 is missing"),
        (lambda members: members.update({"cifar-10-batches-py/test_batch": pickled({b"labels": [1]})}), "test_batch"),
        (lambda members: members.update({"cifar-10-batches-py/test_batch": b"junk"}), "test_batch"),
        (
            lambda members: members.update(
                {"cifar-10-batches-py/test_batch": pickled({b"labels": [1], b"data": np.zeros((2, 3072), np.uint8)})}
            ),
            "test_batch",
        ),
        (
            lambda members: members.update(
                {"cifar-10-batches-py/test_batch": pickled({b"labels": [10], b"data": np.zeros((1, 3072), np.uint8)})}
            ),
            "label 10",
        ),
        (lambda members: members.update(binary_members(batches())), "both"),
        (lambda members: members.clear(), "not an archive of CIFAR-10"),
    ],
)
def test_wrong_archives_are_named(tmp_path, change, named):
    members = python_members(batches())
    change(members)
    with pytest.raises(NnasError, match=named) as caught:
        Cifar10(archive(tmp_path / "cifar.tar.gz", members), validation=10, checksum=None)
    assert "cifar.tar.gz" in str(caught.value)


def test_damaged_archives_are_named(tmp_path):
    whole = archive(tmp_path / "whole.tar.gz", binary_members(batches())).read_bytes()
    for name, content in (("short", whole[: len(whole) // 2]), ("empty", b""), ("text", b"not a tar")):
        path = tmp_path / f"{name}.tar.gz"
        path.write_bytes(content)
        with pytest.raises(NnasError, match=f"{name}.tar.gz"):
            Cifar10(path, validation=10, checksum=None)
    with pytest.raises(NnasError, match="no such archive"):
        Cifar10(tmp_path / "nothing.tar.gz")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A place to download from, and an empty cache folder."""
    source = archive(tmp_path / "cifar-10-binary.tar.gz", binary_members(batches()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "URL", source.as_uri())
    monkeypatch.setattr(cifar10, "MD5", {"binary": hashlib.md5(source.read_bytes()).hexdigest()})
    return source


def test_downloads_once(server, tmp_path, monkeypatch):
    calls, real = [], download._download
    monkeypatch.setattr(download, "_download", lambda *given: calls.append(given) or real(*given))
    first, second = (Cifar10(validation=10).description() for _ in range(2))
    assert first == second and len(calls) == 1
    kept = tmp_path / "cache" / "nnas" / server.name
    assert kept.read_bytes() == server.read_bytes()
    assert {one.name for one in kept.parent.iterdir()} == {server.name, ".lock"}
    kept.write_bytes(b"damaged")
    with pytest.raises(NnasError, match="damaged.*remove it"):
        Cifar10(validation=10)


def test_several_at_once_download_once(server, monkeypatch):
    calls, real = [], download._download
    monkeypatch.setattr(download, "_download", lambda *given: calls.append(given) or real(*given))
    threads = [threading.Thread(target=Cifar10, kwargs={"validation": 10}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_damaged_download_leaves_nothing(server, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "MD5", {"binary": "0" * 32})
    with pytest.raises(NnasError, match=f"what was downloaded is damaged.*put the file at.*{server.name}"):
        Cifar10(validation=10)
    assert {one.name for one in (tmp_path / "cache" / "nnas").iterdir()} == {".lock"}


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/cifar-10-binary.tar.gz", "file:///nowhere/cifar-10-binary.tar.gz"])
def test_without_a_network_the_error_says_where_to_put_the_file(server, tmp_path, monkeypatch, url):
    monkeypatch.setattr(cifar10, "URL", url)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(NnasError) as caught:
        Cifar10()
    text = str(caught.value)
    place = tmp_path / "cache" / "nnas" / "cifar-10-binary.tar.gz"
    assert url in text and f"put the file at {place}" in text and "data.path=" in text and "\n" not in text
    assert not place.exists()
