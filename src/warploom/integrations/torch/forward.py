"""Rewrites the code of a module's `forward` where products can be computed together, or with what follows them.

    q = self.q_proj(x).view(s)
    k = self.k_proj(x).view(s)             ->   q, k, v = fused.together(x, self.q_proj, self.k_proj, self.v_proj)
    v = self.v_proj(x).view(s)

    self.act(self.gate(x)) * self.up(x)    ->   fused.gated(self.act, self.gate, self.up, x)

    h, _ = self.self_attn(h, mask=m)
    h = residual + h                       ->   h, _ = fused.onto(residual, self.self_attn, h, mask=m)
                                                (residual + h * self.factor: fused.onto_scaled)

    q, k = rotate(q, k, cos, sin)          ->   q, k = fused.rotated(rotate, q, k, cos, sin)

    h = self.o_proj(h)                     ->   h = fused.project(self.o_proj, h, residual_)
    return h, weights                           (and `forward` takes residual_=None)

The rewriting follows from the code alone, never from names of models. At each call the helpers of `fused` decide
whether a kernel can compute the layers this way, and otherwise do what the original code does. If the code cannot be
found, or nothing matches, it is unchanged.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

HELPERS, RESIDUAL = "_warploom_fused", "residual_"
"""Names in rewritten code: the class attribute that holds the helpers, and the argument that is added to a
result."""


@dataclass
class Rewritten:
    """A new `forward`, and what was fused.

    Attributes:
        forward: the function.
        together: names of layers that are computed as one product, group by group.
        gated, added, rotated: the number of gated products, of additions of a residual, and of rotary embeddings.
        takes_residual: True if it has the argument `residual_`.
    """

    forward: Callable[..., Any]
    together: list[tuple[str, ...]] = field(default_factory=list)
    gated: int = 0
    added: int = 0
    rotated: int = 0
    takes_residual: bool = False


def rewrite(
    forward: Callable[..., Any], linears: frozenset[str], residual: bool = True,
    rotates: Callable[[Any], object] = lambda function: False,
) -> Rewritten | None:  # fmt: skip
    """The `forward` of a class whose attributes `linears` are linear layers; None if nothing can be fused.

    Args:
        forward: the function itself, without wrappers.
        linears: names of attributes.
        residual: True if it may take one: its caller passes it on and does not change the result.
        rotates: true for a function that is a rotary embedding with a kernel.
    """
    tree = parsed(forward)
    if tree is None:
        return None
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    found = Rewritten(forward)
    _gate(function, linears, found)
    _packed_gate(function, linears, found)
    _group(function, linears, found)
    _add(function, found)
    _rotate(function, lambda name: rotates(forward.__globals__.get(name)), found)
    if residual:
        _project(function, linears, found)
    if not (found.together or found.gated or found.added or found.rotated or found.takes_residual):
        return None
    found.forward = compiled(tree, forward)
    return found


def parsed(forward: Callable[..., Any]) -> ast.Module | None:
    """The code of a plain function with `self`, without decorators and annotations."""
    if not inspect.isfunction(forward) or forward.__closure__:  # of a wrapper, or with super()
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, SyntaxError, TypeError):
        return None
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or not function.args.args or function.args.args[0].arg != "self":
        return None
    if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)) for node in ast.walk(function)):
        return None
    function.decorator_list, function.returns = [], None
    for each in ast.walk(function.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return tree


def compiled(tree: ast.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a tree, with the globals and defaults of the one it was read from."""
    ast.fix_missing_locations(tree)
    text = ast.unparse(tree)
    name = f"<warploom forward of {forward.__module__}.{forward.__qualname__}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # for tracebacks
    module = compile(text, name, "exec")
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    made = FunctionType(code, forward.__globals__, forward.__name__, forward.__defaults__)
    made.__kwdefaults__ = {**(forward.__kwdefaults__ or {}), RESIDUAL: None}
    made.__qualname__, made.__module__, made.__doc__ = forward.__qualname__, forward.__module__, forward.__doc__
    return made


# -- patterns ------------------------------------------------------------------------------------------------------


