"""A new device from a few whole networks measured on it, and the costs of parts on other devices."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from estimators.base import EstimatorError

FEWEST_NETWORKS = 4
MOST_NETWORKS = 500  # the time grows with their third power: these take a minute
MOST_FOLDS = 10
# What is averaged over: the relative error of a measured network, and how far the costs of parts may lie from the mean
# of the sources: along the sources' own differences, each part for itself, all parts of a group together.
NOISES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
ALONG_SOURCES = (0.5, 1.0, 2.0)
ALONE = (0.05, 0.2, 0.5)
TOGETHER = (0.0, 0.2, 0.5)
SPEED = 0.3
# This share of the noise is the same for all networks, the rest grows with their latency: were all of it relative, a
# network of next to nothing would outweigh all others.
COMMON_NOISE = 0.75
LEAST_COST = 0.05  # of the mean of the sources: a cost below it is no cost


@dataclass(frozen=True)
class Adaptation:
    """costs: (parts,), in the unit of the latencies. error: the root mean square of the relative errors of networks
    that were left out (cross-validation)."""

    costs: np.ndarray
    error: float


def adapt(counts, latencies, sources=(), groupings=()):
    """The Adaptation to a device on which a few whole networks were measured.

    counts: (networks, parts), how often each part stands in each measured network. latencies: (networks,), positive,
    in any unit. sources: (devices, parts), the parts' costs on other devices, each in any unit; none: all parts are
    taken for equal at first. groupings: sequences of (parts,) labels; what has one label deviates together.

    A network costs the sum of its parts, as tables and searches have it, so what has to be found are the parts' costs,
    more of them than networks. They get a Gaussian prior: its mean is that of the sources, each scaled to the measured
    networks; its covariance is that of the sources among themselves, and beyond it each part, and each group of parts,
    may deviate. Ten sums then give a mean of all costs in closed form (Rasmussen and Williams 2006, chapter 2). How
    large the deviations and the noise are is not chosen but averaged over, weighted by the probability of the measured
    latencies.

    Raises EstimatorError for fewer than four networks or more than 500, for latencies that are none, and for shapes
    that do not match.
    """
    counts, latencies = np.asarray(counts, float), np.asarray(latencies, float)
    sources = np.asarray(sources, float).reshape(len(sources), -1 if len(sources) else counts.shape[-1])
    _check(counts, latencies, sources, groupings)
    costs = posterior_costs(counts, latencies, sources, groupings)
    fold_of = np.arange(len(latencies)) % MOST_FOLDS
    errors = []
    for fold in np.unique(fold_of):
        out = fold_of == fold
        predicted = counts[out] @ posterior_costs(counts[~out], latencies[~out], sources, groupings)
        errors.extend(predicted / latencies[out] - 1)
    return Adaptation(costs, float(np.sqrt(np.mean(np.square(errors)))))


def _check(counts, latencies, sources, groupings):
    if len(latencies) < FEWEST_NETWORKS:
        raise EstimatorError(
            f"adaptation needs {FEWEST_NETWORKS} measured networks at least, better ten, and there are "
            f"{len(latencies)}: measure more"
        )
    if len(latencies) > MOST_NETWORKS:
        raise EstimatorError(
            f"adaptation is for a few measured networks, {MOST_NETWORKS} at most, and there are {len(latencies)}: give "
            "fewer"
        )
    if counts.shape != (len(latencies), sources.shape[1]) or any(len(one) != counts.shape[1] for one in groupings):
        raise EstimatorError(
            f"adaptation got counts of shape {counts.shape}, {len(latencies)} latencies, sources of shape "
            f"{sources.shape} and labels of {[len(one) for one in groupings]} parts: they have to match"
        )
    if not (np.isfinite(latencies).all() and (latencies > 0).all()):
        raise EstimatorError("adaptation needs positive latencies of whole networks, in one unit")
    if not (np.isfinite(sources).all() and (sources >= 0).all() and (counts @ sources.T).any(0).all()):
        raise EstimatorError(
            "adaptation needs sources whose parts cost 0 or more, and the measured networks more than 0"
        )


def posterior_costs(counts, latencies, sources, groupings):
    """The parts' costs alone, (parts,); see adapt. Nothing is checked."""
    sources = np.asarray(sources, float) if len(sources) else np.ones((1, counts.shape[1]))
    scaled = sources / (counts @ sources.T).mean(0)[:, None]
    mean = scaled.mean(0)
    predicted = counts @ mean
    some = predicted > 0
    speed = np.exp(np.median(np.log(latencies[some] / predicted[some])))
    # Each way to deviate as a factor of its covariance, (parts, directions), and the sizes that it may have.
    members = [_members(labels) for labels in groupings]
    ways = [
        (mean[:, None], (SPEED,)),
        ((scaled - mean).T / np.sqrt(len(scaled)), ALONG_SOURCES if len(scaled) > 1 else (0.0,)),
        (np.diag(mean), ALONE),
        *([(np.concatenate(members, axis=1) * mean[:, None], TOGETHER)] if members else []),
    ]
    least = LEAST_COST * mean
    fixed = np.zeros(len(mean), bool)
    while True:
        # A cost below the least is held there, and what it had less than that is found among the others.
        costs = _posterior_mean(
            counts,
            latencies / speed,
            np.where(fixed, least, mean),
            [(np.where(fixed[:, None], 0.0, factor), sizes) for factor, sizes in ways],
        )
        below = ~fixed & (costs < least)
        if not below.any():
            return speed * costs
        fixed |= below


def _posterior_mean(counts, latencies, mean, ways):
    """The mean of the parts' costs given the latencies, averaged over the sizes of noise and of all ways to deviate."""
    residual = latencies - counts @ mean
    noise_shape = (1 - COMMON_NOISE) * latencies + COMMON_NOISE
    projected = [counts @ factor for factor, _ in ways]
    covariances = [one @ one.T for one in projected]
    evidences, steps = [], []
    for noise, *sizes in product(NOISES, *(sizes for _, sizes in ways)):
        covariance = np.diag((noise * noise_shape) ** 2)
        for size, one in zip(sizes, covariances, strict=True):
            covariance = covariance + size**2 * one
        solved = np.linalg.solve(covariance, residual)
        evidences.append(-0.5 * (residual @ solved + np.linalg.slogdet(covariance)[1]))
        steps.append([size**2 * solved for size in sizes])
    weights = np.exp(np.array(evidences) - max(evidences))
    averaged = np.einsum("s,swn->wn", weights / weights.sum(), np.array(steps))
    return mean + sum(factor @ (one.T @ step) for (factor, _), one, step in zip(ways, projected, averaged, strict=True))


def _members(labels):
    """(parts, groups): 1 where a part belongs to a group."""
    labels = np.asarray(labels)
    return (labels[:, None] == np.unique(labels)).astype(float)


def reaching(edges, carries, output):
    """Which operators of a cell can reach its output, (networks, edges).

    edges: (from, to) of each operator, numbers of nodes with from < to. carries: (networks, edges), False where an
    operator passes nothing on, as "none". output: the number of the output node. A runtime that computes only what is
    asked for skips all others: counts times this price them at 0 then. GPUs, where all layers are launched, do not.
    """
    carries = np.asarray(carries, bool)
    reached = np.zeros((len(carries), output + 1), bool)
    reached[:, output] = True
    for edge in sorted(range(len(edges)), key=lambda edge: -edges[edge][1]):
        start, end = edges[edge]
        reached[:, start] |= reached[:, end] & carries[:, edge]
    return reached[:, [end for _, end in edges]]
