"""Data sets of files: what is read, how it is split and normalized, and what is said about it."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from nnabla.utils.data_source_implements import CsvDataSource
from PIL import Image

from nnas.config import _folders_in
from nnas.data import dataset, hdf5, samples
from nnas.data.csv_files import CsvFiles
from nnas.data.hdf5 import Hdf5
from nnas.data.image_folder import ImageFolder
from nnas.data.images import RandomView
from nnas.data.synthetic import Synthetic
from nnas.errors import NnasError

SPLITS = ("training", "validation", "test")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def pictures(count, size=6, channels=3, seed=0):
    """(images (n, C, H, W) uint8, labels (n,)), every image another."""
    random = np.random.default_rng(seed)
    images = random.integers(256, size=(count, channels, size, size), dtype=np.uint8)
    return images, np.arange(count) % 3


def save(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image.transpose(1, 2, 0) if len(image) == 3 else image[0]).save(path)


def tree(folder, images, labels):
    """A folder for each class."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        save(folder / "abc"[label] / f"{number:03}.png", image)
    return folder


def image_folder(folder, **changes):
    settings = {"size": 6, "training": ".", "validation": 0.2, "test": 5}
    return ImageFolder(folder, **{**settings, **changes})


def h5(path, images, labels):
    new = Path(path).with_suffix(".new")
    with h5py.File(new, "w") as file:
        file["x"], file["y"] = images, labels
    return new.rename(path)  # the old one may be open


