"""Skip-gram and CBOW trained by the kernel, many times faster than with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widemax.data import Sequences
from widemax.declarations import Need, Setup, declare
from widemax.heads import HierarchicalHead, SampledHead, Tree
from widemax.kernels.models.word2vec import Corpus, Opponents, Tables, train_words
from widemax.kernels.sampling.alias import build_alias_table, scaled_weights
from widemax.models.embeddings.word2vec import CBOW, SkipGram, WordModel
from widemax.objectives import negative_sampling
from widemax.sampling import LogUniformSampler, UniformSampler, UnigramSampler
from widemax.scoring import TableScorer
from widemax.training.epochs import AUTO_EPOCHS, EPOCHS_OF_KERNEL, chosen_epochs
from widemax.training.guard import NonFiniteError
from widemax.training.steps import (
    DEVICE,
    LEARNING_RATE,
    SCHEDULE,
    STEPS,
    WARMUP_STEPS,
    check_on_host,
    shuffled,
)
from widemax.training.together import ALONE, Together
from widemax.validation import check_positive, check_whole

_LINE = 16
"""float32 values in one cache line: rows of the tables are padded to whole ones."""

_FEWEST_STEPS = 100
"""Steps of an epoch where there are words enough: the learning rate falls from one to the next."""

_STEPS_APART = 25
"""Steps that several processes take before they bring their tables together: four times an epoch.

