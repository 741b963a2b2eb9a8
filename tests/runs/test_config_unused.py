"""Settings without an effect are said, not swallowed."""

import dataclasses

import pytest
import torch

from widemax.runs.config.config import Config, settings
from widemax.runs.config.resolved import read_config, show
from widemax.runs.config.toml import to_toml
from widemax.runs.config.unused import NEEDS, unused_because
from widemax.runs.heads import build_head

COUNTS = torch.tensor([50, 30, 20, 9, 5, 5, 3, 2, 1, 1])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"head": "full", "num_samples": 100}, "--num-samples has no effect with head = 'full'"),
        ({"head": "full", "sampler": "unigram"}, "--sampler has no effect with head = 'full'"),
        # Also where it is the default: who says it believes that it matters.
        ({"head": "full", "sampler": "log-uniform"}, "it needs head = sampled or importance"),
        ({"head": "importance", "objective": "nce"}, "--objective .* it needs head = sampled"),
        ({"sampler": "in-batch", "num_samples": 9}, "sampler other than all or in-batch"),
        ({"sampler": "uniform", "distortion": 0.5}, "it needs sampler = unigram"),
        ({"steps": 5, "epochs": 2}, "--epochs has no effect with steps = 5: it needs steps = 0"),
        ({"model": "next-item", "window": 2}, "--window has no effect with model = 'next-item'"),
        ({"validation_size": 0, "patience": 2}, "it needs validation_size other than 0"),
    ],
)
def test_a_flag_without_effect_is_an_error(flags, named):
    with pytest.raises(ValueError, match=named):
        read_config(None, flags)


def test_a_file_may_serve_several_heads_but_what_it_says_in_vain_is_noted(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('num_samples = 100\nsampler = "log-uniform"\nseed = 3\n')
    assert read_config(path, {}).notes == ()
    (note,) = read_config(path, {"head": "full"}).notes
    assert note.startswith(f"{path}: num_samples has no effect with head = 'full'")
    # A flag overrides the file, and then it is the flag that is at fault.
    with pytest.raises(ValueError, match="--num-samples has no effect"):
        read_config(path, {"head": "full", "num_samples": 5})


@pytest.mark.parametrize("write", [to_toml, None])
def test_a_file_that_the_program_wrote_gives_no_note(write, tmp_path):
    path = tmp_path / "run.toml"
    resolved = read_config(None, {"head": "full", "validation_size": 0, "steps": 7})
    path.write_text(write(resolved.config) if write else show(resolved))
    again = read_config(path, {})
    assert (again.config, again.notes) == (resolved.config, ())


def test_the_table_names_settings_and_their_values():
    for name, needs in NEEDS.items():
        assert name in settings()
        for need in needs:
            for value in need.values:
                settings()[need.setting].check(need.setting, value)


OTHER = {"sampler": "unigram", "objective": "nce", "num_samples": 2, "distortion": 0.1}


def shape_of(config):
    """Return all that tells two heads apart: their types, numbers and parameters."""
    head = build_head(config, COUNTS, config.dimension)
    sampler = getattr(head, "sampler", None)
    return (
        type(head),
        type(sampler),
        getattr(head, "objective", None),
        getattr(head, "num_samples", None),
        None if sampler is None or config.sampler == "in-batch"
        else sampler.log_prob(torch.arange(len(COUNTS))).tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("sampler", ["log-uniform", "unigram", "all", "in-batch"])
@pytest.mark.parametrize("head", settings()["head"].choices)
def test_a_setting_changes_the_head_that_is_built_exactly_if_the_table_says_so(head, sampler):
    if head == "importance" and sampler in ("all", "in-batch"):
        pytest.skip("refused")
    config = Config(head=head, sampler=sampler, dimension=4, num_samples=3)
    for name, value in OTHER.items():
        if value == getattr(config, name):
            continue
        changed = shape_of(config) != shape_of(dataclasses.replace(config, **{name: value}))
        assert changed == (not unused_because(config, name)), name
