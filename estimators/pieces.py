"""Cutting a part where everything passes through one variable."""

from estimators.base import Part
from estimators.graph import functions_of


def pieces(part, is_known):
    """The fewest pieces, in order, that make up a part of one input and one output; an empty list if there are none.

    is_known: a function of a Part that says whether it may be a piece.
    """
    if len(part.inputs) != 1 or len(part.outputs) != 1:
        return []
    places = _narrow_places(part)
    best = {0: []}
    for end in range(1, len(places)):
        for start in range(end):
            # All that is better than what is there yet; the whole part is one piece.
            if start in best and (end not in best or len(best[start]) + 1 < len(best[end])):
                piece = Part((places[end],), (places[start],), part.label)
                if is_known(piece):
                    best[end] = [*best[start], piece]
    return best.get(len(places) - 1, [])


def _narrow_places(part):
    """The variables that all ways from the input to the output pass through, in order, these two included."""
    functions = functions_of(part)
    made = {part.inputs[0]: -1}
    made |= {output: place for place, function in enumerate(functions) for output in function.outputs}
    needed = {part.outputs[0]: len(functions)}
    for place, function in enumerate(functions):
        needed |= {variable: place for variable in function.inputs if variable in made and variable not in part.outputs}
    across = [
        [variable for variable in needed if made[variable] < place <= needed[variable]]
        for place in range(len(functions) + 1)
    ]
    return list(dict.fromkeys(alive[0] for alive in across if len(alive) == 1))
