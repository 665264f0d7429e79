"""Tables from packet captures, answers to questions about them, and the energy of radios.

`read_captures` reads captures into tables without intermediate files. `Flows` answers questions
about tables from `manyways flows -o` or `read_captures`. `manyways.radio` computes the energy that
a device's radio spends on packets.
"""

from manyways.captures import CaptureWarning, read_captures, schemas
from manyways.flows import Answer, Flows, FlowsError

__all__ = ["Answer", "CaptureWarning", "Flows", "FlowsError", "read_captures", "schemas"]
