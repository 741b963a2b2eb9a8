"""Counts from a vocabulary file: columns and reserved ids as in TensorFlow, faults by line."""

import os
from collections import Counter

import pytest
import torch

from widemax.sampling import UnigramSampler, read_counts


def written(folder, text):
    path = folder / "vocabulary.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def probabilities(sampler):
    return sampler.log_prob(torch.arange(sampler.num_classes)).exp()


@pytest.mark.parametrize(
    "text",
    [
        "the,9\nroad,4\nsun,1\n",
        "9\n4\n1",
        "the,DT,9\r\nroad,NN,4\r\nsun,NN,1\r\n",
        '"wide, hot",9\n\nroad, 4\nsun,1e0\n\n',
        b"\xef\xbb\xbf9\n\xff\xfe,4\nsun,1\n",
    ],
)
def test_the_last_column_is_the_count(tmp_path, text):
    assert read_counts(written(tmp_path, text)).tolist() == [9.0, 4.0, 1.0]


def test_columns_may_be_separated_by_something_else(tmp_path):
    path = written(tmp_path, "the 9\nroad 4\n")
    assert read_counts(path, separator=" ").tolist() == [9.0, 4.0]
    with pytest.raises(ValueError, match=r"line 1: .* got 'the 9'"):
        read_counts(path)


@pytest.mark.parametrize("distortion", [1.0, 0.75, -0.5])
def test_the_sampler_of_a_file_is_that_of_its_counts_after_the_reserved_ids(tmp_path, distortion):
    path = written(tmp_path, "the,9\nroad,4\nsun,1\n")
    sampler = UnigramSampler.from_file(path, distortion=distortion, num_reserved_ids=2)
    plain = UnigramSampler(5, [0, 0, 9, 4, 1], distortion=distortion)
    assert sampler.num_classes == 5
    torch.testing.assert_close(probabilities(sampler), probabilities(plain))


def test_reserved_ids_are_never_drawn_and_the_others_by_their_counts(tmp_path):
    path = written(tmp_path, "the,9\nroad,4\nsun,1\n")
    sampler = UnigramSampler.from_file(path, distortion=1.0, num_reserved_ids=2)
    drawn = Counter(sampler.draw((140_000,), generator=torch.Generator().manual_seed(0)).tolist())
    assert set(drawn) == {2, 3, 4}
    for class_id, count in ((2, 90_000), (3, 40_000), (4, 10_000)):
        assert abs(drawn[class_id] - count) < 1000


def test_shards_are_counted_with_the_reserved_ids(tmp_path):
    """As in TensorFlow, where the id of a line is its place plus the number of reserved ids."""
    path = written(tmp_path, "a,9\nb,4\nc,3\nd,1\n")
    options = {"distortion": 1.0, "num_reserved_ids": 1, "num_shards": 2}
    odd = UnigramSampler.from_file(path, shard=1, **options)
    even = UnigramSampler.from_file(path, shard=0, **options)
    torch.testing.assert_close(
        probabilities(odd), torch.tensor([0, 0.75, 0, 0.25, 0], dtype=torch.float64)
    )
    torch.testing.assert_close(
        probabilities(even), torch.tensor([0, 0, 0.8, 0, 0.2], dtype=torch.float64)
    )


def test_options_of_the_sampler_act(tmp_path):
    path = written(tmp_path, "a,9\nb,4\nc,3\nd,1\n")
    sampler = UnigramSampler.from_file(path, unique=True, per_example=True)
    ids = sampler.sample(3, torch.tensor([0, 1])).ids
    assert ids.shape == (2, 3)
    assert all(len(set(row)) == 3 for row in ids.tolist())


@pytest.mark.parametrize("wrong", ["many", "", "nan", "inf", "-1", "1_000", "12x", "0x10", "٣"])
def test_fault_05_a_last_column_that_is_no_count_is_named_by_its_line(tmp_path, wrong):
    path = written(tmp_path, f"the,9\n\nroad,{wrong}\nsun,1\n")
    with pytest.raises(ValueError, match=r"vocabulary\.csv, line 3: the last column") as error:
        UnigramSampler.from_file(path)
    assert repr(wrong) in str(error.value)


def test_fault_05_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"none\.csv cannot be read: No such file"):
        UnigramSampler.from_file(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "holds no counts"),
        ("\n\n", {}, "holds no counts"),
        ("a,0\nb,0\n", {}, "above 0 for some class"),
        ("a,1\nb,2\n", {"num_classes": 3}, r"num_classes must be 2, .* got 3"),
        ("a,1\nb,2\n", {"num_classes": 2, "num_reserved_ids": 1}, "num_classes must be 3"),
        ("a,1\n", {"num_reserved_ids": -1}, "num_reserved_ids must be between"),
        ("a,1\n", {"num_reserved_ids": 2**40}, "num_reserved_ids must be between"),
        ("a,1\n", {"num_reserved_ids": 2**31 - 1}, "num_classes must be between"),
        ("a,1\n", {"separator": ""}, "separator"),
        ("a,1\n", {"separator": "\n"}, "separator"),
        ("a,1\n", {"shard": 1}, "shard must be between"),
        ("a" * 2**21 + ",1\n", {}, "line 1: longer than"),
    ],
)
def test_files_and_options_that_do_not_fit(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        UnigramSampler.from_file(written(tmp_path, text), **options)


def test_a_pipe_and_a_sparse_file_are_refused(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="no regular file"):
        UnigramSampler.from_file(pipe)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(ValueError, match="line 1: longer than"):
        UnigramSampler.from_file(sparse)
