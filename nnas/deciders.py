"""Deciders: what happens at the open points of a network.

A space is a function network(x, decide, mode) that calls decide(name, candidates, x) at every open point, where
candidates is {option: function of x}. What a call does is the decider's affair; it returns the output at that point.

Where only some of several inputs stay it calls decide.node(name, edges, keep), where edges is {decision: (candidates,
x)}, and gets the sum over the `keep` edges that stay. The option "none" of an edge is not computed and not added.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import nnabla as nn
import nnabla.functions as F

from nnas.errors import NnasError
from nnas.layers import SHIPPED, scaled, weighted_sum
from nnas.space import NONE, Decision, Node, Site, Space


class Listing:
    """Builds every option and records the decisions; checks that the options of one return the same shape."""

    def __init__(self):
        self._decisions, self._nodes = {}, {}
        self._around = _Around()

    def __call__(self, name, candidates, x):
        options = tuple(candidates)
        known, sites = self._decisions.get(name, (options, ()))
        if known != options:
            raise NnasError(f"decision {name} has the options {known} at one site and {options} at another")
        self._decisions[name] = options, sites + (Site(tuple(x.shape[1:]), self._around.when),)
        outputs = {}
        for option, candidate in candidates.items():
            with self._around.choice(name, option):
                outputs[option] = candidate(x)
        shapes = {option: output.shape for option, output in outputs.items()}
        if len(set(shapes.values())) != 1:
            raise NnasError(f"decision {name}: its options must return one shape, but they return {shapes}")
        return outputs[options[0]]

    def node(self, name, edges, keep):
        if self._around.when:
            raise NnasError(
                f"node {name}: it stands in an option of {self._around.when[-1][0]}; nodes cannot be nested"
            )
        if self._nodes.setdefault(name, Node(name, tuple(edges), keep)) != Node(name, tuple(edges), keep):
            raise NnasError(f"node {name} has other edges, or keeps another number of them, at another site")
        if type(keep) is not int or not 1 <= keep <= len(edges):
            raise NnasError(f"node {name}: it cannot keep {keep} of {len(edges)} edges; give it 1 to {len(edges)}")
        outputs = {}
        for edge, (candidates, x) in edges.items():
            if any(edge in node.edges for node in self._nodes.values() if node.name != name):
                raise NnasError(f"node {name}: the decision {edge} belongs to another node already")
            if not set(candidates) - {NONE}:
                raise NnasError(f"node {name}: the edge {edge} needs an option besides {NONE!r}")
            outputs[edge] = self(edge, candidates, x)
        if len({output.shape for output in outputs.values()}) != 1:
            shapes = {edge: output.shape for edge, output in outputs.items()}
            raise NnasError(f"node {name}: its edges must return one shape, but they return {shapes}")
        return F.add_n(*list(outputs.values())[:keep])

    def space(self, name):
        decisions = tuple(Decision(decision, *rest) for decision, rest in self._decisions.items())
        edges = {edge for node in self._nodes.values() for edge in node.edges}
        for decision in decisions:
            nested = decision.name in edges and any(site.when for site in decision.sites)
            if nested:
                raise NnasError(f"decision {decision.name} is an edge of a node, and stands in another option besides")
        return Space(name, decisions, tuple(self._nodes.values()))


def listed(network):
    """The Space of a network."""
    with nn.parameter_scope("", {}):
        listing = Listing()
        network(nn.Variable((1, *network.input_shape)), listing, SHIPPED)
    return listing.space(network.name)


@dataclass(frozen=True)
class Part:
    """A piece of a network between two cuts, which counts when all of `when` is chosen.

    outputs, inputs: tuples of nnabla variables, going backward from the outputs ends at the inputs.
    held: the variables that exist when the piece runs and that later pieces need, its own inputs perhaps among them.
    """

    when: tuple
    outputs: tuple
    inputs: tuple
    label: str
    held: tuple = ()


class Costing:
    """Cuts the network at every decision into parts: each option alone, and what lies between.

    name: of the space, for the labels of the parts. x: the input of the network.
    """

    def __init__(self, name, x):
        self.parts = []
        self._name = name
        self._around = _Around()
        self._cuts = {x: (x, 0, ())}  # what it stands for, how many parts were there before it, and when it is there
        self._priced = {}  # {function: number of its part}

    def __call__(self, name, candidates, x):
        return self._cut(self._priced_options(name, candidates, x).shape)

    def node(self, name, edges, keep):
        results = []
        for number, (edge, (candidates, x)) in enumerate(edges.items(), start=1):
            output = self._priced_options(edge, {one: each for one, each in candidates.items() if one != NONE}, x)
            # Of the first edges all but one may be there already when the next runs.
            if len(results) < keep - 1 or number == len(edges):
                results.append(self._cut(output.shape))
        return F.add_n(*results)

    def _priced_options(self, name, candidates, x):
        self._price(x, f"before {name}")
        for option, candidate in candidates.items():
            with self._around.choice(name, option):
                output = candidate(self._cut(x.shape, self._stands_for(x)))
                self._price(output, f"{name} = {option}")
        return output

    def finish(self, *outputs):
        """Price what lies behind the last decisions; outputs: what the network returned."""
        for output in outputs:
            self._price(output, "head")
        readers = {}
        for number, part in enumerate(self.parts):
            for x in part.inputs:
                readers.setdefault(self._stands_for(x), []).append(number)
        self.parts = [replace(part, held=self._held(number, part, readers)) for number, part in enumerate(self.parts)]

    def _cut(self, shape, stands_for=None):
        variable = nn.Variable(shape)
        self._cuts[variable] = stands_for or (variable, len(self.parts), self._around.when)
        return variable

    def _stands_for(self, x):
        """(the variable that x was cut from, the number of the first part behind it, the choices that make it)."""
        if x.parent not in self._priced:
            return self._cuts.get(x, (x, 0, ()))
        number = self._priced[x.parent]
        return x, number + 1, self.parts[number].when

    def _held(self, number, part, readers):
        """What is there when a part has run, and later parts read; readers: {what _stands_for says: their numbers}."""
        own = {self._stands_for(x): x for x in part.inputs}
        chosen = dict(part.when)

        def may_be_chosen(when):
            return all(chosen.get(name, option) == option for name, option in when)

        return tuple(
            own.get(origin, origin[0])
            for origin, numbers in readers.items()
            if numbers[-1] > number
            and origin[1] <= number + (self._priced.get(origin[0].parent) == number)
            and may_be_chosen(origin[2])
            and any(reader > number and may_be_chosen(self.parts[reader].when) for reader in numbers)
        )

    def _price(self, output, label):
        functions, ends = _walk_back(output, lambda variable: variable.parent in self._priced)
        if functions:
            self._priced.update(dict.fromkeys(functions, len(self.parts)))
            inputs = tuple(end for end in ends if end.parent is not None or end in self._cuts)
            self.parts.append(Part(self._around.when, (output,), inputs, f"{self._name}: {label}"))


class Fixed:
    """Builds the chosen options only, under the names that they have in the supernet."""

    def __init__(self, choices):
        self._choices = choices

    def __call__(self, name, candidates, x):
        if self._choices.get(name) not in candidates:
            raise NnasError(f"{name}={self._choices.get(name)!r}: the space has {', '.join(candidates)}")
        return candidates[self._choices[name]](x)

    def node(self, name, edges, keep):
        kept = [edge for edge in edges if edge in self._choices]
        if len(kept) != keep or any(self._choices[edge] == NONE for edge in kept):
            raise NnasError(
                f"the node {name} keeps {keep} of its edges {', '.join(edges)}, with an option other than {NONE!r}; "
                f"there are {', '.join(f'{edge}={self._choices[edge]}' for edge in kept) or 'none of them'}"
            )
        return F.add_n(*(self(edge, *edges[edge]) for edge in kept))


class Sampled:
    """Builds all options behind one sum with an input mask; `select` flips the masks of the graph that stays built."""

    def __init__(self):
        self._sites = []

    def __call__(self, name, candidates, x):
        return self._sum({name: (candidates, x)})

    def node(self, name, edges, keep):
        """All options of all edges behind one sum."""
        return self._sum(_without_none(edges))

    def _sum(self, edges):
        branches = _branches(edges)
        output = F.add_n(*branches.values())
        self._sites.append(_MaskedSite(branches, {name: x for name, (_, x) in edges.items()}, output))
        return output

    def select(self, choices):
        """Make the paths of the choices the active ones; decisions that are not reached need no choice."""
        for site in self._sites:
            site.select(choices)

    def parameters(self, output):
        """Return a function from choices to the names of the parameters that reach `output`, those of nnabla's
        current scope."""
        names = {parameter: name for name, parameter in nn.get_parameters(grad_only=False).items()}
        sums = {site.output: site for site in self._sites}

        def touched(start, stops=()):
            # A sum over options is stepped over: what its options touch counts where they are chosen.
            found, seen, waiting = set(), {start}, [start]
            while waiting:
                _, ends = _walk_back(waiting.pop(), lambda variable: variable in stops or variable in sums)
                found.update(names[end] for end in ends if end in names)
                for end in ends:
                    if end in sums and end not in stops:
                        further = set(sums[end].inputs.values()) - seen
                        seen |= further
                        waiting.extend(further)
            return found

        always = touched(output)
        options = {}
        for site in self._sites:
            for (name, option), branch in site.branches.items():
                options.setdefault((name, option), set()).update(touched(branch, (site.inputs[name],)))

        def of(choices):
            return sorted(always.union(*(options[choice] for choice in choices.items())))

        return of


class Mixture:
    """Sums all options, weighted.

    weights: {decision: variable of shape (options,)}, in the order of the options. With an entry under the name of a
    node, of shape (edges,), each of its edges is weighted by that too (PC-DARTS' edge normalization). kernels: as in
    layers.Mode, to sum with.
    """

    def __init__(self, weights, kernels=None):
        self._weights = weights
        self._kernels = kernels

    def __call__(self, name, candidates, x):
        return self._sum(_branches({name: (candidates, x)}), self._of_options(name, candidates))

    def node(self, name, edges, keep):
        """The sum over all edges and their options, whatever `keep` is. The weights of NONE get no gradient."""
        weights = {}
        for position, (edge, (candidates, _)) in enumerate(edges.items()):
            of_edge = self._of_options(edge, candidates)
            if name in self._weights:
                self._check(f"node {name} has {len(edges)} edges", self._weights[name], len(edges))
                share = F.slice(self._weights[name], (position,), (position + 1,))
                of_edge = {key: F.mul2(weight, share) for key, weight in of_edge.items()}
            weights |= of_edge
        return self._sum(_branches(_without_none(edges)), weights)

    def _of_options(self, name, candidates):
        """{(decision, option): weight, of shape (1,)}."""
        self._check(f"decision {name} has {len(candidates)} options", self._weights[name], len(candidates))
        return {(name, option): F.slice(self._weights[name], (i,), (i + 1,)) for i, option in enumerate(candidates)}

    def _sum(self, branches, weights):
        return weighted_sum(list(branches.values()), [weights[key] for key in branches], self._kernels)

    def _check(self, what, weights, size):
        if weights.shape != (size,):
            raise NnasError(f"{what}, but weights of shape {weights.shape}")


class MaskedMixture(Mixture):
    """A mixture of which `select` leaves some options out of the graph that stays built."""

    def __init__(self, weights):
        super().__init__(weights)
        self._sites = []

    def select(self, options):
        """Sum only some of the options: {decision: options}, at least one each; decisions not named stay as they are.

        The others are neither computed nor differentiated: their weights get no gradient.
        """
        for mask, output in self._sites:
            mask.update({(name, option): option in options[name] for name, option in mask if name in options})
            self._set(mask, output)

    def _sum(self, branches, weights):
        products = {key: scaled(branch, weights[key]) for key, branch in branches.items()}
        shape = next(iter(branches.values())).shape
        # Where nothing is selected, as at an edge of which only NONE is, the sum would keep what it was before.
        output = F.add_n(*products.values(), F.constant(0, shape))
        self._sites.append((dict.fromkeys(products, True), output))
        self._set(*self._sites[-1])
        return output

    def _set(self, mask, output):
        active = list(mask.values())
        output.parent.set_active_input_mask([*active, not any(active)])


def _without_none(edges):
    """The edges of a node with the options that are computed."""
    return {
        edge: ({option: candidate for option, candidate in candidates.items() if option != NONE}, x)
        for edge, (candidates, x) in edges.items()
    }


def _branches(edges):
    """{(decision, option): output}."""
    return {
        (name, option): candidate(x)
        for name, (candidates, x) in edges.items()
        for option, candidate in candidates.items()
    }


class _MaskedSite:
    """A sum of which one option of each of its decisions counts, or none of them where that is an edge that is dropped.

    branches: {(decision, option): variable}. inputs: {decision: variable}."""

    def __init__(self, branches, inputs, output):
        self.branches, self.inputs, self.output = branches, inputs, output
        self._selected = None
        self.select({name: option for name, option in reversed(branches)})

    def select(self, choices):
        mask = [choices.get(name) == option for name, option in self.branches]
        if not any(mask):
            wrong = {name: choices[name] for name in self.inputs if name in choices}
            if wrong:
                raise NnasError(f"{wrong}: there is no such option")
        elif mask != self._selected:
            self.output.parent.set_active_input_mask(mask)
            self._selected = mask


class _Around:
    """The choices around the place where a network is being built."""

    def __init__(self):
        self.when = ()

    @contextmanager
    def choice(self, name, option):
        self.when += ((name, option),)
        try:
            yield
        finally:
            self.when = self.when[:-1]


def _walk_back(output, is_end):
    """The functions backward from `output`, and the variables where the walk ends: leaves, and where is_end holds."""
    functions, ends, seen, waiting = {}, [], {output}, [output]
    while waiting:
        variable = waiting.pop()
        if variable.parent is None or is_end(variable):
            ends.append(variable)
            continue
        functions[variable.parent] = None
        for before in variable.parent.inputs:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return list(functions), ends
