"""What a file holds and computes: the bytes of its weights by precision, its operators by what they compute in.

A weight is a constant that is multiplied, or a table of which rows are picked; how often it is read makes no
difference. Biases, scales, shapes and other constants are none. An operator counts where it multiplies: a convolution,
a matrix product, a recurrent cell.
"""
