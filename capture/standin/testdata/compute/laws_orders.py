"""Laws of the order of work: what a missing wait does, and what is read when."""

import torch


from laws import LATE, ORDER, law, refusal, refused, same


@law
def a_missing_wait_shows_late():
    """A copy on a side stream that does not wait for its source is right in the order "once" and wrong in
    "late"."""
    host = torch.zeros(4000, pin_memory=True)
    side = torch.cuda.Stream()
    x = torch.arange(4000.0, device="cuda")
    y = x * 2 + 1
    with torch.cuda.stream(side):
        host.copy_(y, non_blocking=True)
    side.synchronize()
    right = torch.equal(host, torch.arange(4000.0) * 2 + 1)
    if ORDER in ("once", "late"):
        assert right == (not LATE), f"the copy is {'right' if right else 'wrong'}"
    torch.cuda.synchronize()


@law
def a_wait_mends_it():
    """The same copy with a wait is right in every order."""
    host = torch.zeros(4000, pin_memory=True)
    side = torch.cuda.Stream()
    y = torch.arange(4000.0, device="cuda") * 2 + 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(y, non_blocking=True)
    y.record_stream(side)
    side.synchronize()
    same(host, torch.arange(4000.0) * 2 + 1)


def _used_on_the_side(record):
    side = torch.cuda.Stream()
    y = torch.full((4000,), 3.0, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = y * 2
    if record:
        y.record_stream(side)
    del y
    z = torch.full((4000,), 100.0, device="cuda")  # takes y's memory, unless record_stream holds it
    torch.cuda.current_stream().synchronize()
    side.synchronize()
    del z
    return bool((out == 6).all())


@law
def a_missing_record_stream_shows_late():
    """If memory that a side stream still reads is freed without record_stream and reused, the numbers are
    wrong in the late order.
    """
    right = _used_on_the_side(False)
    if ORDER in ("once", "late"):
        assert right == (not LATE), f"the numbers are {'right' if right else 'wrong'}"
    assert _used_on_the_side(True)


@law
def host_memory_is_read_when_the_op_is_called():
    """A host number or tensor that an op takes may change as soon as the op returns."""
    x = torch.zeros(10, device="cuda")
    number = torch.tensor(5.0)
    y = x + number
    number.fill_(7)
    pageable = torch.ones(10)
    z = pageable.to("cuda", non_blocking=True)
    pageable.fill_(9)
    same(y, torch.full((10,), 5.0))
    same(z, torch.ones(10))


@law
def work_in_place_follows_the_order_of_calls():
    """In-place ops on one stream see the results of earlier ops."""
    x = torch.zeros(64, device="cuda")
    for i in range(20):
        x += i
        x.mul_(2) if i % 2 else x[::2].sub_(1)
    y = torch.zeros(64)
    for i in range(20):
        y += i
        y.mul_(2) if i % 2 else y[::2].sub_(1)
    same(x, y)


@refusal
def an_error_in_late_work_names_its_op():
    """If an op fails when its stream reaches it, the next op raises an error that names it."""
    table = torch.zeros(4, 3, device="cuda")

    def bad():
        table.index_select(0, torch.tensor([9], device="cuda"))

    refused(bad, "index_select")


@law
def modes_of_the_waiting_thread_see_nothing():
    """A dispatch mode does not see work that runs while its thread waits."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            seen.append((str(f), args[0].device.type if args and isinstance(args[0], torch.Tensor) else ""))
            return f(*args, **(kwargs or {}))

    x = torch.randn(5, 5, device="cuda")
    y = x @ x
    with Watch():
        z = y + 1
        torch.cuda.synchronize()
    assert [s for s, d in seen] == ["aten.add.Tensor"], seen
    same(z, x.cpu() @ x.cpu() + 1)
