"""The names of the room: each is imported when it is first asked for."""

from .advice import Advice as Advice
from .advice import Alternative as Alternative
from .advice import advise as advise
from .choosing import Reason as Reason
from .machine import Machine as Machine
from .popularity import Popularity as Popularity
