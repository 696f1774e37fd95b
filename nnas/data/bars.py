"""Progress bars of data sets, which are made from the configuration before anything else could show their progress."""

from tqdm import tqdm


def bar(items=None, text="", total=None, unit="it"):
    """tqdm over `items`, or to be updated by hand up to `total`; drawn only where someone can see it."""
    scaled = unit == "B"
    return tqdm(
        items, text, total, unit=unit, unit_scale=scaled, disable=None, leave=False, dynamic_ncols=True, delay=0.5
    )
