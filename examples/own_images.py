"""Images of one's own: two photographs that scikit-learn has, cut into tiles, a folder for each class.

From this folder: python own_images.py && nnas images data.path=tiles
"""

from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images


def main(folder="tiles", size=40):
    photographs = load_sample_images()
    for name, pixels in zip(photographs.filenames, photographs.images, strict=True):
        image, place = Image.fromarray(pixels), Path(folder) / Path(name).stem
        place.mkdir(parents=True, exist_ok=True)
        for top in range(0, image.height - size + 1, size):
            for left in range(0, image.width - size + 1, size):
                image.crop((left, top, left + size, top + size)).save(place / f"{top}_{left}.png")
    print(f"{folder}: {', '.join(Path(name).stem for name in photographs.filenames)}")


if __name__ == "__main__":
    main()
