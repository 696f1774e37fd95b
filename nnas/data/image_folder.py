"""Images in folders, one folder for each class."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnas.data.bars import bar
from nnas.data.dataset import DataSet, origins_and_sizes
from nnas.data.images import EXTENSIONS, MiddleView, read_image
from nnas.data.samples import WORKERS, checked_labels, file_samples
from nnas.errors import NnasError, check_number, check_positive_integer, nearest

CORRUPTED = ("error", "skip")


class ImageFolder(DataSet):
    """path: a folder. training: the folder in it with the training images, '.' for itself. validation, test: their
    folders in it, or a number of training images, or a share of them. In each of these lies a folder for each class;
    classes are numbered in the order of their names.

    size: H = W, or [H, W], to which images are scaled; scale: as in images.MiddleView. channels: 1 for grey, 3 for
    RGB. random_view: an images.RandomView for training, or None. Images are read when they are drawn where a random
    view is given or they would take more than 1 GiB, else once. balance: as in dataset.DataSet. corrupted: 'skip' looks
    at all images first and leaves out those that cannot be read, with their number as a notice; with 'error' the first
    of them ends the command.
    """

    def __init__(
        self,
        path,
        size,
        training="train",
        validation="val",
        test="test",
        scale=1.0,
        channels=3,
        random_view=None,
        split_seed=0,
        augmentation=(),
        balance=0.0,
        corrupted="error",
    ):
        height, width = size if isinstance(size, (list, tuple)) and len(size) == 2 else (size, size)
        shape = (
            check_positive_integer("data.channels", channels),
            check_positive_integer("data.size", height),
            check_positive_integer("data.size", width),
        )
        if channels not in (1, 3):
            raise NnasError(f"data.channels={channels}: it must be 1 (grey) or 3 (RGB)")
        check_number("data.scale", scale, 1)
        if corrupted not in CORRUPTED:
            raise NnasError(
                f"data.corrupted={corrupted!r}: possible are {', '.join(CORRUPTED)}{nearest(corrupted, CORRUPTED)}"
            )
        folders, held_out = origins_and_sizes(training, validation, test)
        names, found, notices = _listed(Path(path), folders)
        facts = {}
        if corrupted == "skip":
            found, skipped = _readable(found, channels, names)
            if skipped:
                notices.append(f"images that cannot be read are skipped: {len(skipped)}, as {skipped[0]}")
                facts["skipped"] = len(skipped)
        paths = [one for files in found.values() for one, _ in files]
        labels, classes = checked_labels([label for files in found.values() for _, label in files], len(names), path)
        view = MiddleView(shape[1:], scale)
        samples = file_samples(paths, labels, shape, view, random_view and random_view.of_size(shape[1:]))
        counts = {name: len(files) for name, files in found.items()}
        super().__init__(
            "image_folder",
            path,
            samples,
            classes,
            counts,
            held_out,
            split_seed,
            augmentation,
            balance,
            class_names=names,
            **facts,
        )
        self.notices += notices


def _readable(found, channels, names):
    """({split: [(path, label)]} without what cannot be read, the paths of that)."""

    def is_readable(entry):
        try:
            read_image(entry[0], channels)
            return True
        except NnasError:
            return False

    kept, skipped = {}, []
    with ThreadPoolExecutor(min(WORKERS, len(os.sched_getaffinity(0))), "images") as threads:
        for split, files in found.items():
            good = list(bar(threads.map(is_readable, files), f"looking at the images for {split}", len(files)))
            kept[split] = [entry for entry, is_good in zip(files, good, strict=True) if is_good]
            skipped += [path for (path, _), is_good in zip(files, good, strict=True) if not is_good]
    if empty := set(range(len(names))) - {label for _, label in kept["training"]}:
        name = names[min(empty)]
        raise NnasError(
            f"data.corrupted=skip: no training image of the class {name!r} can be read; restore or remove it"
        )
    return kept, skipped


def _listed(root, folders):
    """(names of the classes, {split: [(path, label)]}, notices)."""
    if not root.is_dir():
        raise NnasError(
            f"data.path={root}: there is no such folder; one that has a folder of images for each class is needed"
        )
    for name, folder in folders.items():
        if not (root / folder).is_dir():
            raise NnasError(
                f"data.{name}={folder}: {root} has no such folder; give its name in there, or data.training=. and "
                "numbers or shares of it for data.validation and data.test"
            )
    # In one tree that is split, the folders of other splits are not classes.
    others = {(root / folder).resolve() for folder in folders.values()}
    found, notices, names = {}, [], None
    for split, folder in folders.items():
        classes = {
            one.name: one
            for one in sorted((root / folder).iterdir())
            if one.is_dir() and not one.name.startswith(".") and one.resolve() not in others
        }
        names = list(classes) if names is None else names
        if unknown := sorted(classes.keys() - set(names)):
            raise NnasError(
                f"{classes[unknown[0]]}: there is no such class among the training images; add or remove it"
            )
        files, left_out = [], []
        for label, name in enumerate(bar(names, f"listing {root / folder}")):
            # Strings: a million of Path objects would take half a gigabyte.
            inside = os.walk(classes[name], followlinks=True) if name in classes else ()
            entries = sorted(os.path.join(place, one) for place, _, found_there in inside for one in found_there)
            images = [one for one in entries if one.lower().endswith(EXTENSIONS)]
            left_out += [one for one in entries if not one.lower().endswith(EXTENSIONS)]
            files += [(one, label) for one in images]
            if not images and split == "training":
                raise NnasError(
                    f"{classes[name]}: the class has no image ({', '.join(EXTENSIONS)}); add some or remove it"
                )
        if not files:
            raise NnasError(f"{root / folder}: it has no folders with images; one for each class was expected")
        if len(names) < 2:
            raise NnasError(
                f"{root / folder}: all images are of the class {names[0]!r}; a folder for each class is needed"
            )
        if left_out:
            notices.append(f"files that are no images are left out: {len(left_out)}, as {left_out[0]}")
        found[split] = files
    return names, found, notices
