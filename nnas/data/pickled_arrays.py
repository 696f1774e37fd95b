"""Reads the one kind of pickle that data sets of the time of Python 2 are in, without executing anything.

A pickle is a program for a stack machine, and unpickling runs it: it imports and calls what the file names. Here only
the instructions that make dictionaries, lists, tuples, strings, integers and arrays of bytes are followed. The three
names that NumPy's arrays need are symbols which are never looked up.
"""

from pickletools import genops

import numpy as np

from nnas.errors import NnasError

RECONSTRUCT, NDARRAY, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
LITERALS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
WITH_ARGUMENT = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING"}
SHORT_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
UINT8 = ("u1", 0, 1)


class Refused(NnasError):
    """The pickle holds something else than plain values and arrays of bytes."""


def read_pickled_arrays(content, source):
    """The value in a pickle of protocol 2 as Python 2 wrote it.

    content: bytes. source: names the file for people. Returns dictionaries with strings (Latin-1) as keys, lists,
    tuples, strings, integers and uint8 arrays; raises Refused for everything else."""
    try:
        return _Machine().run(content)
    except Refused as error:
        raise Refused(f"{source}: {error}; it is not the original file, and nothing in it was executed") from None
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise Refused(f"{source}: it is damaged ({error}); get the original file") from None


class _Symbol(str):
    """A name in a pickle, which stays a name."""


class _Object:
    """What NumPy's functions would have made: an array, or the type of one."""

    def __init__(self, kind):
        self.kind = kind
        self.array = None


class _Machine:
    def __init__(self):
        self._stack, self._marks, self._memo = [], [], {}

    def run(self, content):
        for opcode, argument, _ in genops(content):
            if opcode.name == "STOP":
                return _finished(self._stack.pop())
            self._follow(opcode.name, argument)
        raise Refused("it has no end")

    def _follow(self, name, argument):
        stack = self._stack
        if name in LITERALS:
            stack.append(LITERALS[name])
        elif name in WITH_ARGUMENT:
            stack.append(argument)
        elif name in SHORT_TUPLES:
            size = SHORT_TUPLES[name]
            stack.append(self._popped(len(stack) - size) if size else ())
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(self._popped(self._marks.pop()))
        elif name in ("APPEND", "APPENDS"):
            items = self._popped(len(stack) - 1 if name == "APPEND" else self._marks.pop())
            _checked(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._popped(len(stack) - 2 if name == "SETITEM" else self._marks.pop())
            for key, value in zip(items[::2], items[1::2], strict=True):
                _checked(stack[-1], dict)[_checked(key, str)] = value
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            if argument not in (RECONSTRUCT, NDARRAY, DTYPE):
                raise Refused(f"it names {argument!r}, where only NumPy arrays are read")
            stack.append(_Symbol(argument))
        elif name == "REDUCE":
            function, arguments = self._popped(len(stack) - 2)
            stack.append(_called(function, arguments))
        elif name == "BUILD":
            _set_state(stack[-2], stack.pop())
        elif name != "PROTO" or argument != 2:
            raise Refused(f"it has the instruction {name} {'' if argument is None else repr(argument)[:40]}".rstrip())

    def _popped(self, start):
        if start < 0:
            raise IndexError("the stack is empty")
        items = tuple(self._stack[start:])
        del self._stack[start:]
        return items


def _checked(value, kind):
    if type(value) is not kind:
        raise Refused(f"it has a {type(value).__name__.lstrip('_').lower()} where a {kind.__name__} belongs")
    return value


def _called(function, arguments):
    if type(function) is _Symbol:
        if function == RECONSTRUCT and arguments[0] == NDARRAY and type(arguments[0]) is _Symbol:
            return _Object("array")
        if function == DTYPE and arguments == UINT8:
            return _Object("type")
    raise Refused("it calls something else than what makes an array of bytes")


def _set_state(target, state):
    if type(target) is not _Object or type(state) is not tuple:
        raise Refused("it sets the state of something that is no array")
    if target.kind == "type":
        return  # byte order and the like, which one byte has not
    _, shape, kind, in_fortran_order, content = state
    if type(kind) is not _Object or kind.kind != "type" or type(content) is not str:
        raise Refused("it has an array of something else than bytes")
    values = np.frombuffer(content.encode("latin-1"), np.uint8)
    target.array = values.reshape([_checked(size, int) for size in shape], order="F" if in_fortran_order else "C")


def _finished(value):
    """The value with arrays in place of what stood for them; only the outermost dictionary can hold them."""
    if not isinstance(value, dict):
        raise Refused("it holds no dictionary")
    return {key: _array(one) if type(one) is _Object else one for key, one in value.items()}


def _array(one):
    if one.array is None:
        raise Refused("it has an array without content")
    return one.array