def table(path, images, labels):
    lines = ["x:image,y:label"]
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        save(path.parent / f"images_{path.stem}" / f"{number}.png", image)
        lines.append(f"images_{path.stem}/{number}.png,{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def everything(split, generator=None):
    return split.draw(np.arange(len(split)), generator)


def raw(data, split):
    """{bytes of an image as it was before normalization: label}."""
    images, labels = everything(getattr(data, split))
    values = data.description()["normalization"]
    mean, deviation = (np.reshape(values[key], (-1, 1, 1)) for key in ("mean", "deviation"))
    pixels = ((images * deviation + mean) * 255).round().astype(np.uint8)
    return {image.tobytes(): int(label) for image, label in zip(pixels, labels[:, 0], strict=True)}


def made(kind, folder, images, labels, **changes):
    """The same data in any kind of files."""
    settings = {"validation": 0.2, "test": 5, **changes}
    if kind == "folder":
        return image_folder(tree(folder / "tree", images, labels), **settings)
    if kind == "hdf5":
        return Hdf5(h5(folder / "data.h5", images, labels), **settings)
    return CsvFiles(table(folder / "data.csv", images, labels), **settings)


KINDS = ["folder", "hdf5", "csv"]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_image_is_in_one_split(tmp_path, kind, channels):
    images, labels = pictures(30, channels=channels)
    changes = {"channels": 1} if channels == 1 and kind == "folder" else {}
    data = made(kind, tmp_path, images, labels, **changes)
    assert (data.shape, data.classes, data.notices) == ((channels, 6, 6), 3, [])
    assert [len(getattr(data, split)) for split in (*SPLITS, "retraining")] == [19, 6, 5, 25]
    drawn, of = everything(data.training)
    assert drawn.dtype == np.float32 and drawn.shape == (19, channels, 6, 6)
    assert of.dtype == np.int32 and of.shape == (19, 1)
    parts = [raw(data, split) for split in SPLITS]
    assert sum(map(len, parts)) == 30
    expected = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    assert {**parts[0], **parts[1], **parts[2]} == expected
    assert raw(data, "retraining") == {**parts[0], **parts[1]}
    # Each class has its share: 2 of 6, and of 5 one or two.
    assert np.bincount(list(parts[1].values())).tolist() == [2, 2, 2]
    assert sorted(np.bincount(list(parts[2].values()))) == [1, 2, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_splits_are_the_same_whenever_they_are_made(tmp_path, kind):
    images, labels = pictures(30)
    one = made(kind, tmp_path, images, labels)
    same = made(kind, tmp_path, images, labels)
    other = made(kind, tmp_path, images, labels, split_seed=1)
    fewer = made(kind, tmp_path, images, labels, validation=2)
    for split in SPLITS:
        for a, b in zip(everything(getattr(one, split)), everything(getattr(same, split)), strict=True):
            assert a.tobytes() == b.tobytes()
    assert raw(one, "test") != raw(other, "test")
    assert raw(one, "test") == raw(fewer, "test"), "the number of validation images does not move the test images"
    assert one.description() == same.description() != other.description()


@pytest.mark.parametrize("kind", KINDS)
def test_the_description_follows_the_content(tmp_path, kind):
    images, labels = pictures(30)
    before = made(kind, tmp_path, images, labels).description()
    assert json.loads(json.dumps(before)) == before
    assert before["kind"] == {"folder": "image_folder"}.get(kind, kind)
    assert before["samples"] == {"training": 19, "validation": 6, "test": 5}
    images[7, 0, 0, 0] ^= 1
    after = made(kind, tmp_path, images, labels).description()
    assert after["digest"] != before["digest"]
    if kind != "folder":  # in folders, the label is the place
        labels = labels.copy()
        labels[[0, 1]] = labels[[1, 0]]
        assert made(kind, tmp_path, images, labels).description()["digest"] != after["digest"]


@pytest.mark.parametrize("kind", KINDS)
def test_mean_and_deviation_are_of_the_training_split(tmp_path, kind):
    images, labels = pictures(30)
    images = (images // np.array([1, 2, 4])[:, None, None]).astype(np.uint8)
    data = made(kind, tmp_path, images, labels)
    drawn, _ = everything(data.training)
    np.testing.assert_allclose(drawn.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(drawn.std(axis=(0, 2, 3)), 1, atol=1e-5)
    assert np.abs(everything(data.test)[0].mean(axis=(0, 2, 3))).max() > 1e-3
    training = np.array([np.frombuffer(image, np.uint8) for image in raw(data, "training")]).reshape(-1, 3, 6, 6) / 255
    values = data.description()["normalization"]
    np.testing.assert_allclose(values["mean"], training.mean(axis=(0, 2, 3)), rtol=1e-9)
    np.testing.assert_allclose(values["deviation"], training.std(axis=(0, 2, 3)), rtol=1e-9)
    assert (values["divisor"], values["images"]) == (255, 19)


def test_numbers_far_from_zero_and_constant_channels(tmp_path):
    images, labels = pictures(30)
    images = images.astype(np.float32) / 255 + 1e4
    images[:, 1] = 5
    data = Hdf5(h5(tmp_path / "a.h5", images, labels), 5, 5)
    drawn, _ = everything(data.training)
    assert np.isfinite(drawn).all() and (drawn[:, 1] == 0).all()
    np.testing.assert_allclose(drawn[:, 0].std(), 1, atol=1e-3)
    assert data.description()["normalization"]["divisor"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_splits_of_their_own_files(tmp_path, kind):
    images, labels = pictures(30)
    parts = {"training": slice(0, 15), "validation": slice(15, 22), "test": slice(22, 30)}
    if kind == "folder":
        for name, part in parts.items():
            tree(tmp_path / name, images[part], labels[part])
        data = ImageFolder(tmp_path, 6, "training", "validation", "test")
        mixed = ImageFolder(tmp_path, 6, "training", 0.2, "test")
    else:
        make, make_file, ending = {"hdf5": (Hdf5, h5, "h5"), "csv": (CsvFiles, table, "csv")}[kind]
        files = {
            name: make_file(tmp_path / f"{name}.{ending}", images[part], labels[part]) for name, part in parts.items()
        }
        data = make(**files)
        mixed = make(files["training"], 0.2, files["test"])
    for name, part in parts.items():
        expected = {image.tobytes(): label for image, label in zip(images[part], labels[part], strict=True)}
        assert raw(data, name) == expected
    assert [len(getattr(mixed, name)) for name in SPLITS] == [12, 3, 8]
    assert raw(mixed, "test") == raw(data, "test") and raw(mixed, "retraining") == raw(data, "training")


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_an_image_stay_together(tmp_path, kind):
    images, labels = pictures(30)
    images[3::3] = images[0]  # nine copies in one class
    data = made(kind, tmp_path, images, labels, validation=0.3, test=0.3)
    parts = [raw(data, split) for split in SPLITS]
    assert len({**parts[0], **parts[1], **parts[2]}) == 21 == sum(map(len, parts))
    assert sum(len(getattr(data, split)) for split in SPLITS) == 30
    assert data.notices == ["9 images are copies of others, all in one split"]


def test_copies_that_the_files_have_in_two_splits_are_reported(tmp_path):
    images, labels = pictures(30)
    one, other = h5(tmp_path / "a.h5", images[:20], labels[:20]), h5(tmp_path / "b.h5", images[17:], labels[17:])
    data = Hdf5(one, 5, other)
    assert data.notices == ["3 images are copies of others; 3 of them stand in another split too, as the data give it"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_large_is_read_when_it_is_drawn(tmp_path, kind, monkeypatch):
    images, labels = pictures(30)
    small = made(kind, tmp_path, images, labels)
    monkeypatch.setattr(samples, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(hdf5, "IN_MEMORY_BYTES", 100)
    large = made(kind, tmp_path, images, labels)
    assert small.training._samples.in_memory and not large.training._samples.in_memory
    chosen = np.array([5, 3, 3, 11])
    for one, other in ((small, large), (large, made(kind, tmp_path, images, labels))):
        np.testing.assert_allclose(one.training.draw(chosen, None)[0], other.training.draw(chosen, None)[0], atol=1e-5)
    # The digest is of the files, and no longer of what they hold.
    splits = [raw(data, "test") for data in (small, large)]
    assert splits[0] == splits[1]


@pytest.mark.parametrize("kind", ["folder", "hdf5"])
def test_statistics_of_large_data_are_taken_once(tmp_path, kind, monkeypatch, cache):
    monkeypatch.setattr(samples, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(hdf5, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(dataset, "MEASURED", 10)
    images, labels = pictures(30)
    first = made(kind, tmp_path, images, labels).description()
    assert first["normalization"]["images"] == 10
    assert len(list((cache / "nnas" / "statistics").iterdir())) == 1
    monkeypatch.setattr(dataset, "_measured", lambda *given: pytest.fail("measured again"))
    assert made(kind, tmp_path, images, labels).description() == first


def test_a_very_large_folder_is_known_by_names_and_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "HASHED_BYTES", 100)
    monkeypatch.setattr(samples, "IN_MEMORY_BYTES", 100)
    images, labels = pictures(30)
    before = made("folder", tmp_path, images, labels).description()
    assert before["digest_of"] == "names and sizes"
    assert made("folder", tmp_path, images, labels).description() == before
    save(tmp_path / "tree" / "a" / "000.png", pictures(1, size=9)[0][0])
    assert made("folder", tmp_path, images[1:], labels[1:]).description()["digest"] != before["digest"]


# Folders of images


def test_images_are_scaled_and_their_middle_is_cut(tmp_path):
    image = np.zeros((3, 20, 40), np.uint8)
    image[0], image[1, :, 10:30] = 200, 100  # green in the middle 20 columns
    for label in "ab":
        for number in range(3):
            save(tmp_path / label / f"{number}.png", image ^ np.uint8(number + 10 * (label == "a")))
    data = ImageFolder(tmp_path, 10, ".", 1, 1)
    pixels = np.frombuffer(list(raw(data, "test"))[0], np.uint8).reshape(3, 10, 10)
    # Scaling looks a pixel beyond what it cuts.
    assert np.ptp(pixels[0]) == 0 and np.ptp(pixels[1, :, 1:-1]) == 0 and pixels[1, 0, 1] >= 96
    wide = ImageFolder(tmp_path, [10, 20], ".", 1, 1)
    pixels = np.frombuffer(list(raw(wide, "test"))[0], np.uint8).reshape(3, 10, 20)
    assert (np.ptp(pixels[1], axis=1) > 80).all()
    closer = ImageFolder(tmp_path, [10, 20], ".", 1, 1, scale=2.0)
    pixels = np.frombuffer(list(raw(closer, "test"))[0], np.uint8).reshape(3, 10, 20)
    assert np.ptp(pixels[1, :, 1:-1]) == 0 and wide.description() != closer.description()


def test_sixteen_bits_and_palettes_are_read(tmp_path):
    ramp = (np.arange(36, dtype=np.uint16) * 257).reshape(6, 6)
    for label in "ab":
        for number in range(3):
            (tmp_path / label).mkdir(exist_ok=True)
            Image.fromarray(np.roll(ramp, number + 5 * (label == "a"))).save(tmp_path / label / f"{number}.png")
    data = ImageFolder(tmp_path, 6, ".", 1, 1, channels=1)
    assert set(np.frombuffer(list(raw(data, "test"))[0], np.uint8)) == set(range(36))
    Image.fromarray(ramp.astype(np.uint8)).convert("P").save(tmp_path / "a" / "palette.gif")
    assert len(ImageFolder(tmp_path, 6, ".", 1, 1).training) == 5


def test_random_views_are_for_training_only(tmp_path):
    images, labels = pictures(30, size=12)
    view = RandomView(least_area=0.3, brightness=0.2, saturation=0.3, contrast=0.1)
    data = made("folder", tmp_path, images, labels, random_view=view)
    plain = made("folder", tmp_path, images, labels)
    same, again, other = (everything(data.training, np.random.default_rng(seed))[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(same, again)
    assert (same != other).any(axis=(1, 2, 3)).all()
    assert (same != everything(data.training)[0]).any(axis=(1, 2, 3)).all()
    assert same.shape[1:] == data.shape
    for split in ("validation", "test"):
        seen = everything(getattr(data, split), np.random.default_rng(0))[0]
        np.testing.assert_allclose(seen, everything(getattr(plain, split))[0], atol=1e-5)
    # One image, drawn many times in one call, is seen in as many ways.
    many = data.training.draw(np.zeros(8, int), np.random.default_rng(0))[0]
    assert len({image.tobytes() for image in many}) == 8


def test_random_views_are_of_the_area_and_ratio_that_are_asked_for():
    """On a picture of its own coordinates, the first and last pixel tell the part that was cut."""
    size, view = 200, RandomView(least_area=0.25, aspect_ratio=2)
    columns = np.broadcast_to(np.arange(size, dtype=np.uint8), (size, size))
    image = Image.fromarray(np.stack([columns, columns.T, columns], axis=2))
    random = np.random.default_rng(0)
    found = []
    for _ in range(300):
        part = view.of_size((20, 20))(image, random).astype(float)
        width, height = ((part[0, 0, -1] - part[0, 0, 0]) / 19 * 20, (part[1, -1, 0] - part[1, 0, 0]) / 19 * 20)
        found.append((width * height / size**2, width / height, part[0, 0, 0], part[1, 0, 0]))
    area, ratio, left, top = np.array(found).T
    assert 0.23 < area.min() < 0.3 and 0.9 < area.max() < 1.02
    assert 0.48 < ratio.min() < 0.6 and 1.7 < ratio.max() < 2.1 and abs(np.log(ratio).mean()) < 0.1
    assert left.min() < 10 and left.max() > 60 and top.min() < 10 and top.max() > 60


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_corrupted_image_is_named(tmp_path, monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.setattr(samples, "IN_MEMORY_BYTES", 100)
        monkeypatch.setattr(dataset, "_measured", lambda *given: dataset.Normalization(255, [0] * 3, [1] * 3, 0))
    images, labels = pictures(30)
    folder = tree(tmp_path / "tree", images, labels)
    for name, content in (
        ("short", (folder / "a" / "000.png").read_bytes()[:60]),
        ("empty", b""),
        ("text", b"this is no picture"),
    ):
        broken = folder / "b" / f"{name}.png"
        broken.write_bytes(content)
        with pytest.raises(NnasError, match=f"{name}.png: it cannot be read as an image") as caught:
            everything(image_folder(folder, validation=1, test=1).training)
        assert "\n" not in str(caught.value)
        broken.unlink()


def test_files_that_are_no_images_are_reported(tmp_path):
    folder = tree(tmp_path / "tree", *pictures(30))
    (folder / "a" / "notes.txt").write_text("x")
    assert image_folder(folder).notices == [f"files that are no images are left out: 1, as {folder}/a/notes.txt"]


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"path": "nowhere"}, "data.path=nowhere"),
        ({"training": "train"}, "data.training=train: .* no such folder"),
        ({"test": "c"}, "c: it has no folders with images"),
        ({"training": 3}, "data.training=3"),
        ({"validation": None}, "data.validation is not given"),
        ({"validation": 0}, "data.validation=0"),
        ({"validation": 1.5}, "data.validation=1.5"),
        ({"validation": 20, "test": 10}, "data.test=10 and data.validation=20 leave no training image of 30"),
        ({"size": 0}, "data.size=0"),
        ({"channels": 2}, "data.channels=2"),
        ({"scale": 0.5}, "data.scale=0.5"),
        ({"split_seed": -1}, "data.split_seed=-1"),
        ({"augmentation": ["flip"]}, "data.augmentation: 'flip'"),
    ],
)
def test_wrong_folders_are_named(tmp_path, changes, named):
    folder = tree(tmp_path / "tree", *pictures(30))
    settings = {"path": folder, **changes}
    with pytest.raises(NnasError, match=named) as caught:
        image_folder(settings.pop("path"), **settings)
    assert "\n" not in str(caught.value)


def test_one_class_is_none(tmp_path):
    images, _ = pictures(30)
    folder = tree(tmp_path / "tree", images, np.zeros(30, int))
    with pytest.raises(NnasError, match="tree: all images are of the class 'a'"):
        image_folder(folder)
    assert _folders_in(tmp_path / "tree") == 2  # so that the space can be built, and the data set say it


def test_classes_of_tests_must_be_classes_of_training(tmp_path):
    images, labels = pictures(30)
    tree(tmp_path / "train", images[:20], labels[:20])
    tree(tmp_path / "val", images[20:], labels[20:])
    save(tmp_path / "val" / "d" / "0.png", images[0])
    with pytest.raises(NnasError, match="val/d: there is no such class"):
        ImageFolder(tmp_path, 6, "train", 0.1, "val")
    (tmp_path / "train" / "d").mkdir()
    with pytest.raises(NnasError, match="train/d: the class has no image"):
        ImageFolder(tmp_path, 6, "train", 0.1, "val")


# CSV


def test_csv_is_read_as_nnabla_reads_it(tmp_path):
    """Vectors, .npy, matrices and images, with comments, against nnabla's own reader."""
    random = np.random.default_rng(0)
    values = random.normal(size=(12, 4)).astype(np.float32)
    pixels, _ = pictures(12)
    tables = {
        "vector": ["#name,x__0:a,x__1:b,x__2:c,x__3:d,y:label"],
        "npy": ["x,y:label"],
        "matrix": ["y:label,x:image"],
        "image": ["x:image,y"],
    }
    for number in range(12):
        np.save(tmp_path / f"{number}.npy", values[number].reshape(1, 2, 2))
        np.savetxt(tmp_path / f"{number}.csv", values[number].reshape(2, 2), delimiter=",")
        save(tmp_path / f"{number}.png", pixels[number])
        label = number % 3
        tables["vector"].append(",".join(map(str, [f"row{number}", *map(float, values[number]), label])))
        tables["npy"].append(f"{number}.npy,{label}")
        tables["matrix"].append(f"{label},./{number}.csv")
        tables["image"].append(f"{number}.png,{label}")
    for name, lines in tables.items():
        path = tmp_path / f"data_{name}.csv"
        path.write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
        data = CsvFiles(path, 2, 2, shape=[1, 2, 2] if name == "vector" else None)
        assert data.shape == ((3, 6, 6) if name == "image" else (1, 2, 2)) and data.classes == 3
        source = CsvDataSource(str(path), shuffle=False, normalize=True)
        wanted = set()
        for position in range(12):
            x, y = source._get_data(position)[:: -1 if name == "matrix" else 1]
            wanted.add((np.round(np.ravel(x), 4).astype(np.float32).tobytes(), int(y[0])))
        found = set()
        for split in SPLITS:
            drawn = everything(getattr(data, split))
            normalization = data.description()["normalization"]
            mean, deviation = (np.reshape(normalization[key], (-1, 1, 1)) for key in ("mean", "deviation"))
            for image, label in zip(drawn[0] * deviation + mean, drawn[1][:, 0], strict=True):
                found.add((np.round(image.ravel(), 4).astype(np.float32).tobytes(), int(label)))
        close = {(tuple(np.frombuffer(a, np.float32).round(3)), b) for a, b in found}
        assert close == {(tuple(np.frombuffer(a, np.float32).round(3)), b) for a, b in wanted}, name


@pytest.mark.parametrize(
    "text, named",
    [
        ("x,y\n1.npy,0\n1.npy\n", "line 3: it has 1 values in 2 columns"),
        ("image,y\n1.npy,0\n", "no column 'x'.*there are image, y"),
        ("x,label\n1.npy,0\n", "no column 'y'"),
        ("x,y\n", "at least one image"),
        ("", "no column 'x'"),
        ("x,y\n1.npy,zero\n", "line 2: the label must be one number"),
        ("x,y\n1.npy,-1\n", "labels must be whole numbers"),
        ("x,y\n1.npy,0.5\n", "labels must be whole numbers"),
        ("x,y\n1.npy,7\n", "label 7, but data.classes=3"),
        ("x,y\nnothing.npy,0\n", "line 2: .*nothing.npy"),
        ("x,y\nnothing.png,0\n", "nothing.png: there is no such image"),
        ("x,y\nobjects.npy,0\n", "line 2: .*objects.npy cannot be read"),
        ("x,y\nmusic.wav,0\n", "music.wav is neither"),
        ("x,y\n1.npy,0\n2.npy,1\n", r"line 3: it has the shape \(1, 3, 3\), the first one \(1, 2, 2\)"),
        ("x,y\n1.npy,0\n1.png,1\n", "line 2: it is no image, but others are"),
        ("x__0,x__1,y\n1,a,0\n", "line 2: .*a is no number"),
        ("x__0,x__1,y\n1,2,0\n", "line 2: x has the shape"),
    ],
)
def test_wrong_tables_are_named(tmp_path, text, named):
    np.save(tmp_path / "1.npy", np.zeros((1, 2, 2)))
    np.save(tmp_path / "2.npy", np.zeros((1, 3, 3)))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    save(tmp_path / "1.png", pictures(1)[0][0])
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(NnasError, match=named) as caught:
        CsvFiles(path, 1, 1, classes=3)
    assert "\n" not in str(caught.value)


# HDF5


def test_hdf5_without_a_channel_and_with_a_column_of_labels(tmp_path):
    images, labels = pictures(30, channels=1)
    path = h5(tmp_path / "a.h5", images[:, 0], labels[:, None])
    data = Hdf5(path, 0.2, 5)
    assert data.shape == (1, 6, 6)
    assert set().union(*(raw(data, split) for split in SPLITS)) == {image.tobytes() for image in images}


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"x": "images"}, "no data set 'images'.*there are x, y"),
        ({"training": "nothing.h5"}, "nothing.h5: there is no such HDF5 file"),
        ({"training": "text.h5"}, "text.h5: it cannot be read as HDF5"),
        ({"training": "flat.h5"}, r"flat.h5: x has \(30, 108\)"),
        ({"training": "short.h5"}, "short.h5: x has 30 images, y 29 labels"),
        ({"test": "other.h5"}, "other.h5: images of"),
        ({"training": "words.h5"}, "words.h5: x has 30 images, y 30 labels"),
        ({"training": "infinite.h5"}, "no finite numbers"),
        ({"training": 5}, "data.training=5"),
        ({"classes": 2}, "label 2, but data.classes=2"),
        ({"classes": 1}, "data.classes=1"),
    ],
)
def test_wrong_hdf5_is_named(tmp_path, monkeypatch, changes, named):
    monkeypatch.chdir(tmp_path)
    images, labels = pictures(30)
    h5("a.h5", images, labels)
    h5("flat.h5", images.reshape(30, -1), labels)
    h5("short.h5", images, labels[:29])
    h5("other.h5", images.astype(np.float32), labels)
    h5("words.h5", images, np.array([b"a"] * 30))
    infinite = images.astype(np.float32)
    infinite[:20, 0, 0, 0] = np.inf
    h5("infinite.h5", infinite, labels)
    Path("text.h5").write_text("x")
    with pytest.raises(NnasError, match=named):
        Hdf5(**{"training": "a.h5", "validation": 5, "test": 5, **changes})


# Synthetic


def test_synthetic_data_say_that_they_are():
    data = Synthetic([3, 8, 8], 5, 200, 40, 60)
    assert [len(getattr(data, split)) for split in (*SPLITS, "retraining")] == [200, 40, 60, 240]
    assert data.description()["kind"] == "synthetic" and "synthetic" in data.notices[0]
    images, labels = everything(data.test)
    assert np.bincount(labels[:, 0]).tolist() == [12] * 5
    # Images of a class are around its pattern, of which the training images tell the mean.
    training, known = everything(data.training)
    means = np.stack([training[known[:, 0] == label].mean(axis=0) for label in range(5)])
    nearest = ((images[:, None] - means) ** 2).sum(axis=(2, 3, 4)).argmin(axis=1)
    assert (nearest == labels[:, 0]).all()
    same, other = Synthetic([3, 8, 8], 5, 200, 40, 60), Synthetic([3, 8, 8], 5, 200, 40, 60, split_seed=1)
    assert data.description() == same.description() != other.description()
    assert everything(same.test)[0].tobytes() == images.tobytes()


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"shape": [3, 8]}, "data.shape"),
        ({"shape": [3, 8, 0]}, "data.shape=0"),
        ({"classes": 1}, "data.classes=1"),
        ({"training": 0}, "data.training=0"),
        ({"noise": -1}, "data.noise=-1"),
        ({"split_seed": "a"}, "data.split_seed='a'"),
    ],
)
def test_wrong_synthetic_data_are_named(changes, named):
    with pytest.raises(NnasError, match=named):
        Synthetic(**{"shape": [3, 8, 8], "classes": 5, "training": 2, "validation": 2, "test": 2, **changes})


