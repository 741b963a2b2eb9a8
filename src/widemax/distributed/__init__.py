"""One model trained by several processes, on ``torch.distributed``.

Nothing here is a transport, a scheduler or a launcher: ``torchrun`` starts the processes, gloo
carries the tensors.
"""

from widemax.distributed.averaging import average_rows
from widemax.distributed.counting import counted_vocabulary
from widemax.distributed.gradients import add_gradients
from widemax.distributed.heads import SlicedFullHead, SlicedSampledHead
from widemax.distributed.joined import JoinedBatches
from widemax.distributed.ranks import RankFailedError, Ranks, joined_ranks
from widemax.distributed.sampling import SlicedUnigramSampler
from widemax.distributed.slices import Slices
from widemax.distributed.tables import SlicedBagEncoder, SlicedTableScorer
from widemax.distributed.wire import Wire, gathered_rows

__all__ = [
    "JoinedBatches",
    "RankFailedError",
    "Ranks",
    "SlicedBagEncoder",
    "SlicedFullHead",
    "SlicedSampledHead",
    "SlicedTableScorer",
    "SlicedUnigramSampler",
    "Slices",
    "Wire",
    "add_gradients",
    "average_rows",
    "counted_vocabulary",
    "gathered_rows",
    "joined_ranks",
]
