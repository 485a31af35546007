"""Checks that torch's private names are all in one module, were found in every release, and exist in this
one."""

import ast
import re
from pathlib import Path

import pytest

from agent import compat

PACKAGE = Path(compat.__file__).parent
TABLE = PACKAGE.parents[2] / "docs" / "torch-names.md"
OURS = {"self", "cls", "agent", "carrier", "window", "settings", "Carrier", "Agent", "Ops"}


def private(module):
    """The private attributes of other code that a module uses."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in OURS):
                yield ast.unparse(node)


def asked():
    """The private names that compat looks up in torch, in any way."""
    tree = ast.parse(Path(compat.__file__).read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name for name in names if isinstance(name, str) and re.fullmatch(r"_[a-z]\w*", name, re.I)}


def test_no_other_module_asks_torch_for_private_names():
    found = {
        module.name: sorted(set(private(module)) - {"sys._current_frames", "packed.iteration.carrier._load"})
        for module in PACKAGE.glob("*.py")
        if module.name != "compat.py"
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_every_name_was_seen_in_all_releases():
    rows = [line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    seen = {re.findall(r"[A-Za-z_]+", row[1])[-1]: (row[2].strip(), row[4].strip()) for row in rows}
    foreign = {"_allocator", "_C"}  # RMM's; the module that holds torch's
    missing = asked() - set(seen) - foreign - {"_autograd", "_dynamo", "_python_dispatch"}
    assert missing == set(), "scripts/torchnames.py does not look for them"
    assert {
        name: where for name, (where, without) in seen.items() if where != "2.2 to 2.15" and not without
    } == {}


def test_every_name_is_in_this_torch():
    torch = pytest.importorskip("torch", reason="needs torch")
    t = torch.ones(2, requires_grad=True)
    assert compat.address_of(t.untyped_storage()) > 0
    before = compat.version_of(t.detach())
    assert compat.version_of(t.detach().add_(1)) == before + 1
    assert compat.schema_of(torch.ops.aten.mul.Tensor).name == "aten::mul"
    number = compat.next_sequence(torch)()
    assert compat.sequence_of((t * 2).grad_fn) == number
    assert compat.graph_task(torch)() == -1
    assert compat.autograd_node(torch)() is None
    assert compat.step_hooks() == []
    assert not compat.profiler_enabled(torch)
    assert compat.compiled_graphs() == 0
    assert compat.local_shard(t) is t
    assert len(compat.sparse_parts(torch.eye(2).to_sparse())) == 2
    assert not compat.is_wrapper(torch.Tensor)
    assert not compat.is_rmm(torch)
    for scope in (
        compat.without_dispatch,
        compat.without_functions,
        compat.without_autocast,
        compat.without_versions,
    ):
        with scope(torch):
            pass
    assert callable(compat.record_history(torch))
    assert callable(torch.cuda.memory._snapshot)


def test_versions_are_not_counted_without_them():
    torch = pytest.importorskip("torch", reason="needs torch")
    t = torch.ones(2)
    with compat.without_versions(torch):
        t.add_(1)
    assert compat.version_of(t) == 0


def test_a_mode_hears_every_op_and_is_the_innermost():
    torch = pytest.importorskip("torch", reason="needs torch")
    heard = []

    def on_op(func, args, kwargs):
        heard.append(compat.schema_of(func).name)
        return func(*args, **kwargs)

    mode = compat.dispatch_mode(on_op)
    assert compat.dispatch_modes(torch) == 0
    with mode:
        assert compat.is_innermost(torch, mode)
        with compat.without_dispatch(torch):
            torch.ones(2)
        torch.ones(2) * 2
    assert heard == ["aten::ones", "aten::mul"]
    assert not compat.is_innermost(torch, mode)


def test_a_compiled_backward_pass_takes_back_all_saved_tensors_before_its_first_op():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(8, 8), torch.nn.GELU())])
    compiled, events = torch.compile(net, backend="aot_eager"), []

    def took(t):
        events.append("took")
        return t

    compiled(torch.randn(4, 8)).sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, took):
        loss = compiled(torch.randn(4, 8)).sum()
    mode = compat.dispatch_mode(
        lambda func, args, kwargs: (events.append(str(func)), func(*args, **kwargs))[1]
    )
    with mode:
        loss.backward()
    computes = [k for k, e in enumerate(events) if "mm" in e]
    last = max(k for k, e in enumerate(events) if e == "took")
    assert len(computes) == 7  # the batch needs no gradient
    assert last < computes[0]


def test_hooks_on_saved_tensors_come_and_go():
    torch = pytest.importorskip("torch", reason="needs torch")
    packed = []

    def pack(t):
        packed.append(t)
        return t

    disable = getattr(compat.saved_hooks(torch), compat.DISABLE)
    compat.push_saved_hooks(torch, pack, lambda t: t)
    with pytest.raises(RuntimeError):
        disable("test")
    compat.enable_saved_hooks(torch)  # newer torch disables them even though it raises
    torch.ones(2, requires_grad=True).exp()
    compat.pop_saved_hooks(torch)
    assert len(packed) == 1
    disable("test")
    assert compat.saved_hooks_disabled(torch) == "test"
    compat.enable_saved_hooks(torch)
    assert compat.saved_hooks_disabled(torch) is None
