"""The simulated world: what it says it draws from is what it draws from."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from widemax.data.simulation import world as simulation
from widemax.data.simulation.world import SimulatedWorld


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def brute_force_log_prob(world: SimulatedWorld) -> torch.Tensor:
    """The formula, written down once more in the plainest way, [N, V]."""
    rows = []
    for user in world.user_vectors:
        weights = [
            torch.exp(popularity + (user * item).sum())
            for popularity, item in zip(world.log_popularity, world.item_vectors, strict=True)
        ]
        rows.append(torch.stack(weights) / sum(weights))
    return torch.stack(rows).log()


@settings(max_examples=20, deadline=None)
@given(
    num_classes=st.integers(1, 30),
    num_users=st.integers(1, 6),
    dimension=st.integers(1, 5),
    exponent=st.floats(0, 2),
    sharpness=st.floats(0, 6),
)
def test_log_prob_is_the_formula(num_classes, num_users, dimension, exponent, sharpness):
    world = SimulatedWorld.create(
        num_classes=num_classes,
        num_users=num_users,
        dimension=dimension,
        exponent=exponent,
        sharpness=sharpness,
    )
    expected = brute_force_log_prob(world)
    users = torch.randint(num_users, (9,), generator=seeded(0))
    ids = torch.randint(num_classes, (9, 4), generator=seeded(1))
    close = {"atol": 1e-12, "rtol": 0}
    torch.testing.assert_close(world.log_prob(users), expected[users], **close)
    torch.testing.assert_close(world.log_prob(users, ids), expected[users[:, None], ids], **close)
    torch.testing.assert_close(
        world.log_prob(users, ids[0]), expected[users[:, None], ids[:1]], **close
    )
    torch.testing.assert_close(world.marginal(), expected.exp().mean(0), **close)


def test_blocks_change_nothing(monkeypatch):
    world = SimulatedWorld.create(num_classes=40, num_users=7)
    users = torch.randint(7, (100,), generator=seeded(0))

    def answers():
        drawn = world.sample(users, generator=seeded(1))
        some = world.log_prob(users, drawn[:, None])
        return drawn, some, world.log_prob(users), world.marginal()

    whole = answers()
    for size in (1, 100):
        monkeypatch.setattr(simulation, "_ENTRIES_PER_BLOCK", size)
        for one, other in zip(whole, answers(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_a_million_draws_follow_the_exact_distribution():
    world = SimulatedWorld.create(num_classes=50, num_users=3, seed=5)
    users, targets = world.interactions(1_200_000, generator=seeded(6))
    for user in range(3):
        drawn = torch.bincount(targets[users == user], minlength=50)
        expected = world.log_prob(torch.tensor([user]))[0].exp() * drawn.sum()
        assert expected.min() > 5
        assert chisquare(drawn.numpy(), expected.numpy()).pvalue > 1e-3
    counts = torch.bincount(targets, minlength=50)
    assert chisquare(counts.numpy(), (world.marginal() * counts.sum()).numpy()).pvalue > 1e-3
    by_user = torch.bincount(users, minlength=3)
    assert chisquare(by_user.numpy()).pvalue > 1e-3


def test_draws_over_a_wide_catalogue_follow_the_exact_distribution():
    """Classes in 60 ranges of like weight, so that the halving is tested far from class 0."""
    world = SimulatedWorld.create(num_classes=100_003, num_users=2, exponent=0.7, seed=1)
    targets = world.sample(torch.zeros(1_000_000, dtype=torch.int64), generator=seeded(2))
    probability = world.log_prob(torch.tensor([0]))[0].exp()
    range_of_class = (probability.cumsum(0) * 60).long().clamp_(max=59)
    expected = torch.zeros(60, dtype=torch.float64).index_add_(0, range_of_class, probability)
    drawn = torch.bincount(range_of_class[targets], minlength=60)
    assert chisquare(drawn.numpy(), (expected / expected.sum() * 1_000_000).numpy()).pvalue > 1e-3


def test_few_popular_users_and_many_silent_ones():
    world = SimulatedWorld.create(num_classes=10, num_users=1000)
    users = torch.cat([torch.full((5000,), 999), torch.tensor([3, 500])])
    targets = world.sample(users, generator=seeded(0))
    drawn = torch.bincount(targets[:5000], minlength=10)
    expected = world.log_prob(torch.tensor([999]))[0].exp() * 5000
    assert chisquare(drawn.numpy(), expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.2])
def test_marginal_stays_close_to_zipf(exponent):
    world = SimulatedWorld.create(num_classes=3000, num_users=400, exponent=exponent)
    log_rank = torch.arange(1, 3001, dtype=torch.float64).log()
    centred = log_rank - log_rank.mean()
    slope = (centred * world.marginal().log()).sum() / (centred**2).sum()
    assert abs(slope.item() + exponent) < 0.03


def test_users_differ_from_the_marginal():
    world = SimulatedWorld.create(num_classes=500, num_users=50)
    all_users = torch.arange(50)
    assert world.kl(all_users, world.marginal().log().expand(50, -1)) > 0.1


def test_seeds_give_the_same_bits():
    arguments = {"num_classes": 100, "num_users": 10}
    one, other = (SimulatedWorld.create(**arguments, seed=3) for _ in range(2))
    assert torch.equal(one.item_vectors, other.item_vectors)
    assert torch.equal(one.user_vectors, other.user_vectors)
    for left, right in zip(
        one.interactions(1000, generator=seeded(4)),
        other.interactions(1000, generator=seeded(4)),
        strict=True,
    ):
        assert torch.equal(left, right)
    assert not torch.equal(one.user_vectors, SimulatedWorld.create(**arguments).user_vectors)
    assert not torch.equal(
        one.interactions(1000, generator=seeded(4))[1],
        one.interactions(1000, generator=seeded(5))[1],
    )


def test_kl_of_the_truth_is_zero_and_of_all_else_positive():
    world = SimulatedWorld.create(num_classes=60, num_users=5)
    users = torch.tensor([0, 3, 3, 4])
    truth = world.log_prob(users)
    assert world.kl(users, truth) == pytest.approx(0, abs=1e-14)
    assert world.kl(users, world.log_prob) == pytest.approx(0, abs=1e-14)
    for seed in range(10):
        noise = 0.01 * torch.randn(truth.shape, generator=seeded(seed), dtype=torch.float64)
        assert world.kl(users, (truth + noise).log_softmax(-1)) > 0
    uniform = torch.full_like(truth, 1 / 60).log()
    by_hand = (truth.exp() * (truth - uniform)).sum(-1).mean().item()
    assert world.kl(users, uniform) == pytest.approx(by_hand, rel=1e-12)
    assert world.kl(users, uniform.float()) == pytest.approx(by_hand, rel=1e-5)


def test_kl_with_impossible_classes():
    world = SimulatedWorld.create(num_classes=2, num_users=1, sharpness=0)
    only_first = torch.tensor([[0.0, -torch.inf]])
    assert world.kl(torch.tensor([0]), only_first) == torch.inf
    steep = SimulatedWorld.create(num_classes=2**12, num_users=1, exponent=100, sharpness=0)
    first = torch.full((1, 2**12), -torch.inf).index_fill_(1, torch.arange(3), 0.0).log_softmax(1)
    never = steep.log_prob(torch.tensor([0])).exp() == 0
    assert never.any()
    assert not torch.isnan(torch.tensor(steep.kl(torch.tensor([0]), first)))


def test_one_class_one_user_and_nobody():
    world = SimulatedWorld.create(num_classes=1, num_users=1, dimension=1)
    users, targets = world.interactions(5, generator=seeded(0))
    assert users.tolist() == targets.tolist() == [0] * 5
    assert world.log_prob(users).tolist() == [[0.0]] * 5
    assert world.marginal().tolist() == [1.0]
    nobody = torch.empty(0, dtype=torch.int64)
    assert world.sample(nobody).shape == (0,)
    assert world.log_prob(nobody).shape == (0, 1)
    assert world.log_prob(nobody, torch.tensor([0])).shape == (0, 1)


def test_vectors_have_the_promised_norms():
    world = SimulatedWorld.create(num_classes=20, num_users=30, sharpness=2.5)
    assert world.item_vectors.norm(dim=1).allclose(torch.ones(20, dtype=torch.float64))
    features = world.features(torch.arange(30))
    assert features.dtype == torch.float32
    assert features.norm(dim=1).allclose(torch.full((30,), 2.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_classes": 0}, "num_classes must be between 1 and"),
        ({"num_classes": -1}, "num_classes must be between 1 and"),
        ({"num_classes": 3031324185113192368}, "num_classes must be between 1 and"),
        ({"num_classes": 2.0}, "num_classes must be a whole number"),
        ({"num_users": 0}, "num_users must be between 1 and"),
        ({"num_users": 2**60}, "num_users must be between 1 and"),
        ({"dimension": 2**40}, "dimension must be between 1 and"),
        ({"dimension": 0}, "dimension must be"),
        ({"exponent": -1.0}, "exponent must be between 0 and 100, got -1.0"),
        ({"exponent": float("nan")}, "exponent must be"),
        ({"sharpness": float("inf")}, "sharpness must be between 0 and 1e"),
        ({"seed": 2**70}, "seed must be between 0 and"),
    ],
)
def test_absurd_worlds_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SimulatedWorld.create(**({"num_classes": 10, "num_users": 10} | change))


def test_bad_questions_are_refused():
    world = SimulatedWorld.create(num_classes=10, num_users=4)
    users = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="users must lie between 0 and 3"):
        world.sample(torch.tensor([4]))
    with pytest.raises(ValueError, match="users must lie between 0 and 3"):
        world.features(torch.tensor([-1]))
    with pytest.raises(ValueError, match=r"users must have shape \[B\]"):
        world.log_prob(torch.tensor([[0]]))
    with pytest.raises(ValueError, match="ids must lie between 0 and 9"):
        world.log_prob(users, torch.tensor([10]))
    with pytest.raises(ValueError, match=r"ids must have shape \[S\] or \[2, S\]"):
        world.log_prob(users, torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="num_interactions must be between 1 and"):
        world.interactions(3590707793247644003)
    with pytest.raises(ValueError, match="users must hold at least one"):
        world.kl(torch.empty(0, dtype=torch.int64), world.log_prob)
    with pytest.raises(
        ValueError, match=r"model_log_prob must have shape \[2, 10\], got \[1, 10\]"
    ):
        world.kl(users, world.log_prob(users[:1]))
    with pytest.raises(ValueError, match=r"model_log_prob must have shape \[2, 10\]"):
        world.kl(users, lambda some: world.log_prob(some)[:, :3])
    with pytest.raises(ValueError, match=r"normalised: the probabilities of row 1 add up to 2"):
        world.kl(users, world.log_prob(users) + torch.tensor([[1.0], [2.0]]).log())
    with pytest.raises(ValueError, match=r"normalised: .* add up to nan"):
        world.kl(users, torch.full((2, 10), torch.nan))


def test_all_classes_of_too_many_users_are_refused_before_allocation():
    world = SimulatedWorld.create(num_classes=100_000, num_users=1, dimension=1)
    with pytest.raises(ValueError, match=r"users must number at most 5,368 .*pass ids"):
        world.log_prob(torch.zeros(6000, dtype=torch.int64))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_a_million_classes_fit_in_modest_memory():
    program = """
import pathlib, torch
from widemax.data.simulation.world import SimulatedWorld
world = SimulatedWorld.create(num_classes=1_000_000, num_users=100, dimension=16)
users, targets = world.interactions(20_000, generator=torch.Generator().manual_seed(0))
assert world.log_prob(users[:50], targets[:50, None]).exp().min() > 0
# Not getrusage: that begins with the peak of the process that started this one.
status = pathlib.Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < 1_000_000  # kilobytes, with PyTorch itself
