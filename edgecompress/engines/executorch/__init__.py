"""ExecuTorch: .pte programs, their delegates and event traces."""
