"""What computes an operator by others, where torch has no decomposition, or one of operators that engines lack.

Each function takes what its operator in a TABLE takes, by the formula of torch's documentation. It returns
NotImplemented for arguments that it is not for: the operator then stays.
"""