More often takes longer than it is worth, experiments/word2vec_ranks.py."""

_USUAL_JOBS_A_STEP, _MOST_JOBS_A_STEP = 8, 32
_SHORTEST_JOB, _SHORT_JOB, _LONGEST_JOB = 250, 1_000, 5_000


def words_a_step(num_words: int) -> int:
    """Return how many words of a text of so many are trained on in one step.

    >>> words_a_step(10_000_000)
    100000
    """
    job_words, _, jobs_a_step = _jobs_of(num_words)
    return min(num_words, job_words * jobs_a_step)


def _jobs_of(num_words: int) -> tuple[int, int, int]:
    """Return the words of a job, how many jobs there are, and how many make a step."""
    # Several jobs a step, for the threads, unless they would be short: a job may end in
    # mid-sentence and cuts the windows there.
    a_step = num_words // _FEWEST_STEPS
    wanted = max(a_step // _USUAL_JOBS_A_STEP, min(a_step, _SHORT_JOB), _SHORTEST_JOB)
    job_words = min(wanted, _LONGEST_JOB)
    num_jobs = math.ceil(num_words / job_words)
    return job_words, num_jobs, max(1, min(_MOST_JOBS_A_STEP, num_jobs // _FEWEST_STEPS))


@declare.trainer(
    "kernel",
    options=[LEARNING_RATE, SCHEDULE, WARMUP_STEPS, EPOCHS_OF_KERNEL, STEPS, DEVICE],
    needs=[
        Need("model", trait="kernel", why="trains skip-gram and CBOW"),
        Need("head", trait="kernel", why="knows negative sampling and trees"),
        Need("scorer", trait="kernel", why="knows plain tables"),
        Need("sampler", trait="kernel", why="draws by fixed frequencies"),
        Need("objective", trait="kernel", why="knows negative sampling and trees"),
    ],
    fixed={
        "bias": False,
        "similarity": "dot",
        "temperature": 1.0,
        "unique": False,
        "per_example": True,
        "num_groups": 1,
    },
    usual={
        "sampler": "unigram",
        "objective": "negative-sampling",
        "num_samples": 5,
        "unique": False,
        "per_example": True,
        "learning_rate": 0.05,
        "schedule": "linear",
        "patience": 0,
        # Negative sampling does not learn probabilities: its loss says little about its vectors.
        "metric": "mrr",
        # To rank a word among all takes as long as to train on a thousand.
        "validation_size": 1_000,
    },
)
class Word2VecSteps:
    """Skip-gram or CBOW, with negative sampling or a tree, in steps of some thousand words.

    The text is cut into jobs of equal length, taken in an order seeded by (seed, epoch); a step is
    a few jobs, and each job draws from a seed of its own. With one thread, the same seed gives the
    same bits; with several, they write to the tables without locks, in any order (Recht et al.,
    "Hogwild!", 2011). ``threads`` 0 means as many as torch uses. The tables are a second copy of
    the parameters, with rows of whole registers, until ``publish``.

    The head must be negative sampling by fixed frequencies, or a tree, without biases
    (``GradientSteps`` trains any). Several processes share the jobs of each step, and every 25
    steps a row moves by what it moved in those that touched it (see ``average_rows``).

    >>> import widemax as wm
    >>> sequences, vocabulary = wm.data.encode_text("a b c d\\n" * 99)
    >>> model = wm.models.SkipGram.create(vocabulary.counts, dimension=8, subsample=0)
    >>> steps = Word2VecSteps(model, sequences, window=2, threads=1)
    >>> for step in range(10 * steps.per_epoch):
    ...     steps.take(step, 0.05)
    >>> steps.publish()
    >>> bool(model.encoder.weight.abs().max() > 0.2)
    True
    """

    trains_copies = True
    """Whether the model stays as it was published, to be saved while steps are taken."""
    takes_jobs = True
    """Whether the jobs of a step can be shared by processes."""
    together: Together = ALONE
    """Which jobs this process does."""
    _before: list[NDArray[np.float32]] | None = None

    def __init__(
        self,
        model: WordModel,
        sequences: Sequences,
        *,
        window: int = 5,
        threads: int = 0,
        seed: int = 0,
    ) -> None:
        if not len(sequences.values):
            raise ValueError("there are no examples to train on")
        self.model: nn.Module = model
        self._words = model
        self.window = check_whole("window", window, 1, 1000)
        self.threads = check_whole("threads", threads, 0, 1024) or torch.get_num_threads()
        self.seed = check_whole("seed", seed, 0, 2**63 - 1)
        self._output = output_table(model)
        self._opponents, self._negatives = _opponents(model)
        self._corpus = _corpus(model, sequences)
        jobs = _jobs_of(len(sequences.values))
        self._job_words, self._num_jobs, self._jobs_a_step = jobs
        self.per_epoch = math.ceil(self._num_jobs / self._jobs_a_step)
        self._order: tuple[int, Tensor] | None = None
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._step = 0
        self.load_state({})

    @classmethod
    def build(cls, setup: Setup, model: Any) -> Word2VecSteps:
        """Return how a run trains its model: on the sentences or sessions themselves."""
        check_on_host(
            setup.options.device, "the word2vec kernel runs on it; --trainer torch on others, too"
        )
        options = setup.options
        return cls(
            model,
            model.training_sequences(setup, setup.corpus),
            window=options.window,
            threads=options.threads,
            seed=options.seed,
        )

    def take(self, step: int, learning_rate: float) -> None:
        """Train on the jobs of this step."""
        epoch, place = divmod(step, self.per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, shuffled(self._num_jobs, self.seed, epoch)
        start = place * self._jobs_a_step
        of_step = self._order[1][start : start + self._jobs_a_step].tolist()
        jobs = iter(self.together.own_jobs(of_step))

        def work(thread: int) -> None:
            for job in jobs:  # each goes to the thread that asks first
                self._run(job, epoch, learning_rate)

        self._part()
        if self._pool:
            list(self._pool.map(work, range(self.threads)))
        else:
            work(0)
        self._step = step
        if (step + 1) % _STEPS_APART == 0:
            self._meet()

    def _part(self) -> None:
        """Remember the tables as all processes have them, before each goes its own way."""
        if self.together.size > 1 and self._before is None:
            self._before = [table.copy() for table in (self._tables.inputs, self._tables.outputs)]

    def _meet(self) -> None:
        """Bring the tables of all processes together."""
        if self._before is None:
            return
        tables = (self._tables.inputs, self._tables.outputs)
        for table, before in zip(tables, self._before, strict=True):
            self.together.average(torch.from_numpy(table), torch.from_numpy(before))

    def _run(self, job: int, epoch: int, rate: float) -> int:
        start = job * self._job_words
        stop = min(start + self._job_words, len(self._corpus.words))
        # Seeds that differ in one bit give unrelated streams: the kernel mixes them.
        seed = (self.seed * 1_000_003 + epoch * self._num_jobs + job) % 2**63
        return train_words(
            self._corpus,
            start,
            stop,
            self._tables,
            self._opponents,
            self.window,
            rate,
            seed,
            negatives=self._negatives,
            bag=not isinstance(self.model, SkipGram),
            threads=self.threads,
        )

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the tables into the parameters of the model, as all processes have them."""
        self._meet()
        inputs = ("the input vectors", self._words.encoder.weight, self._tables.inputs)
        outputs = ("the output vectors", self._output, self._tables.outputs)
        for name, parameter, table in (inputs, outputs):
            values = torch.from_numpy(table)[:, : parameter.shape[1]]
            if not math.isfinite(float(values.sum())) and not bool(values.isfinite().all()):
                bad = values[~values.isfinite()]
                raise NonFiniteError(step=self._step, tensor=name, value=bad[0].item())
            parameter.copy_(values)

    def state(self) -> dict[str, Any]:
        """Return nothing: the step and the model hold all there is."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the tables from the parameters of the model."""
        self._tables = Tables(_padded(self._words.encoder.weight), _padded(self._output))
        self._before = None


