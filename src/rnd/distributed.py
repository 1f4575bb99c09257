"""One run on several processes: communication through torch.distributed.

torchrun starts the processes and numbers them (ranks). Each has its own environments; networks, optimiser and
statistics are the same on all. A run of one process uses `SINGLE_PROCESS`: nothing is sent and every method returns its
argument, so that callers need no special case.

Two process groups: tensors on the device use one with a short timeout (NCCL or gloo): a minute without an answer means
that a process is gone. Plain data on the host uses one with a long timeout (gloo), because opening folders, compiling
kernels and writing checkpoints may take minutes. Both notice at once when the other end of a connection closes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from rnd.config import Config
from rnd.foundation.errors import InterruptedRunError, RunError, UserError
from rnd.foundation.launch import launched

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")

DEVICE_TIMEOUT = timedelta(seconds=60)
HOST_TIMEOUT = timedelta(minutes=30)
REPORT_SECONDS = 10.0
"""Time that the other ranks have to report when one is missing."""


class LostRankError(RunError):
    """Another process of the run is gone."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, seen from one of them."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    device_group: dist.ProcessGroup | None = None
    store: Store | None = None

    @property
    def is_rank0(self) -> bool:
        """Only rank 0 writes the run folder and prints."""
        return self.rank == 0

    # --- numbers on the device -------------------------------------------------------------------

    def all_mean_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their means over the ranks, in one message."""
        if self.world == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._sum_(flat)
        flat /= self.world
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def all_moments(self, mean: Tensor, var: Tensor, count: float) -> tuple[Tensor, Tensor, float]:
        """Mean, biased variance and count of all ranks' samples together; two messages of the size of `mean`."""
        if self.world == 1:
            return mean, var, count
        sums = torch.cat([mean.reshape(-1) * count, mean.new_full((1,), count)])
        self._sum_(sums)
        total = float(sums[-1])
        all_mean = (sums[:-1] / total).view_as(mean)
        all_var = (var + (mean - all_mean).square()) * count
        self._sum_(all_var)
        return all_mean, all_var / total, total

    def all_gather(self, tensor: Tensor, dim: int) -> Tensor:
        """All ranks' tensors of this shape, concatenated along `dim`."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        with self._detect_lost_ranks():
            dist.all_gather(parts, tensor.contiguous(), group=self.device_group)
        return torch.cat(parts, dim)

    def broadcast_(self, module: nn.Module) -> None:
        """Replace parameters and buffers by those of rank 0."""
        if self.world == 1:
            return
        for tensor in (*module.parameters(), *module.buffers()):
            data = tensor.detach().contiguous()
            with self._detect_lost_ranks():
                dist.broadcast(data, 0, group=self.device_group)
            tensor.data.copy_(data)

    # --- plain data on the host ------------------------------------------------------------------

    def all_max(self, *values: float) -> list[float]:
        """The largest of every value over the ranks."""
        if self.world == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with self._detect_lost_ranks():
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return [float(number) for number in numbers]

    def gather(self, value: T) -> list[T]:
        """All ranks' values on rank 0; an empty list on the others."""
        if self.world == 1:
            return [value]
        values: list[T | None] = [None] * self.world
        with self._detect_lost_ranks():
            dist.gather_object(on_host(value), values if self.is_rank0 else None)
        return [found for found in values if found is not None] if self.is_rank0 else []

    def scatter(self, values: Sequence[T]) -> T:
        """Rank r gets value r of rank 0's list; the lists of the others are ignored."""
        if self.world == 1:
            return values[0]
        mine: list[T | None] = [None]
        with self._detect_lost_ranks():
            dist.scatter_object_list(mine, list(values) if self.is_rank0 else None)
        assert mine[0] is not None
        return mine[0]

    def on_rank0(self, function: Callable[[], T]) -> T:
        """Rank 0 calls `function`; all ranks return its result, or raise its UserError or RunError."""
        if self.world == 1:
            return function()
        reply: list[tuple[T | None, UserError | RunError | None]] = [(None, None)]
        if self.is_rank0:
            try:
                reply = [(function(), None)]
            except (UserError, RunError) as error:
                reply = [(None, error)]
        with self._detect_lost_ranks():
            dist.broadcast_object_list(reply, 0)
        value, problem = reply[0]
        if problem is not None:
            problem.reported = not self.is_rank0
            raise problem
        return value  # type: ignore[return-value]

    # --- the config of each rank ------------------------------------------------------------------

    def on(self, device: str) -> Ranks:
        """With the device group: NCCL between GPUs, one per process, or gloo between CPUs."""
        if self.world == 1:
            return self
        gpus = torch.cuda.device_count() if device != "cpu" else 0
        if gpus and self.local_rank >= gpus:
            raise UserError(
                f"{launched().local_world} processes share {gpus} GPUs here; start one per GPU: --nproc-per-node {gpus}"
            )
        if gpus:
            torch.cuda.set_device(self.local_rank)
        return replace(self, device_group=dist.new_group(backend="nccl" if gpus else "gloo", timeout=DEVICE_TIMEOUT))

    def config_of_new_run(self, config: Config) -> Config:
        """This rank's config of a new run: num_envs environments of its own, numbered after those of lower ranks."""
        if config.ranks not in (1, self.world):
            raise UserError(
                f"--ranks {config.ranks}, but {self.world} process{'es' if self.world > 1 else ''} started; "
                f"start them with torchrun --standalone --nproc-per-node {config.ranks} -m rnd train"
            )
        if config.env.first:
            raise UserError("--env.first follows from the rank; leave it out")
        return self._numbered(replace(config, ranks=self.world))

    def config_of_resumed_run(self, config: Config) -> Config:
        """This rank's config of a resumed run. The number of ranks may have changed; the total number of environments
        has not."""
        total = config.ranks * config.env.num_envs
        if total % (self.world * config.minibatches):
            fits = [str(w) for w in range(1, 4 * self.world) if total % (w * config.minibatches) == 0]
            raise UserError(
                f"{total} environments in {config.minibatches} minibatches cannot be split across {self.world} ranks; "
                f"nearest: {', '.join(fits[-3:]) or 'none'}"
            )
        env = replace(config.env, num_envs=total // self.world)
        return self._numbered(replace(config, ranks=self.world, env=env))

    def _numbered(self, config: Config) -> Config:
        return replace(config, env=replace(config.env, first=self.rank * config.env.num_envs))

    # --- when a rank is lost ---------------------------------------------------------------------

    def _sum_(self, tensor: Tensor) -> None:
        with self._detect_lost_ranks():
            dist.all_reduce(tensor, group=self.device_group)

    @contextmanager
    def _detect_lost_ranks(self) -> Iterator[None]:
        """An error in a collective operation means that a rank is missing: name it."""
        try:
            yield
        except RuntimeError as error:
            who = self._missing() or f"a collective operation failed: {one_line(error)}"
            raise LostRankError(f"{who}; rank {self.rank} stops too") from error

    def _missing(self) -> str | None:
        """Names the rank that has exited or no longer reports. It is read from the rendezvous store, which outlives the
        ranks."""
        assert self.store is not None
        others, deadline = {*range(self.world)} - {self.rank}, time.monotonic() + REPORT_SECONDS
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
            return "the rendezvous store is gone (its process or machine)"
        return None


SINGLE_PROCESS = Ranks()


def on_host(value: Any) -> Any:
    """Nested data with its tensors in host memory: another process may not have this GPU."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: on_host(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_host(item) for item in value)
    return value


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Join the processes that torchrun started; `SINGLE_PROCESS` without torchrun."""
    rank, world, local_rank, _ = launched()
    if world == 1:
        yield SINGLE_PROCESS
        return
    store = init_process_group()
    try:
        yield Ranks(rank, world, local_rank, store=store)
    except InterruptedRunError:  # all ranks exit together
        destroy_process_group()
        raise
    except BaseException as error:
        if not isinstance(error, LostRankError):
            with suppress(RuntimeError):  # the reason, for the other ranks; the store may be gone
                store.set(f"gone/{rank}", one_line(error))
        raise
    destroy_process_group()


def destroy_process_group() -> None:
    """Close the groups.

    One of their threads may still hold the tensors of the last message, and needs the interpreter to release them. If
    the interpreter is already shutting down then, the process aborts: wait a moment.
    """
    dist.destroy_process_group()
    time.sleep(0.1)


def init_process_group() -> Store:
    """Join the group; a port that another program uses is reported as one line, not as a traceback."""
    try:
        store: Store
        store, rank, world = next(rendezvous("env://", timeout=HOST_TIMEOUT))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=HOST_TIMEOUT)
        return store
    except (RuntimeError, ValueError) as error:
        where, why = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}", one_line(error)
        if "EADDRINUSE" in str(error) or "address already in use" in str(error):
            why = "another program uses this port; torchrun --standalone picks a free one, --master-port sets another"
        raise RunError(f"the ranks cannot connect at {where}: {why}") from error


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def check_keys(state: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Refuse a state with entries that `reshard` does not know: splitting them wrongly would be silent."""
    unknown = set(state) - set(known)
    if unknown:
        raise RunError(
            f"the state of {owner} has entries that cannot be split across ranks: {', '.join(sorted(unknown))}; "
            "resume with the number of ranks that saved it"
        )


def reshard_rows(shares: Sequence[Tensor], world: int, dim: int = 0) -> list[Tensor]:
    """Rows of `world` ranks from those of another number, in order. The total must be divisible."""
    rows = torch.cat(list(shares), dim)
    return [share.clone() for share in rows.split(rows.shape[dim] // world, dim)]
