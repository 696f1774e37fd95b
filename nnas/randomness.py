"""Random generators made from the run's seed and the place of use, so that nothing but these two decides a draw."""

import zlib

import nnabla as nn
import numpy as np


def generator(seed, *place):
    """numpy.random.Generator of a place: words and integers, as in generator(3, 'train', epoch, step)."""
    return np.random.default_rng([seed, *(_number(part) for part in place)])


def seed_functions(seed, *place):
    """Seed nnabla's random functions (dropout and the like), also of graphs that are built."""
    nn.random.set_function_seed(int(generator(seed, *place).integers(2**31)))


def seed_initializers(seed, *place):
    """Seed the initial values of the parameters created from here on."""
    nn.random.prng = np.random.RandomState(generator(seed, *place).integers(2**32, size=8, dtype=np.uint32))


def _number(part):
    return zlib.crc32(part.encode()) if isinstance(part, str) else part
