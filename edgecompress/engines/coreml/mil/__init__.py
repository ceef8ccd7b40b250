"""Core ML programs on any machine: an interpreter of a saved .mlpackage.

The contract: the program is executed op by op in the precision that it states. Inside an op, floats are computed and
accumulated in fp32; each result is rounded once, to the type that the program declares for it (fp16: to nearest even).
Integers and booleans are exact. Compressed weights (`constexpr_*`) are unpacked once, when the program is loaded. What
an op computes is what Core ML's documentation says; what a chip makes of it may differ in the last bits.
An op, or an input, a type or a mode of one, that the interpreter does not know is an error when the program is loaded.
"""

from edgecompress.engines.coreml.mil.layer_outputs import AddedOutput
from edgecompress.engines.coreml.mil.layer_outputs import watched as write_watched
from edgecompress.engines.coreml.mil.layer_outputs import write as write_with_layer_outputs
from edgecompress.engines.coreml.mil.program import Port, Program
from edgecompress.engines.coreml.mil.reader import load

__all__ = ["AddedOutput", "Port", "Program", "load", "write_watched", "write_with_layer_outputs"]
