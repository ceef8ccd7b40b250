"""The process on the device that runs and measures one artifact: one request in, one result out, a file per mode."""
