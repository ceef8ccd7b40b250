"""What runs on a device, and how it is asked."""
