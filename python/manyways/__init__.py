"""Captures of packets as tables, and questions about them.

`read_captures` reads captures without a detour over files; `Flows` asks the tables of a folder that
`manyways flows -o` wrote, or those that `read_captures` gave. `manyways.radio` is about what a
device's radio spends on packets.
"""

from manyways.captures import CaptureWarning, read_captures, schemas
from manyways.flows import Answer, Flows, FlowsError

__all__ = ["Answer", "CaptureWarning", "Flows", "FlowsError", "read_captures", "schemas"]