def train_word2vec(
    model: WordModel,
    sequences: Sequences,
    *,
    window: int = 5,
    epochs: int | None = None,
    learning_rate: float | None = None,
    threads: int = 0,
    seed: int = 0,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Train a model of words by ``Word2VecSteps``, the learning rate falling linearly to 0.

    ``on_step`` gets the steps that are done and their total. By default the length of the text
    chooses ``epochs``, from 40 for a short one to 5 for a long one; ``learning_rate`` is 0.025 for
    skip-gram and 0.05 for CBOW, as in the code of Mikolov et al. 2013. Training of hours is better
    left to ``widemax.train``, which can be interrupted and resumed.

    >>> import widemax as wm
    >>> sequences, vocabulary = wm.data.encode_text("to be or not to be\\n" * 99)
    >>> model = wm.models.SkipGram.create(vocabulary.counts, dimension=8, subsample=0)
    >>> train_word2vec(model, sequences, threads=1, epochs=3)
    >>> wm.KeyedVectors(vocabulary.keys, model.key_vectors().detach()).dimension
    8
    """
    if epochs is None:
        epochs = chosen_epochs(AUTO_EPOCHS, len(sequences.values))
    epochs = check_whole("epochs", epochs, 1, 1_000_000)
    if learning_rate is None:
        learning_rate = 0.025 if isinstance(model, SkipGram) else 0.05
    learning_rate = check_positive("learning_rate", learning_rate)
    steps = Word2VecSteps(model, sequences, window=window, threads=threads, seed=seed)
    total = epochs * steps.per_epoch
    for step in range(total):
        steps.take(step, learning_rate * (1 - step / total))
        on_step(step + 1, total)
    steps.publish()


def refusal(model: nn.Module) -> str:
    """Return why the kernel cannot train a model; empty if it can."""
    if not isinstance(model, WordModel):
        return f"{type(model).__name__} is neither skip-gram nor CBOW"
    if type(model).forward not in (CBOW.forward, SkipGram.forward):
        return f"{type(model).__name__} learns from more than its windows"
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            return f"{name} is {parameter.dtype} on {parameter.device}, not float32 on the CPU"
    head = model.head
    if isinstance(head, HierarchicalHead):
        return "" if head.bias is None else "the nodes of its tree have biases"
    if not isinstance(head, SampledHead) or head.objective is not negative_sampling:
        return "its head is neither negative sampling nor a tree"
    scorer = head.scorer
    plain = type(scorer) is TableScorer and scorer.bias is None and scorer.temperature == 1
    if not plain or scorer.similarity != "dot":
        return "its scorer is not a plain table without biases"
    # By their exact type: one derived from them may draw by what it has learned meanwhile.
    if type(head.sampler) not in (LogUniformSampler, UniformSampler, UnigramSampler):
        return "its sampler does not draw by fixed frequencies"
    if head.num_samples is None:
        return "its head does not say how many classes are drawn"
    return ""


def output_table(model: WordModel) -> nn.Parameter:
    """Return the output vectors that the kernel trains: of classes, or of the nodes of a tree."""
    if reason := refusal(model):
        raise ValueError(f"the kernel cannot train this model: {reason}")
    head = model.head
    if isinstance(head, HierarchicalHead):
        return head.weight
    assert isinstance(head, SampledHead)
    assert isinstance(head.scorer, TableScorer)
    return head.scorer.weight


def _opponents(model: WordModel) -> tuple[Opponents, int]:
    """Return what competes with each word, and how many negatives that means, 0 for a tree."""
    head = model.head
    if isinstance(head, HierarchicalHead):
        table = np.empty((0, 2), np.int32)
        return Opponents(*_paths(head.tree), table, table.view(np.float32)), 0
    assert isinstance(head, SampledHead)
    assert head.num_samples is not None
    probability = head.sampler.log_prob(torch.arange(head.num_classes)).exp()
    table = build_alias_table(scaled_weights(probability.double().numpy()))
    no_path = np.empty(0, np.int64)
    drawn = Opponents(no_path, no_path, no_path, table, table.view(np.float32))
    return drawn, head.num_samples


def _paths(tree: Tree) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where the nodes of each class start, all of them end to end, and how many turn right.

    Of each class the nodes where its path turns right come first.
    """
    paths = tree.paths(torch.arange(tree.num_classes))
    order = paths.signs.argsort(dim=1, descending=True, stable=True)
    signs = paths.signs.gather(1, order)
    there = signs != 0
    lengths = there.sum(-1)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    # By their order, 1 comes first, then 0, which marks no node, then −1.
    nodes = paths.nodes.gather(1, order)[there]
    return starts.numpy(), nodes.numpy(), (signs > 0).sum(-1).numpy()


def _corpus(model: WordModel, sequences: Sequences) -> Corpus:
    highest = int(sequences.values.max())
    if highest >= model.encoder.num_classes:
        raise ValueError(
            f"sequences must hold classes below {model.encoder.num_classes:,}, got {highest:,}"
        )
    keep = (model.keep.double() * (2**32 - 1)).round().long().numpy().astype(np.uint32)
    return Corpus(sequences.values.numpy(), sequences.offsets.numpy(), keep)


def _padded(parameter: Tensor) -> NDArray[np.float32]:
    """Return a copy of a table whose rows are whole cache lines."""
    rows, dimension = parameter.shape
    width = -(-dimension // _LINE) * _LINE
    room = np.zeros(rows * width + _LINE, np.float32)
    start = -(room.ctypes.data // room.itemsize) % _LINE
    table = room[start : start + rows * width].reshape(rows, width)
    table[:, :dimension] = parameter.detach().numpy()
    return table
