"""An arm64 Linux userland in a folder: QEMU, CPython, aarch64 wheels, and a plugin that counts instructions."""