def unequal(folder):
    """Classes of 16, 4 and 2 images."""
    images, _ = pictures(22)
    return tree(folder, images, [0] * 16 + [1] * 4 + [2] * 2)


@pytest.mark.parametrize("balance, counts", [(0.0, [16, 4, 2]), (0.5, [16, 8, 6]), (1.0, [16, 16, 16])])
def test_rare_classes_are_made_up_for_in_training_alone(tmp_path, balance, counts):
    unequal(tmp_path / "data" / "train")
    tree(tmp_path / "data" / "test", pictures(6, seed=1)[0], [0, 0, 0, 0, 1, 2])
    tree(tmp_path / "data" / "val", *pictures(3, seed=2))
    data = image_folder(tmp_path / "data", training="train", validation="val", test="test", balance=balance)
    drawn, given = everything(data.training)
    assert np.bincount(given.ravel()).tolist() == counts
    each = {image.tobytes(): 0 for image in drawn}
    for image in drawn:
        each[image.tobytes()] += 1
    assert len(each) == 22, "every image is there"
    assert all(
        max(own) - min(own) <= 1 for own in [[each[i.tobytes()] for i in drawn[given.ravel() == c]] for c in (0, 1, 2)]
    )
    assert (len(data.validation), len(data.test)) == (3, 6) and len(data.retraining) >= len(data.training)
    assert ("balance" in data.description()) == (balance > 0)


def test_images_that_cannot_be_read_are_skipped_when_asked(tmp_path):
    folder = tree(tmp_path / "data", *pictures(22))
    broken = [folder / "a" / "000.png", folder / "b" / "001.png"]
    broken[0].write_bytes(broken[0].read_bytes()[:40])
    broken[1].write_text("no image")
    with pytest.raises(NnasError, match="000.png: it cannot be read"):
        image_folder(folder)
    data = image_folder(folder, corrupted="skip")
    assert data.notices == [f"images that cannot be read are skipped: 2, as {broken[0]}"]
    assert sum(data.description()["samples"].values()) == 20 and data.description()["skipped"] == 2
    whole = image_folder(tree(tmp_path / "whole", *pictures(22)), corrupted="skip")
    assert whole.notices == [] and "skipped" not in whole.description()
    for path in (folder / "c").iterdir():
        path.write_text("no image")
    with pytest.raises(NnasError, match="no training image of the class 'c' can be read"):
        image_folder(folder, corrupted="skip")
    with pytest.raises(NnasError, match="did you mean 'skip'"):
        image_folder(folder, corrupted="skipp")
