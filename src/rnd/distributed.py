"""One run on several processes: what they tell each other, through torch.distributed.

torchrun starts the processes and numbers them (ranks). Each has its own environments; networks, optimiser and
statistics are the same on all. A run of one process is `ALONE`: nothing is sent, and every method gives back what it
was given, so that nobody has to ask how many there are.

Two groups: numbers on the device go through a quick one (NCCL or gloo), whose silence for a minute means that a
process is gone; plain data on the host goes through a patient one (gloo), because opening folders, compiling kernels
and writing checkpoints take as long as they take. Either notices at once when the other end of a connection closes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from rnd.config import Config
from rnd.errors import InterruptedRunError, RunError, UserError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")

QUICK = timedelta(seconds=60)
PATIENT = timedelta(minutes=30)
ROLL_CALL = 10.0
"""Seconds that the others have to answer when one is missed."""


class LostRankError(RunError):
    """Another process of the run is gone."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, seen from one of them."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    quick: dist.ProcessGroup | None = None
    store: Store | None = None

    @property
    def leads(self) -> bool:
        """Rank 0 alone owns the run folder and speaks."""
        return self.rank == 0

    # --- numbers on the device -------------------------------------------------------------------

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their means over the ranks, in one message."""
        if self.world == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._sum_(flat)
        flat /= self.world
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def moments(self, mean: Tensor, var: Tensor, count: float) -> tuple[Tensor, Tensor, float]:
        """Mean, biased variance and count of all ranks' samples together; two messages of the size of `mean`."""
        if self.world == 1:
            return mean, var, count
        counts = mean.new_full((1,), count)
        sums = torch.cat([mean.reshape(-1) * count, counts])
        self._sum_(sums)
        total = float(sums[-1])
        all_mean = (sums[:-1] / total).view_as(mean)
        all_var = (var + (mean - all_mean).square()) * count
        self._sum_(all_var)
        return all_mean, all_var / total, total

    def joined(self, tensor: Tensor, dim: int) -> Tensor:
        """All ranks' tensors of this shape side by side."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        with self._together():
            dist.all_gather(parts, tensor.contiguous(), group=self.quick)
        return torch.cat(parts, dim)

    def copy_from_first_(self, module: nn.Module) -> None:
        """Rank 0's parameters and buffers on all ranks."""
        if self.world == 1:
            return
        for tensor in (*module.parameters(), *module.buffers()):
            data = tensor.detach().contiguous()
            with self._together():
                dist.broadcast(data, 0, group=self.quick)
            tensor.data.copy_(data)

    # --- plain data on the host ------------------------------------------------------------------

    def largest(self, *values: float) -> list[float]:
        """The largest of every value over the ranks."""
        if self.world == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with self._together():
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return [float(number) for number in numbers]

    def gather(self, value: T) -> list[T]:
        """Everyone's value on rank 0; an empty list on the others."""
        if self.world == 1:
            return [value]
        values: list[T | None] = [None] * self.world
        with self._together():
            dist.gather_object(on_host(value), values if self.leads else None)
        return [found for found in values if found is not None] if self.leads else []

    def deal(self, values: Sequence[T]) -> T:
        """Rank r gets value r of rank 0's; what the others bring is ignored."""
        if self.world == 1:
            return values[0]
        mine: list[T | None] = [None]
        with self._together():
            dist.scatter_object_list(mine, list(values) if self.leads else None)
        assert mine[0] is not None
        return mine[0]

    def first(self, function: Callable[[], T]) -> T:
        """Rank 0 calls `function`; all have the result, or the error that is meant for people."""
        if self.world == 1:
            return function()
        answer: list[tuple[T | None, UserError | RunError | None]] = [(None, None)]
        if self.leads:
            try:
                answer = [(function(), None)]
            except (UserError, RunError) as error:
                answer = [(None, error)]
        with self._together():
            dist.broadcast_object_list(answer, 0)
        value, problem = answer[0]
        if problem is not None:
            problem.told = not self.leads
            raise problem
        return value  # type: ignore[return-value]

    # --- how a run is shared out -----------------------------------------------------------------

    def on(self, device: str) -> Ranks:
        """With the quick group: NCCL between GPUs, one a process, and gloo between CPUs."""
        if self.world == 1:
            return self
        gpus = torch.cuda.device_count() if device != "cpu" else 0
        if gpus and self.local_rank >= gpus:
            raise UserError(
                f"{local_world()} processes share {gpus} GPUs here; start one a GPU: --nproc-per-node {gpus}"
            )
        if gpus:
            torch.cuda.set_device(self.local_rank)
        return replace(self, quick=dist.new_group(backend="nccl" if gpus else "gloo", timeout=QUICK))

    def share_of(self, config: Config) -> Config:
        """This process's part of a new run: num_envs environments of its own, numbered after those before it."""
        if config.ranks not in (1, self.world):
            raise UserError(
                f"--ranks {config.ranks}, but {self.world} process{'es' if self.world > 1 else ''} started; "
                f"start them with torchrun --standalone --nproc-per-node {config.ranks} -m rnd train"
            )
        if config.env.first:
            raise UserError("--env.first follows from the rank; leave it out")
        return self._number(replace(config, ranks=self.world))

    def share_again(self, config: Config) -> Config:
        """This process's part of a run that may have had another number of ranks: all its environments, dealt anew."""
        total = config.ranks * config.env.num_envs
        if total % (self.world * config.minibatches):
            fits = [str(w) for w in range(1, 4 * self.world) if total % (w * config.minibatches) == 0]
            raise UserError(
                f"{total} environments in {config.minibatches} minibatches cannot be shared by {self.world} ranks; "
                f"nearest: {', '.join(fits[-3:]) or 'none'}"
            )
        env = replace(config.env, num_envs=total // self.world)
        return self._number(replace(config, ranks=self.world, env=env))

    def _number(self, config: Config) -> Config:
        return replace(config, env=replace(config.env, first=self.rank * config.env.num_envs))

    # --- when one is gone ------------------------------------------------------------------------

    def _sum_(self, tensor: Tensor) -> None:
        with self._together():
            dist.all_reduce(tensor, group=self.quick)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What goes wrong while all are waited for means that one is missing: say which."""
        try:
            yield
        except RuntimeError as error:
            who = self._missing() or f"the ranks do not understand each other: {one_line(error)}"
            raise LostRankError(f"{who}; rank {self.rank} stops too") from error

    def _missing(self) -> str | None:
        """A roll call in the store that the ranks met at, which outlives them: who has gone, or does not come."""
        assert self.store is not None
        others, deadline = {*range(self.world)} - {self.rank}, time.monotonic() + ROLL_CALL
        try:
            self.store.set(f"here/{self.rank}", "")
            while others:
                for rank in sorted(others):
                    if self.store.check([f"gone/{rank}"]):
                        return f"rank {rank} stopped: {self.store.get(f'gone/{rank}').decode(errors='replace')}"
                others = {rank for rank in others if not self.store.check([f"here/{rank}"])}
                if time.monotonic() > deadline:
                    numbers = ", ".join(map(str, sorted(others)))
                    names = f"ranks {numbers} do" if len(others) > 1 else f"rank {numbers} does"
                    return f"{names} not answer (killed, or its machine failed)"
                time.sleep(0.1)
        except RuntimeError:
            return "the process or machine at which the ranks met is gone"
        return None


ALONE = Ranks()


def share(module: nn.Module, ranks: Ranks) -> None:
    """Statistics anywhere in a module are kept over all ranks from now on: they have an attribute `ranks`."""
    for part in module.modules():
        if hasattr(part, "ranks"):
            setattr(part, "ranks", ranks)  # noqa: B010  what the attribute holds is not for nn.Module to say


def on_host(value: Any) -> Any:
    """Nested data with its tensors in ordinary memory: a GPU of one process is not that of another."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: on_host(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_host(part) for part in value)
    return value


def local_world() -> int:
    """Processes of this run on this machine, as torchrun counts them."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@contextmanager
def joined() -> Iterator[Ranks]:
    """Meet the other processes that torchrun started; alone where there is no torchrun."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield ALONE
        return
    rank, store = int(os.environ["RANK"]), meet()
    try:
        yield Ranks(rank, world, int(os.environ.get("LOCAL_RANK", "0")), store=store)
    except InterruptedRunError:  # all leave together
        leave()
        raise
    except BaseException as error:
        if not isinstance(error, LostRankError):
            leave_word(store, rank, error)
        raise
    leave()


def leave() -> None:
    """Close the groups.

    A thread of theirs may still hold the tensors of the last message, and needs the interpreter to let go of them.
    Should it ask when the interpreter is already shutting down, the process would abort: give it a moment.
    """
    dist.destroy_process_group()
    time.sleep(0.1)


def meet() -> Store:
    """Join the group; a port that another program holds is told, not traced."""
    try:
        store: Store
        store, rank, world = next(rendezvous("env://", timeout=PATIENT))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENT)
        return store
    except RuntimeError as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        if "EADDRINUSE" in str(error) or "address already in use" in str(error):
            raise RunError(
                f"the ranks cannot meet at {where}: another program uses this port; torchrun --standalone picks a free "
                "one, --master-port sets another"
            ) from error
        raise RunError(f"the ranks cannot meet at {where}: {one_line(error)}") from error


def leave_word(store: Store, rank: int, error: BaseException) -> None:
    """Tell the others why this rank leaves, as far as that is still possible."""
    with suppress(RuntimeError):
        store.set(f"gone/{rank}", one_line(error))


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
