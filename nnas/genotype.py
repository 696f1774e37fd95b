"""Cells in the notation of the papers (Liu, Simonyan, Yang: DARTS, 2019), as text: read, and written.

    Genotype(normal=[('sep_conv_3x3', 0), ('skip_connect', 1), ...], normal_concat=[2, 3],
             reduce=[...], reduce_concat=[2, 3])

For each node the operators of the edges that it keeps and where they come from: 0 is the output of the cell before the
last, 1 that of the last, 2 the first node. A space that can be written so names its decisions and nodes as here.
"""

import ast
import re

from nnas.errors import NnasError, nearest
from nnas.files import LARGEST_TEXT, read_bytes
from nnas.space import Architecture

CELLS = {"normal": "normal", "reduction": "reduce"}  # how decisions call the two types, and the notation
INPUTS = 2
LARGEST = 100_000  # characters of a text


def node_name(cell, node):
    """Of the decisions at a node; cell: 'normal' or 'reduction', node: from 1 on."""
    return f"{cell}_node{node}"


def edge_name(cell, node, source):
    """The decision on the edge from a source, numbered as in the notation, to a node."""
    return f"{node_name(cell, node)}_from{source}"


def is_of_cells(space):
    """Whether the architectures of a space can be written as genotypes."""
    return bool(space.nodes) and {node.name for node in space.nodes} == {
        node_name(cell, n) for cell in CELLS for n in _numbers(space)
    }


def kept_edges(choices, cell):
    """The edges of a cell in choices of any space, as (node, source, decision); none where it has no such cell."""
    found, node, kept = [], 0, True
    while kept:
        node += 1
        names = [(node, source, edge_name(cell, node, source)) for source in range(INPUTS + node - 1)]
        kept = [edge for edge in names if edge[2] in choices]
        found += kept
    return found


def read_architecture(path, space):
    """The Architecture of a file: an architecture file, or a genotype of this space as text."""
    content = read_bytes(path, "an architecture file or a genotype", LARGEST_TEXT)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    if not re.match(r"\s*(#|\w+\s*=|Genotype)", text):
        return Architecture.load(path)
    return Architecture(space.name, choices_of(text, space, path), {})


def written(choices, space):
    """The genotype of an architecture, in one line."""
    _check(space)
    parts = []
    for cell, word in CELLS.items():
        edges = [(choices[decision], source) for _, source, decision in kept_edges(choices, cell)]
        outputs = list(range(INPUTS, INPUTS + len(_numbers(space))))
        parts.append(f"{word}={edges!r}, {word}_concat={outputs!r}")
    return f"Genotype({', '.join(parts)})"


def choices_of(text, space, source):
    """The choices of a genotype; source: of the text, for errors. Raises NnasError for what is none of the space.

    Nothing is executed: only literals are read."""
    _check(space)
    fields = _parsed(text, source)
    found = {}
    numbers = _numbers(space)
    for cell, word in CELLS.items():
        edges, outputs = fields[word], fields[f"{word}_concat"]
        keep = {node.name: node.keep for node in space.nodes}[node_name(cell, 1)]
        if len(edges) != keep * len(numbers) or sorted(outputs) != list(range(INPUTS, INPUTS + len(numbers))):
            raise NnasError(
                f"{source}: {word} has {len(edges)} edges and the outputs {list(outputs)}, but a cell of {space.name} "
                f"has {len(numbers)} nodes of {keep} edges, all of which are its output; set space.nodes"
            )
        for place, (operator, start) in enumerate(edges):
            node = place // keep + 1
            if not 0 <= start < INPUTS + node - 1:
                raise NnasError(
                    f"{source}: {word}: ('{operator}', {start}) at node {node} (the {place + 1}th edge): its sources "
                    f"are 0 to {INPUTS + node - 2}"
                )
            name = edge_name(cell, node, start)
            if name in found:
                raise NnasError(
                    f"{source}: {word}: node {node} has two edges from {start}, which this space cannot have"
                )
            options = space.decision(name).options
            if operator not in options:
                raise NnasError(
                    f"{source}: {word}: the operator {operator!r}: the space {space.name} has {', '.join(options)}"
                    f"{nearest(operator, options)}"
                )
            found[name] = operator
    return space.check(found)


def _numbers(space):
    return range(1, 1 + sum(node.name.startswith("normal_") for node in space.nodes))


def _check(space):
    if not is_of_cells(space):
        raise NnasError(f"the space {space.name} has no cells that a genotype could describe; take space=darts_small")


def _parsed(text, source):
    """{field: list}, of the four fields."""
    needed = [name for word in CELLS.values() for name in (word, f"{word}_concat")]
    text = re.sub(r"(?m)^\s*#.*$", "", text[: LARGEST + 1])
    match = re.fullmatch(r"\s*(?:\w+\s*=\s*)?Genotype\s*\((.*)\)\s*", text, re.DOTALL)
    advice = (
        f"{source}: it is no genotype, as Genotype({needed[0]}=[('sep_conv_3x3', 0), ...], {needed[1]}=[2, ...], ...)"
    )
    if match is None or len(text) > LARGEST:
        raise NnasError(advice)
    # The only call in the papers' files, range(2, 6), as the list that it stands for; all else must be literals.
    body = re.sub(
        r"range\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", lambda m: repr(list(range(*map(int, m.groups())))), match[1]
    )
    try:
        call = ast.parse(f"f({body})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError("only fields by name are possible")
        names = [keyword.arg for keyword in call.keywords]
        fields = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NnasError(f"{advice} ({error})") from None
    if sorted(map(str, names)) != sorted(needed):
        raise NnasError(
            f"{source}: a genotype has the fields {', '.join(needed)}; here are {', '.join(map(str, names))}"
        )
    for name, values in fields.items():
        if not isinstance(values, (list, tuple)) or not all(_is_entry(name, value) for value in values):
            raise NnasError(f"{source}: {name} must be a list of {_entry(name)}")
    return fields


def _entry(name):
    return (
        "numbers of nodes" if name.endswith("_concat") else "pairs of an operator and a number, as ('skip_connect', 1)"
    )


def _is_entry(name, value):
    if name.endswith("_concat"):
        return type(value) is int
    return isinstance(value, (list, tuple)) and len(value) == 2 and [type(one) for one in value] == [str, int]
