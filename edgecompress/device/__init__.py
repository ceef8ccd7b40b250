"""The code that runs on a device, and its client."""