def layer_of(node: ast.AST) -> str | None:
    """The name of `self.name`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def applied(node: ast.AST) -> tuple[str, ast.expr] | None:
    """(name, x) of `self.name(x)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        name = layer_of(node.func)
        if name is not None and not isinstance(node.args[0], ast.Starred):
            return name, node.args[0]
    return None


def stored(node: ast.AST) -> set[str]:
    """Names that a statement assigns."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def helper(name: str, *arguments: ast.expr) -> ast.Call:
    """A call of a helper."""
    return ast.Call(ast.Attribute(attribute(HELPERS), name, ast.Load()), list(arguments), [])


def attribute(name: str) -> ast.expr:
    """`self.name`."""
    return ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())


class _Replace(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.AST], ast.AST | None]) -> None:
        self.change = change

    def visit(self, node: ast.AST) -> Any:
        """The changed node, or the node with its children changed."""
        changed = self.change(node)
        return changed if changed is not None else self.generic_visit(node)


def _gate(function: ast.FunctionDef, linears: frozenset[str], found: Rewritten) -> None:
    """act(gate(x)) * up(x), in either order, x a name."""

    def change(node: ast.AST) -> ast.AST | None:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            return None
        for left, right in ((node.left, node.right), (node.right, node.left)):
            outer, up = applied(left), applied(right)
            inner = applied(outer[1]) if outer is not None else None
            if outer is None or inner is None or up is None or not {inner[0], up[0]} <= linears:
                continue
            x, y = inner[1], up[1]
            if isinstance(x, ast.Name) and isinstance(y, ast.Name) and x.id == y.id:
                found.gated += 1
                return helper("gated", attribute(outer[0]), attribute(inner[0]), attribute(up[0]), x)
        return None

    _Replace(change).visit(function)


def _packed_gate(function: ast.FunctionDef, linears: frozenset[str], found: Rewritten) -> None:
    """y = self.layer(x); g, u = y.chunk(2, dim=-1); z = u * self.act(g), or act(g) * u, one after the other."""
    body = function.body
    for index in range(len(body) - 2):
        first, second, third = body[index : index + 3]
        if not all(isinstance(each, ast.Assign) and len(each.targets) == 1 for each in (first, second, third)):
            continue
        layer, halves = applied(first.value), second.value  # type: ignore[attr-defined]
        whole, pair, product = (each.targets[0] for each in (first, second, third))  # type: ignore[attr-defined]
        if layer is None or layer[0] not in linears or not isinstance(whole, ast.Name):
            continue
        if ast.unparse(halves) not in (f"{whole.id}.chunk(2, dim=-1)", f"{whole.id}.chunk(2, -1)"):
            continue
        if not (isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(product, ast.Name)):
            continue
        names, value = [each.id if isinstance(each, ast.Name) else "" for each in pair.elts], third.value  # type: ignore[attr-defined]
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)):
            continue
        for left, right in ((value.left, value.right), (value.right, value.left)):
            act = applied(left)
            texts = (ast.unparse(act[1]), ast.unparse(right)) if act is not None else ()
            used = {each.id for other in body[index + 3 :] for each in ast.walk(other) if isinstance(each, ast.Name)}
            if act is not None and texts == tuple(names) and not (used - {product.id}) & {whole.id, *names}:
                call = helper("gated", attribute(act[0]), attribute(layer[0]), ast.Constant(None), layer[1])
                body[index : index + 3] = [ast.Assign([product], call)]
                found.gated += 1
                return


def _group(function: ast.FunctionDef, linears: frozenset[str], found: Rewritten) -> None:
    """Two or more layers of the same name, in statements that follow each other without a branch."""
    index = 0
    while index < len(function.body):
        statement = function.body[index]
        arguments = {x.id for _, x in _calls(statement, linears) if isinstance(x, ast.Name)}
        for name in sorted(arguments):
            calls: list[tuple[int, str]] = []
            for at in range(index, len(function.body)):
                if isinstance(function.body[at], (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                    break
                here = _calls(function.body[at], linears)
                calls += [(at, layer) for layer, x in here if isinstance(x, ast.Name) and x.id == name]
                if name in stored(function.body[at]):
                    break
            layers = tuple(dict.fromkeys(layer for _, layer in calls))
            if len(layers) < 2 or len(layers) != len(calls):
                continue
            results = {layer: f"_{layer}_of_{name}" for layer in layers}
            for at in {at for at, _ in calls}:
                function.body[at] = _Replace(lambda node: _result(node, name, results)).visit(function.body[at])  # noqa: B023
            target = ast.Tuple([ast.Name(each, ast.Store()) for each in results.values()], ast.Store())
            value = helper("together", ast.Name(name, ast.Load()), *map(attribute, layers))
            function.body.insert(index, ast.Assign([target], value))
            found.together.append(layers)
            index += 1
        index += 1


def _result(node: ast.AST, name: str, results: dict[str, str]) -> ast.AST | None:
    call = applied(node)
    if call is not None and call[0] in results and isinstance(call[1], ast.Name) and call[1].id == name:
        return ast.Name(results[call[0]], ast.Load())
    return None


def _calls(statement: ast.AST, linears: frozenset[str]) -> list[tuple[str, ast.expr]]:
    """Layers that a simple statement applies."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)):
        return []
    lazy = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    if any(isinstance(node, lazy) for node in ast.walk(statement)):
        return []
    return [call for node in ast.walk(statement) if (call := applied(node)) is not None and call[0] in linears]


def _add(function: ast.FunctionDef, found: Rewritten) -> None:
    """h = self.part(...), or h, _ = self.part(...), and then h = residual + h."""
    for body in _bodies(function):
        index = 0
        while index + 1 < len(body):
            first, second = body[index], body[index + 1]
            other = _sum(second)
            if other is not None and (call := _of_part(first, other.result)) is not None:
                between = other.through or other.times
                name = "onto_through" if other.through else "onto_scaled" if other.times else "onto"
                more = [attribute(between)] if between else []
                call.args = [ast.Name(other.residual, ast.Load()), *more, call.func, *call.args]
                call.func = ast.Attribute(attribute(HELPERS), name, ast.Load())
                del body[index + 1]
                found.added += 1
            index += 1


def _rotate(function: ast.FunctionDef, rotates: Callable[[str], object], found: Rewritten) -> None:
    """rotate(q, k, cos, sin), where `rotate` is a global name."""
    own = stored(function) | {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}

    def change(node: ast.AST) -> ast.AST | None:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in own):
            return None
        plain = len(node.args) == 4 and not node.keywords and all(isinstance(each, ast.Name) for each in node.args)
        if not plain or not rotates(node.func.id):
            return None
        found.rotated += 1
        return helper("rotated", node.func, *node.args)

    _Replace(change).visit(function)


def _bodies(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse"):
            value = getattr(node, name, None)
            if isinstance(value, list):
                yield value


@dataclass(frozen=True)
class _Sum:
    """h = residual + h; `through`: self.through(h); `times`: h * self.times."""

    result: str
    residual: str
    through: str | None = None
    times: str | None = None


def _sum(statement: ast.stmt) -> _Sum | None:
    """The addition in a statement; None if it is not such a sum."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return None
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Name) and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return None
    for own, other in ((value.left, value.right), (value.right, value.left)):
        through, times = applied(own), _scaled(own)
        name = through[1] if through is not None else times[1] if times is not None else own
        if isinstance(name, ast.Name) and isinstance(other, ast.Name) and name.id == target.id != other.id:
            return _Sum(target.id, other.id, through and through[0], times and times[0])
    return None


def _scaled(node: ast.expr) -> tuple[str, ast.expr] | None:
    """(name, x) of x * self.name."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return None
    for x, factor in ((node.left, node.right), (node.right, node.left)):
        if (name := layer_of(factor)) is not None and isinstance(x, ast.Name):
            return name, x
    return None


def _of_part(statement: ast.stmt, result: str) -> ast.Call | None:
    """The call of `result = self.part(...)`, or of `result, … = self.part(...)`."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return None
    target, call = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and target.elts:
        target = target.elts[0]
    named = isinstance(target, ast.Name) and target.id == result
    return call if named and isinstance(call, ast.Call) and layer_of(call.func) is not None else None


def _project(function: ast.FunctionDef, linears: frozenset[str], found: Rewritten) -> None:
    """The result, or its first element, is the output of a final linear layer."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    if len(returns) != 1 or function.body[-1] is not returns[0] or returns[0].value is None:
        return
    value = returns[0].value
    if isinstance(value, ast.Tuple) and value.elts:
        value = value.elts[0]
    calls = [value]
    if isinstance(value, ast.Name):
        writers = [at for at, each in enumerate(function.body) if value.id in stored(each)]
        last = function.body[writers[-1]] if writers else None
        simple = isinstance(last, ast.Assign) and len(last.targets) == 1 and isinstance(last.targets[0], ast.Name)
        if not simple:
            return
        calls = [last.value]  # type: ignore[union-attr]
        between = function.body[writers[-1] + 1 : -1]
        if any(isinstance(each, ast.Name) and each.id == value.id for other in between for each in ast.walk(other)):
            return
    call = applied(calls[0])
    if call is None or call[0] not in linears or any(each.arg == RESIDUAL for each in function.args.kwonlyargs):
        return
    node = calls[0]
    assert isinstance(node, ast.Call)
    node.func = ast.Attribute(attribute(HELPERS), "project", ast.Load())
    node.args = [attribute(call[0]), call[1], ast.Name(RESIDUAL, ast.Load())]
    function.args.kwonlyargs.append(ast.arg(RESIDUAL))
    function.args.kw_defaults.append(ast.Constant(None))
    found.takes_residual = True
