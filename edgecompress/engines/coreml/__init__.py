"""Core ML: .mlpackage programs, converted, compressed, and run anywhere by an interpreter of MIL."""
