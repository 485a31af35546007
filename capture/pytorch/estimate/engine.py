"""What the backward engine does to real tensors but not to fake ones.

If a tensor gets two gradients, the engine adds the second to the first in place, provided nothing else refers
to the first. It never does so for a subclass of Tensor, such as a fake one: the sum would take one more block
than on a device. So here we make the engine's own sums in place under the same conditions.

We recognise them by where they run: in a backward pass, called by no Python code except torch's own entry
point. A sum inside a node's formula looks the same, so a sum of two temporaries counts as made in place too.
What the reference counts of a gradient are when nothing else refers to it depends on the references that
dispatch itself holds, so we measure them on a graph of four nodes.

The formulas of gather, of indexing and of reductions that choose a value (max, median) write into zeros in
place, but copy the zeros first for a subclass. We make these in place as well.

Source: can_accumulate_inplace and accumulate in torch/csrc/autograd/input_buffer.cpp;
areAnyTensorSubclassLike in torch/csrc/autograd/FunctionsManual.cpp.
"""

import sys


class Sums:
    """The engine's sums of gradients."""

    def __init__(self, torch):
        from torch.utils._python_dispatch import TorchDispatchMode

        self.torch, self.alone = torch, None
        self.add, self.into = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
        aten = torch.ops.aten
        self.fills = {
            aten.scatter.src: aten.scatter_.src,
            aten.scatter_add.default: aten.scatter_add_.default,
            aten.index_put.default: aten._index_put_impl_.default,
        }
        self.entry = torch.autograd.graph.__file__
        if not hasattr(torch.Tensor, "_use_count"):
            return  # torch 2.2 cannot count the references to a tensor: its sums stay as they are
        sums = self

        class Look(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func is sums.add and sums.of_engine():
                    sums.alone = sums.references(args[0])
                return func(*args, **(kwargs or {}))

        x = torch.ones(2, requires_grad=True)
        with Look():
            y = x * 2
            (y * 3 + y * 4).sum().backward()

    def of_engine(self):
        """Whether the op being dispatched is the engine's own."""
        if self.torch._C._current_graph_task_id() == -1:
            return False
        frame = sys._getframe(1)
        while frame is not None and (
            frame.f_code.co_filename.startswith("gmemtop")
            or frame.f_code.co_name in ("inner", "_fn", "wrapper", "__torch_dispatch__")
        ):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename == self.entry

    def references(self, t):
        return t._use_count(), self.torch._C._storage_Use_Count(t.untyped_storage()._cdata)

    def in_place(self, func, args):
        """The op to run instead of func: the in-place one if the engine would sum in place."""
        fill = self.fills.get(func)
        if fill is not None and not self.torch.is_grad_enabled() and self.of_engine():
            # without accumulation it is index_put's own formula, which keeps its input
            return fill if func is not self.torch.ops.aten.index_put.default or args[3:] == (True,) else func
        if func is not self.add or self.alone is None or not self.of_engine():
            return func
        first, _second = args
        return self.into if dense(first) and self.references(first) == self.alone else func


def dense(t):
    """Whether a tensor's elements are contiguous in some order of its dimensions."""
    wanted = 1
    for stride, size in sorted((s, n) for n, s in zip(t.shape, t.stride()) if n != 1):
        if stride != wanted:
            return False
        wanted *= size
    return True
