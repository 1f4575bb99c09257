"""Our Adam takes the steps of PyTorch's, to the bit, and keeps what PyTorch's keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rnd.training.adam import Adam, Group


def network() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3), nn.Linear(3, 3))
    return made.to(memory_format=torch.channels_last)


def gradients(made: nn.Module, seed: int, but: int | None = None) -> None:
    """Random gradients; none for parameter number `but`."""
    generator = torch.Generator().manual_seed(seed)
    for i, p in enumerate(made.parameters()):
        p.grad = None if i == but else torch.empty_like(p).copy_(torch.randn(p.shape, generator=generator))


def test_steps_and_moments_are_those_of_pytorch():
    """Two groups, and a parameter without a gradient in the second step."""
    ours, theirs = network(), network()
    mine, others = [*ours.parameters()], [*theirs.parameters()]
    adam = Adam([Group(mine[:2], 1e-3), Group(mine[2:], 3e-2)])
    groups = [{"params": others[:2], "lr": 1e-3}, {"params": others[2:], "lr": 3e-2}]
    reference = torch.optim.Adam(groups, betas=(0.9, 0.999), eps=1e-8, fused=True)
    for step in range(5):
        for made in (ours, theirs):
            gradients(made, seed=step, but=4 if step == 1 else None)
        adam.step()
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(mine, others, strict=True))
    expected = reference.state_dict()["state"]
    assert adam.state_dict().keys() == {str(i) for i in expected}
    for i, moments in expected.items():
        assert moments.keys() == adam.state_dict()[str(i)].keys()
        assert all(torch.equal(adam.state_dict()[str(i)][name], value) for name, value in moments.items())
    assert float(adam.state_dict()["4"]["step"]) == 4.0
    adam.zero_grad()
    assert all(p.grad is None for p in mine)


def test_no_step_is_taken_where_something_was_not_finite():
    made, not_finite = network(), torch.zeros(())
    adam = Adam([Group([*made.parameters()], 1e-2, not_finite)])
    for step in (1, 2):
        gradients(made, step)
        adam.step()
    before = [p.detach().clone() for p in made.parameters()]
    saved = {number: {n: v.clone() for n, v in m.items()} for number, m in adam.state_dict().items()}
    not_finite.fill_(1.0)
    gradients(made, 3)
    adam.step()
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), before, strict=True))
    for number, moments in adam.state_dict().items():
        assert all(torch.equal(moments[name], value) for name, value in saved[number].items())


def test_it_continues_from_what_was_saved_in_any_memory_order():
    whole, half = network(), network()
    adam = Adam([Group([*whole.parameters()], 1e-2)])
    for step in (1, 2):
        gradients(whole, step)
        adam.step()
    state = {number: {n: v.clone().contiguous() for n, v in m.items()} for number, m in adam.state_dict().items()}
    half.load_state_dict(whole.state_dict())
    other = Adam([Group([*half.parameters()], 1e-2)])
    other.load_state_dict(state)
    weight = next(half.parameters())
    assert other.moments[weight]["exp_avg"].stride() == weight.stride() != state["0"]["exp_avg"].stride()
    for made, optimizer in ((whole, adam), (half, other)):
        gradients(made, 3)
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), half.parameters(), strict=True))
    assert not torch.equal(state["0"]["exp_avg"], other.moments[weight]["exp_avg"])  # it was copied
    state["0"]["exp_avg"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"exp_avg has the shape \(3,\) instead of \(4, 2, 3, 3\)"):
        other.load_state_dict(state)


def test_training_on_a_cpu_does_not_import_the_compiler():
    """It would take more than a second of every start."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from helpers import tiny, train_rows\n"
        "assert len(train_rows(tiny(device='cpu', iterations=2))) == 2\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    tests = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", program, tests], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
