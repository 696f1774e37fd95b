"""Deciders: what happens at the open points of a network.

A space is a function network(x, decide, mode) that calls decide(name, candidates, x) at every open point, where
candidates is {option: function of x}. What a call does is the decider's affair; it returns the output at that point.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import nnabla as nn
import nnabla.functions as F

from nnas.errors import NnasError
from nnas.layers import SHIPPED
from nnas.space import Decision, Site, Space


class Listing:
    """Builds every option and records the decisions; checks that the options of one return the same shape."""

    def __init__(self):
        self._decisions = {}
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

    def space(self, name):
        return Space(name, tuple(Decision(decision, *rest) for decision, rest in self._decisions.items()))


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
        self._price(x, f"before {name}")
        for option, candidate in candidates.items():
            with self._around.choice(name, option):
                output = candidate(self._cut(x.shape, self._stands_for(x)))
                self._price(output, f"{name} = {option}")
        return self._cut(output.shape)

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
            if origin[1] <= number + (self._priced.get(origin[0].parent) == number)
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


class Sampled:
    """Builds all options behind one sum with an input mask; `select` flips the masks of the graph that stays built."""

    def __init__(self):
        self._sites = []

    def __call__(self, name, candidates, x):
        branches = [candidate(x) for candidate in candidates.values()]
        output = F.add_n(*branches)
        self._sites.append(_MaskedSite(name, tuple(candidates), x, branches, output))
        return output

    def select(self, choices):
        """Make the paths of the choices the active ones; decisions that are not reached need no choice."""
        for site in self._sites:
            if site.name in choices:
                site.select(choices[site.name])

    def parameters(self, output):
        """Return a function from choices to the names of the parameters that reach `output`, those of nnabla's
        current scope."""
        names = {parameter: name for name, parameter in nn.get_parameters(grad_only=False).items()}
        sums = {site.output: site for site in self._sites}

        def touched(start, stops=()):
            # A sum over options is stepped over: what its options touch counts where they are chosen.
            found, waiting = set(), [start]
            while waiting:
                _, ends = _walk_back(waiting.pop(), lambda variable: variable in stops or variable in sums)
                waiting.extend(sums[end].input for end in ends if end in sums and end not in stops)
                found.update(names[end] for end in ends if end in names)
            return found

        always = touched(output)
        options = {}
        for site in self._sites:
            for option, branch in zip(site.options, site.branches, strict=True):
                options.setdefault((site.name, option), set()).update(touched(branch, (site.input,)))

        def of(choices):
            return sorted(always.union(*(options[choice] for choice in choices.items())))

        return of


class Mixture:
    """Sums all options, weighted; `select` leaves some of them out of the graph that stays built.

    weights: {decision: variable of shape (options,)}, in the order of the options.
    """

    def __init__(self, weights):
        self._weights = weights
        self._sites = []

    def __call__(self, name, candidates, x):
        branches = [candidate(x) for candidate in candidates.values()]
        weights = self._weights[name]
        if weights.shape != (len(branches),):
            raise NnasError(f"decision {name} has {len(branches)} options, but weights of shape {weights.shape}")
        ones = (1,) * len(x.shape)
        output = F.add_n(
            *(F.mul2(F.reshape(F.slice(weights, (i,), (i + 1,)), ones), branch) for i, branch in enumerate(branches))
        )
        self._sites.append((name, tuple(candidates), output))
        return output

    def select(self, options):
        """Sum only some of the options: {decision: options}, at least one each; decisions not named stay as they are.

        The others are neither computed nor differentiated: their weights get no gradient.
        """
        for name, candidates, output in self._sites:
            if name in options:
                output.parent.set_active_input_mask([option in options[name] for option in candidates])


class _MaskedSite:
    def __init__(self, name, options, x, branches, output):
        self.name, self.options, self.input, self.branches, self.output = name, options, x, branches, output
        self._function = output.parent
        self._masks = {option: [other == option for other in options] for option in options}
        self._selected = None
        self.select(options[0])

    def select(self, option):
        if option != self._selected:
            self._function.set_active_input_mask(self._masks[option])
            self._selected = option


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
